"""One window after another: each begins where the text of the one before ends, and is told it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from oscine.models.whisper.attempts import Job
from oscine.models.whisper.passage import Passage
from oscine.types import Segment


def one_after_another(
    passage: Passage, ranges: Sequence[tuple[int, int]], report: Callable[[int], None]
) -> Iterator[Segment]:
    """The seek loop over ranges of frames. Source: whisper/transcribe.py."""
    window_frames, history = passage.features.window_frames, passage.attempts.history()
    before, said = 0.0, ""
    for start, end in ranges:
        seek, last = start, passage.end_of(end)
        while seek < end:
            report(seek)
            job = Job(seek, min(window_frames, end - seek), passage.language, history.prompt())
            (found,) = passage.decode([job], last, before, final=False)
            for segment in found.segments:
                history.extend(segment.tokens)
                before = segment.end
            text = "".join(segment.text for segment in found.segments)
            if found.hot or not passage.options.conditioned or (text and text == said):
                history.forget()
            said = text
            yield from found.segments
            seek += found.advance
