"""How words become lines and cues of subtitles."""

from __future__ import annotations

from dataclasses import dataclass

from oscine.errors import UsageError
from oscine.options import Group, option, options_of
from oscine.options.checks import flag, whole

_WRITER = "give it to formats.Layout, or to the command"


@dataclass(frozen=True, slots=True)
class Layout:
    """How words become lines and cues; nothing is asked for by default: one cue a segment.

    With a width and a count of lines, cues reach over segments, and end where they are full or
    after a long pause. The width is in characters. Raises UsageError for what cannot be done.
    """

    # fmt: off
    max_line_width: int | None = option(
        None, whole(1, strict=True), "Most characters per line.", Group.SUBTITLES,
        elsewhere=_WRITER)
    max_line_count: int | None = option(
        None, whole(1, strict=True), "Most lines per cue, across segments; needs a width.",
        Group.SUBTITLES, elsewhere=_WRITER)
    max_words_per_line: int | None = option(
        None, whole(1, strict=True), "Most words per cue; without a width.", Group.SUBTITLES,
        elsewhere=_WRITER)
    highlight_words: bool = option(
        False, flag, "Underline each word as it is spoken.", Group.SUBTITLES, elsewhere=_WRITER)
    # fmt: on

    def __post_init__(self) -> None:
        for name, record in options_of(Layout).items():
            record.normal(getattr(self, name))
        if self.max_line_count is not None and self.max_line_width is None:
            raise UsageError("max_line_count needs max_line_width")
        if self.max_words_per_line is not None and self.max_line_width is not None:
            raise UsageError("max_words_per_line does not go with max_line_width; leave out one")

    @property
    def asked(self) -> tuple[str, ...]:
        """The names of what is asked for, all of which needs the times of words."""
        records = options_of(Layout).values()
        return tuple(each.name for each in records if getattr(self, each.name) != each.default)
