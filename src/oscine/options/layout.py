"""Options for the layout of subtitles: how words are grouped into lines and cues."""

from __future__ import annotations

from dataclasses import dataclass

from oscine.errors import UsageError
from oscine.options import Group, option, options_of
from oscine.options.checks import flag, integer, number

MIN_CUE_S = 0.125  # three frames of a film: a shorter cue cannot be seen
MAX_CUE_S = 60.0
CUE_OPTIONS = ("min_cue_time", "max_cps")  # options that need no word times
_LAYOUT_HINT = "give it to formats.Layout, or to the command"


@dataclass(frozen=True, slots=True)
class Layout:
    """How words are grouped into lines and cues. By default each segment is one cue.

    With a line width, in characters, and a line count, cues continue across segments and end when
    they are full or at a long pause. A cue of a few frames would be a fault, so a minimum duration
    applies by default. Raises UsageError for invalid or contradictory values.
    """

    # fmt: off
    max_line_width: int | None = option(
        None, integer(1, strict=True), "Maximum number of characters per line.", Group.SUBTITLES,
        python_hint=_LAYOUT_HINT)
    max_line_count: int | None = option(
        None, integer(1, strict=True),
        "Maximum number of lines per cue, across segments; needs max_line_width.",
        Group.SUBTITLES, python_hint=_LAYOUT_HINT)
    max_words_per_line: int | None = option(
        None, integer(1, strict=True),
        "Maximum number of words per cue; not with max_line_width.", Group.SUBTITLES,
        python_hint=_LAYOUT_HINT)
    highlight_words: bool = option(
        False, flag, "Underline each word as it is spoken.", Group.SUBTITLES,
        python_hint=_LAYOUT_HINT)
    clause_breaks: bool = option(
        False, flag,
        "Prefer to end lines and cues at clause boundaries; needs max_line_width.", Group.SUBTITLES,
        python_hint=_LAYOUT_HINT)
    min_cue_time: float | None = option(
        None, number("be 0 to 60 seconds", lambda x: 0 <= x <= MAX_CUE_S, strict=True),
        "Minimum duration of a cue, in seconds; a shorter one is extended or merged.",
        Group.SUBTITLES, default_text=f"{MIN_CUE_S:g}", python_hint=_LAYOUT_HINT)
    max_cps: float | None = option(
        None, number("be 1 to 1000 characters a second", lambda x: 1 <= x <= 1000, strict=True),
        "Maximum reading speed, in characters per second; cues are extended where possible.",
        Group.SUBTITLES, python_hint=_LAYOUT_HINT,
        renamed_from={"max_chars_per_second": "use max_cps"})
    # fmt: on

    def __post_init__(self) -> None:
        for name, record in options_of(Layout).items():
            record.normalize(getattr(self, name))
        if self.max_line_count is not None and self.max_line_width is None:
            raise UsageError("max_line_count needs max_line_width")
        if self.max_words_per_line is not None and self.max_line_width is not None:
            raise UsageError("max_words_per_line does not go with max_line_width; leave out one")
        if self.clause_breaks and self.max_line_width is None:
            raise UsageError("clause_breaks needs max_line_width")
        for name in self.requested:
            if self.highlight_words and name in CUE_OPTIONS:
                raise UsageError(f"{name} does not go with highlight_words: a cue is a word there")

    @property
    def requested(self) -> tuple[str, ...]:
        """Names of the options whose value is not the default."""
        records = options_of(Layout).values()
        return tuple(each.name for each in records if getattr(self, each.name) != each.default)

    @property
    def needing_words(self) -> tuple[str, ...]:
        """Names of the requested options that need word timestamps."""
        return tuple(name for name in self.requested if name not in CUE_OPTIONS)
