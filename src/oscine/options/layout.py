"""How words become lines and cues of subtitles."""

from __future__ import annotations

from dataclasses import dataclass

from oscine.errors import UsageError
from oscine.options import Group, option, options_of
from oscine.options.checks import flag, number, whole

FEW_FRAMES = 0.125  # seconds, three frames of a film: a cue that is shorter cannot be seen
MOST_TIME = 60.0  # seconds
OF_CUES = ("min_cue_time", "max_cps")  # what is done with whole cues
_WRITER = "give it to formats.Layout, or to the command"


@dataclass(frozen=True, slots=True)
class Layout:
    """How words become lines and cues; nothing is asked for by default: one cue a segment.

    With a width and a count of lines, cues reach over segments, and end where they are full or
    after a long pause. The width is in characters. A cue of a few frames is a fault, so least time
    has a default. Raises UsageError for what cannot be done.
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
    clause_breaks: bool = option(
        False, flag, "End lines and cues after clauses, where the width allows.", Group.SUBTITLES,
        elsewhere=_WRITER)
    min_cue_time: float | None = option(
        None, number("be 0 to 60 seconds", lambda x: 0 <= x <= MOST_TIME, strict=True),
        "Least time of a cue, s: a shorter one lasts longer or is joined to the next.",
        Group.SUBTITLES, default_text=f"{FEW_FRAMES:g}", elsewhere=_WRITER)
    max_cps: float | None = option(
        None, number("be 1 to 1000 characters a second", lambda x: 1 <= x <= 1000, strict=True),
        "Reading speed, characters a second: cues last longer where there is time.",
        Group.SUBTITLES, elsewhere=_WRITER, replaces={"max_chars_per_second": "use max_cps"})
    # fmt: on

    def __post_init__(self) -> None:
        for name, record in options_of(Layout).items():
            record.normal(getattr(self, name))
        if self.max_line_count is not None and self.max_line_width is None:
            raise UsageError("max_line_count needs max_line_width")
        if self.max_words_per_line is not None and self.max_line_width is not None:
            raise UsageError("max_words_per_line does not go with max_line_width; leave out one")
        if self.clause_breaks and self.max_line_width is None:
            raise UsageError("clause_breaks needs max_line_width")
        for name in self.asked:
            if self.highlight_words and name in OF_CUES:
                raise UsageError(f"{name} does not go with highlight_words: a cue is a word there")

    @property
    def asked(self) -> tuple[str, ...]:
        """The names of what is asked for."""
        records = options_of(Layout).values()
        return tuple(each.name for each in records if getattr(self, each.name) != each.default)

    @property
    def of_words(self) -> tuple[str, ...]:
        """The names of what is asked for that needs the times of words."""
        return tuple(name for name in self.asked if name not in OF_CUES)
