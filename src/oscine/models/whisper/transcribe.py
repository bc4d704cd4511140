"""Transcribes a recording: speech detection, language detection, windows, original times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

from oscine.audio.io import Source
from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.audio.silero import available
from oscine.audio.speech import SpeechMap, detect_speech
from oscine.audio.timeline import Timeline
from oscine.audio.vad import VadOptions
from oscine.engine.generators import run
from oscine.models.base_model import Model
from oscine.models.cancel import Cancel
from oscine.models.transcription import (
    Progress,
    Transcription,
    vad_options,
    word_to_original_time,
)
from oscine.models.whisper.fallback import RequestBuilder
from oscine.models.whisper.features import recording_windows
from oscine.models.whisper.language import detect_language, window_starts
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.tokens import TextDecoderInfo
from oscine.models.whisper.windows import (
    WindowDecoder,
    transcribe_batched,
    transcribe_sequential,
)
from oscine.models.whisper.words import MAX_WORD_OVERHANG_S
from oscine.options.transcribe import TranscribeOptions
from oscine.types import Segment

MIN_SPEECH_S = 0.3  # a word has more; a breath or the end of a word that was cut has less


class WhisperTranscription(Transcription):
    """A Whisper transcription under way; the language is detected first unless it is given."""

    def __init__(
        self,
        model: Model[WhisperRunner],
        info: TextDecoderInfo,
        source: Source,
        options: TranscribeOptions,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        super().__init__(model, source, options, progress, cancel)
        self._submit = partial(model.engine.submit, caller=self._caller)
        self._windows = partial(
            recording_windows,
            runner=model.runner,
            submit=self._submit,
            check=self._check_cancelled,
        )
        self._max_batch_size = model.runner.max_batch_size
        self._info = info
        self._requests = RequestBuilder(options, info)
        self.language = options.language or ("" if info.special_tokens.multilingual else "en")
        self._detects_language = not self.language
        # Aligned words leave out some of the speech around them, which does not count as missed.
        self.max_overhang_s = MAX_WORD_OVERHANG_S if options.word_timestamps else 0.0

    def _transcribe_channel(
        self, source: Source, channel: int | None, count: int
    ) -> Iterator[Segment | None]:
        """The segments of one channel, or of the mix of all; None first."""
        started = perf_counter()
        vad, keep_all = vad_options(self._options), False
        if vad is None and self._options.batched and available():
            vad, keep_all = VadOptions(), True  # only to find pauses at which windows are cut
        if vad is None:  # the recording is read once
            features = self._windows(source)
            speech = SpeechMap.without_vad(source, features.samples)
        else:
            speech = detect_speech(source, vad=vad, keep_all=keep_all, check=self._check_cancelled)
            features = self._windows(speech.recording)
        self._add_speech(speech, channel, started)
        decoder = WindowDecoder(self._info, self._options, self._requests, speech, features)
        ranges = self._clip_ranges(speech, decoder.frames, channel)
        share = (channel or 1) - 1
        if not ranges:
            self._report_progress((share + 1) / count)
            return
        self._detect_language(decoder, ranges)
        yield None

        def report(frame: int) -> None:
            self._report_progress((share + frame / decoder.frames) / count)

        submit, check = self._submit, self._check_cancelled
        if self._options.batched:
            batch_size = self._options.batch_size
            if batch_size == "auto":
                batch_size = self._max_batch_size(max(self._options.beams, 1))
            size = int(batch_size or 1)
            segments = transcribe_batched(decoder, ranges, size, report, submit, check)
        else:
            segments = transcribe_sequential(decoder, ranges, report, submit, check)
        has_own_language = channel is not None and self._detects_language
        for segment in segments:
            segment = to_original_time(segment, speech.timeline, speech.speech_seconds)
            language = segment.language or (decoder.language if has_own_language else None)
            yield replace(segment, channel=channel, language=language)
        report(decoder.frames)

    def _detect_language(self, decoder: WindowDecoder, ranges: Sequence[tuple[int, int]]) -> None:
        """Set a channel's language, detected unless given; the transcript has the first one's."""
        decoder.language = self.language
        if not self._detects_language:
            return
        options, special_tokens = self._options, self._info.special_tokens
        max_windows = options.language_detection_segments
        window_frames = decoder.features.window_frames
        windows = (
            decoder.input(seek, min(end for _, end in ranges if end > seek) - seek)
            for seek in window_starts(ranges, window_frames, max_windows)
        )
        steps = detect_language(windows, special_tokens, options.language_detection_threshold)
        decoder.language, probs = run(self._submit, steps, self._check_cancelled)
        if not self.language:
            self.language = decoder.language
            self._probability = round(probs[self.language], 4)
            self.language_probs = probs


def to_original_time(
    segment: Segment, timeline: Timeline, speech_seconds: Callable[[float, float], float]
) -> Segment:
    """A segment with its times in the recording.

    Segments follow each other closely, so one may start before a pause that was cut out although
    its speech starts after it. `speech_seconds` gives the speech between two times: a piece with
    less than MIN_SPEECH_S at either end is left out of the segment.
    """
    if timeline.is_identity:
        return segment
    start, end = (
        timeline.original_time(segment.start),
        timeline.original_time(segment.end, end=True),
    )
    words = segment.words and tuple(word_to_original_time(word, timeline) for word in segment.words)
    if words:
        start, end = words[0].start, words[-1].end
    else:
        start, end = trim_silent_ends(start, end, timeline, speech_seconds)
    seek = round(timeline.original_time(segment.seek / FRAMES_PER_SECOND) * FRAMES_PER_SECOND)
    return replace(segment, seek=seek, start=start, end=max(start, end), words=words)


def trim_silent_ends(
    start: float, end: float, timeline: Timeline, speech_seconds: Callable[[float, float], float]
) -> tuple[float, float]:
    """Move start and end over pauses that were cut out, past pieces with hardly any speech."""
    inside = [
        (max(low, start), min(high, end))
        for low, high in timeline.seconds()
        if low < end and high > start
    ]
    pieces = [piece for piece in inside if speech_seconds(*piece) >= MIN_SPEECH_S]
    return (pieces[0][0], pieces[-1][1]) if pieces else (start, end)
