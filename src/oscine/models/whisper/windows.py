"""Transcribes the windows of a recording, sequentially or in batches.

Times here are seconds of the speech, with pauses cut out; transcribe.py maps them to those of the
recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.audio.speech import SpeechMap, split_at_silence
from oscine.engine.generators import SequenceGenerator, Submit, run, run_concurrently
from oscine.engine.sequence import CancelCheck, EncoderInput
from oscine.models.whisper.fallback import RequestBuilder, Window, decode_with_fallback
from oscine.models.whisper.features import Windows
from oscine.models.whisper.language import language_probs, most_likely_language
from oscine.models.whisper.segments import Segmenter, WindowSegments
from oscine.models.whisper.tokens import TextDecoderInfo
from oscine.models.whisper.words import WindowTimes
from oscine.options.transcribe import DecodingOptions
from oscine.types import Segment

MIN_REST_FRAMES = 50  # of a window that remain; a shorter rest is not decoded


class WindowDecoder:
    """Decodes the windows of one recording in its `language`, or each in its own."""

    def __init__(
        self,
        info: TextDecoderInfo,
        options: DecodingOptions,
        requests: RequestBuilder,
        speech: SpeechMap,
        features: Windows,
    ) -> None:
        self.options, self.requests = options, requests
        self.speech, self.features = speech, features
        self.language = ""
        self._special_tokens = info.special_tokens
        self._segmenter = Segmenter(options, info, speech)
        self._latest: tuple[tuple[int, int, bool], EncoderInput] | None = None

    @property
    def frames(self) -> int:
        """The number of frames of the speech; at least 1 if there is any audio."""
        return max(self.features.frames, int(self.features.duration > 0))

    def content_end(self, frame: int) -> float:
        """The end in seconds of a range that ends with this frame."""
        return self.features.duration if frame == self.frames else frame / FRAMES_PER_SECOND

    def input(self, seek: int, size: int, *, silence: bool = False) -> EncoderInput:
        """The features of `size` frames from `seek` on, at most a window.

        The last input is kept, so that language detection and decoding share one encoding.
        `silence`: fill the rest of the window with silence, not with the audio that follows.
        """
        key = seek, min(size, self.features.window_frames), silence
        if self._latest is None or self._latest[0] != key:
            features = self.features.window(seek, key[1], silence=silence)
            self._latest = key, EncoderInput(features)
        return self._latest[1]

    def decode(
        self,
        span: tuple[int, int],
        history: tuple[int, ...],
        content_end: float,
        last_speech: float,
        *,
        final: bool = False,
    ) -> SequenceGenerator[WindowSegments]:
        """Decode a window into segments.

        Args:
            span: First frame and number of frames.
            history: Tokens of the text last_speech the window.
            content_end: Seconds at which the audio or clip ends.
            last_speech: Seconds at which the text last_speech the window ends.
            final: The window ends in a pause, so its content_end text is complete.
        """
        seek, size = span
        window = Window(self.input(seek, size, silence=final), seek, size, self.language, history)
        if self.options.multilingual:
            probs = yield from language_probs(window.audio, self._special_tokens)
            window = replace(window, language=most_likely_language(probs))
        result = yield from decode_with_fallback(window, self.requests)
        start = seek / FRAMES_PER_SECOND
        end = start + self.features.window_frames / FRAMES_PER_SECOND
        times = WindowTimes(start, end, content_end, last_speech)
        return (yield from self._segmenter.segments(window, result, times, final=final))

    def decode_to_end(
        self, span: tuple[int, int], history: tuple[int, ...], content_end: float
    ) -> SequenceGenerator[list[Segment]]:
        """All segments of a window that ends in a pause, in order of time.

        If its text stops early, the rest of the window is decoded as another window.
        """
        segments: list[Segment] = []
        seek, size = span
        while True:
            last_speech = seek / FRAMES_PER_SECOND
            result = yield from self.decode(
                (seek, size), history, content_end, last_speech, final=True
            )
            segments += result.segments
            if result.advance > size - MIN_REST_FRAMES:
                return sorted(segments, key=lambda segment: (segment.start, segment.end))
            seek, size = seek + result.advance, size - result.advance


def transcribe_sequential(
    decoder: WindowDecoder,
    ranges: Sequence[tuple[int, int]],
    report: Callable[[int], None],
    submit: Submit,
    check: CancelCheck,
) -> Iterator[Segment]:
    """Transcribe ranges of frames window by window, each from where the text so far ends.

    The text so far is in the prompt. `report` receives the first frame of each window. Source:
    whisper/transcribe.py.
    """
    window_frames, history = decoder.features.window_frames, decoder.requests.history()
    last_speech, previous = 0.0, ""
    for start, end in ranges:
        seek, content_end = start, decoder.content_end(end)
        while seek < end:
            report(seek)
            span = seek, min(window_frames, end - seek)
            result = run(
                submit, decoder.decode(span, history.prompt(), content_end, last_speech), check
            )
            for segment in result.segments:
                history.extend(segment.tokens)
                last_speech = segment.end
            text = "".join(segment.text for segment in result.segments)
            repeats = bool(text) and text == previous
            if result.reset_prompt or not decoder.options.conditioned or repeats:
                history.reset()
            previous = text
            yield from result.segments
            seek += result.advance


def transcribe_batched(
    decoder: WindowDecoder,
    ranges: Sequence[tuple[int, int]],
    batch_size: int,
    report: Callable[[int], None],
    submit: Submit,
    check: CancelCheck,
) -> Iterator[Segment]:
    """Transcribe ranges of frames cut at pauses into windows, `batch_size` of them at a time.

    Segments are in order of time. `report` receives the first frame of each window before these.
    """
    history = decoder.requests.history().prompt() if decoder.options.carry_initial_prompt else ()
    last_speech, window_frames = 0.0, decoder.features.window_frames
    for start, end in ranges:
        report(start)
        spans = [
            (low, high - low)
            for low, high in split_at_silence(decoder.speech, start, end, window_frames)
        ]
        content_end = decoder.content_end(end)
        windows = (decoder.decode_to_end(span, history, content_end) for span in spans)
        with closing(run_concurrently(submit, windows, batch_size, check)) as results:
            for (seek, _), segments in zip(spans, results, strict=True):
                report(seek)
                for segment in segments:
                    # In a batch, a window is decoded before the end of the text before it is known.
                    segment = clamp_start(segment, last_speech)
                    last_speech = segment.end
                    yield segment


def clamp_start(segment: Segment, time: float) -> Segment:
    """The segment and its words, moved to start at `time` or later."""
    if segment.start >= time:
        return segment
    words = segment.words and tuple(
        replace(word, start=max(word.start, time), end=max(word.end, time))
        for word in segment.words
    )
    return replace(segment, start=time, end=max(segment.end, time), words=words)
