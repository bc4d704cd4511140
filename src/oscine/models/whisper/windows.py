"""A recording's windows on their way from features to segments, one after another or side by side.

Times here are those of the speech, without the pauses that were cut out. The stream maps them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.audio.speech import Speech, quiet_windows
from oscine.audio.windows import Features
from oscine.engine.sequence import Check, EncoderInput
from oscine.engine.steps import Steps, Submit, run, run_side_by_side
from oscine.models.whisper.fallback import Requests, Window, decode_with_fallback
from oscine.models.whisper.language import language_probs, most_likely
from oscine.models.whisper.segments import Segmenter, WindowSegments
from oscine.models.whisper.tokens import TextSide
from oscine.models.whisper.words import WindowTimes
from oscine.options.transcribe import DecodingOptions
from oscine.types import Segment

SHORTEST = 50  # frames of a window's rest that are worth another window


class WindowDecoder:
    """Decodes the windows of one recording, which have its `language` unless each has its own."""

    def __init__(
        self,
        text: TextSide,
        options: DecodingOptions,
        requests: Requests,
        speech: Speech,
        features: Features,
    ) -> None:
        self.options, self.requests = options, requests
        self.speech, self.features = speech, features
        self.language = ""
        self._tokens = text.tokens
        self._segmenter = Segmenter(options, text, speech)
        self._latest: tuple[tuple[int, int, bool], EncoderInput] | None = None

    @property
    def frames(self) -> int:
        """Frames of all the speech; less than one of sound counts too."""
        return max(self.features.frames, int(self.features.duration > 0))

    def end_of(self, frame: int) -> float:
        """Seconds at which a range that ends with this frame has no more text."""
        return self.features.duration if frame == self.frames else frame / FRAMES_PER_SECOND

    def input(self, seek: int, size: int, *, silence: bool = False) -> EncoderInput:
        """The features of `size` frames from `seek` on, at most a window; the latest is kept.

        So a window whose language was detected is not encoded twice. `silence`: a window that ends
        before the recording does is followed by silence.
        """
        key = seek, min(size, self.features.window_frames), silence
        if self._latest is None or self._latest[0] != key:
            features = self.features.window(seek, key[1], silence=silence)
            self._latest = key, EncoderInput(features)
        return self._latest[1]

    def decode(
        self,
        place: tuple[int, int],
        history: tuple[int, ...],
        last: float,
        before: float,
        *,
        final: bool = False,
    ) -> Steps[WindowSegments]:
        """The segments of a window: `place` is its first frame and its number of frames.

        `history`: tokens of the text before. `last`: seconds where audio or clip ends. `before`:
        seconds where the text before the window ends. `final`: the window ends in a pause, so the
        text at its end is whole.
        """
        seek, size = place
        window = Window(self.input(seek, size, silence=final), seek, size, self.language, history)
        if self.options.multilingual:
            shares = yield from language_probs(window.audio, self._tokens)
            window = replace(window, language=most_likely(shares))
        result = yield from decode_with_fallback(window, self.requests)
        start = seek / FRAMES_PER_SECOND
        end = start + self.features.window_frames / FRAMES_PER_SECOND
        times = WindowTimes(start, end, last, before)
        return (yield from self._segmenter.segments(window, result, times, final=final))

    def decode_whole(
        self, place: tuple[int, int], history: tuple[int, ...], last: float
    ) -> Steps[list[Segment]]:
        """All segments of a window that ends in a pause, in order of time.

        Where its text stops early, the rest is taken up again.
        """
        segments: list[Segment] = []
        seek, size = place
        while True:
            before = seek / FRAMES_PER_SECOND
            found = yield from self.decode((seek, size), history, last, before, final=True)
            segments += found.segments
            if found.advance > size - SHORTEST:
                return sorted(segments, key=lambda segment: (segment.start, segment.end))
            seek, size = seek + found.advance, size - found.advance


def transcribe_sequential(
    decoder: WindowDecoder,
    ranges: Sequence[tuple[int, int]],
    report: Callable[[int], None],
    submit: Submit,
    check: Check,
) -> Iterator[Segment]:
    """Ranges of frames, window by window: each begins where the text of the one before ends.

    The prompt of each holds the text before it. `report` receives the first frame of each. Source:
    whisper/transcribe.py.
    """
    window_frames, history = decoder.features.window_frames, decoder.requests.history()
    before, previous = 0.0, ""
    for start, end in ranges:
        seek, last = start, decoder.end_of(end)
        while seek < end:
            report(seek)
            place = seek, min(window_frames, end - seek)
            found = run(submit, decoder.decode(place, history.prompt(), last, before), check)
            for segment in found.segments:
                history.extend(segment.tokens)
                before = segment.end
            text = "".join(segment.text for segment in found.segments)
            repeats = bool(text) and text == previous
            if found.reset_prompt or not decoder.options.conditioned or repeats:
                history.forget()
            previous = text
            yield from found.segments
            seek += found.advance


def transcribe_batched(
    decoder: WindowDecoder,
    ranges: Sequence[tuple[int, int]],
    size: int,
    report: Callable[[int], None],
    submit: Submit,
    check: Check,
) -> Iterator[Segment]:
    """Ranges of frames, cut at pauses into windows, `size` of them side by side, in order of time.

    `report` receives the first frame of each window, before its segments.
    """
    history = decoder.requests.history().prompt() if decoder.options.carry_initial_prompt else ()
    before, window_frames = 0.0, decoder.features.window_frames
    for start, end in ranges:
        report(start)
        places = [
            (low, high - low)
            for low, high in quiet_windows(decoder.speech, start, end, window_frames)
        ]
        last = decoder.end_of(end)
        windows = (decoder.decode_whole(place, history, last) for place in places)
        with closing(run_side_by_side(submit, windows, size, check)) as results:
            for (seek, _), segments in zip(places, results, strict=True):
                report(seek)
                for segment in segments:
                    # Beside each other, windows do not know where the text before them ends.
                    segment = not_before(segment, before)
                    before = segment.end
                    yield segment


def not_before(segment: Segment, time: float) -> Segment:
    """The segment and its words moved to begin not before `time`."""
    if segment.start >= time:
        return segment
    words = segment.words and tuple(
        replace(word, start=max(word.start, time), end=max(word.end, time))
        for word in segment.words
    )
    return replace(segment, start=time, end=max(segment.end, time), words=words)
