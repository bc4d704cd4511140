"""A recording to a transcript: what is listened to, in which language, and the times it had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

from oscine.audio.io import Source
from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.audio.silero import available
from oscine.audio.speech import Speech, survey
from oscine.audio.timeline import Timeline
from oscine.audio.vad import VadOptions
from oscine.audio.windows import Features
from oscine.engine.steps import run
from oscine.models.base_model import Model
from oscine.models.cancel import Cancel
from oscine.models.transcription import (
    Progress,
    Transcription,
    vad_options,
    word_to_original_time,
)
from oscine.models.whisper.fallback import Requests
from oscine.models.whisper.language import detect_language, window_starts
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.tokens import TextSide
from oscine.models.whisper.windows import (
    WindowDecoder,
    transcribe_batched,
    transcribe_sequential,
)
from oscine.models.whisper.words import BELIEVABLE
from oscine.options.transcribe import TranscribeOptions
from oscine.types import Segment

HARDLY = 0.3  # seconds of speech: a word has more, a breath or a late ending less


class Stream(Transcription):
    """Whisper's: the language is listened for first, where it is not given."""

    def __init__(
        self,
        model: Model[WhisperRunner],
        text: TextSide,
        source: Source,
        options: TranscribeOptions,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        super().__init__(model, source, options, progress, cancel)
        self._submit = partial(model.engine.submit, caller=self._caller)
        self._batch_that_fits = model.runner.batch_that_fits
        self._text, self._options = text, options
        self._requests = Requests(options, text)
        self.language = options.language or ("" if text.tokens.multilingual else "en")
        self._detects = not self.language
        # Aligned words leave out some speech around them; of that, nothing is missing.
        self.max_overhang_s = BELIEVABLE if options.word_timestamps else 0.0

    def _transcribe_channel(
        self, source: Source, channel: int | None, count: int
    ) -> Iterator[Segment | None]:
        """One channel, or all of them mixed."""
        started = perf_counter()
        vad, keep_all = vad_options(self._options), False
        if vad is None and self._options.batched and available():
            vad, keep_all = VadOptions(), True  # only to cut windows at pauses
        config = self._text.config
        front_end = partial(
            Features,
            n_mels=config.n_mels,
            window_frames=config.window_frames,
            check=self._check_cancelled,
        )
        if vad is None:  # one reading is enough
            features = front_end(source)
            speech = Speech.unheard(source, features.samples)
        else:
            speech = survey(source, vad=vad, keep_all=keep_all, check=self._check_cancelled)
            features = front_end(speech.recording)
        self._add_speech(speech, channel, started)
        decoder = WindowDecoder(self._text, self._options, self._requests, speech, features)
        ranges = self._clip_ranges(speech, decoder.frames, channel)
        share = (channel or 1) - 1
        if not ranges:
            self._report_progress((share + 1) / count)
            return
        self._find_language(decoder, ranges)
        yield None

        def report(frame: int) -> None:
            self._report_progress((share + frame / decoder.frames) / count)

        submit, check = self._submit, self._check_cancelled
        if self._options.batched:
            wanted = self._options.batch_size
            if wanted == "auto":
                wanted = self._batch_that_fits(max(self._options.beams, 1))
            size = int(wanted or 1)
            segments = transcribe_batched(decoder, ranges, size, report, submit, check)
        else:
            segments = transcribe_sequential(decoder, ranges, report, submit, check)
        apart = channel is not None and self._detects
        for segment in segments:
            found = restored(segment, speech.timeline, speech.speech_seconds)
            language = found.language or (decoder.language if apart else None)
            yield replace(found, channel=channel, language=language)
        report(decoder.frames)

    def _find_language(self, decoder: WindowDecoder, ranges: Sequence[tuple[int, int]]) -> None:
        """Detect a channel's language unless it is given; the transcript has the first one's."""
        decoder.language = self.language
        if not self._detects:
            return
        options, tokens = self._options, self._text.tokens
        window_frames, most = decoder.features.window_frames, options.language_detection_segments
        windows = (
            decoder.input(seek, min(end for _, end in ranges if end > seek) - seek)
            for seek in window_starts(ranges, window_frames, most)
        )
        steps = detect_language(windows, tokens, options.language_detection_threshold)
        decoder.language, shares = run(self._submit, steps, self._check_cancelled)
        if not self.language:
            self.language = decoder.language
            self._probability = round(shares[self.language], 4)
            self.language_probs = shares


def restored(
    segment: Segment, timeline: Timeline, spoken: Callable[[float, float], float]
) -> Segment:
    """A segment with the times that it has in the recording.

    A model lets segments follow each other closely, so one may begin before a pause that was cut
    out and speak only after it. `spoken` seconds between two times say so: less than HARDLY of a
    piece at either end is not the segment's.
    """
    if timeline.whole:
        return segment
    start, end = timeline.original(segment.start), timeline.original(segment.end, end=True)
    words = segment.words and tuple(word_to_original_time(word, timeline) for word in segment.words)
    if words:
        start, end = words[0].start, words[-1].end
    else:
        start, end = without_silent_ends(start, end, timeline, spoken)
    seek = round(timeline.original(segment.seek / FRAMES_PER_SECOND) * FRAMES_PER_SECOND)
    return replace(segment, seek=seek, start=start, end=max(start, end), words=words)


def without_silent_ends(
    start: float, end: float, timeline: Timeline, spoken: Callable[[float, float], float]
) -> tuple[float, float]:
    """Start and end moved over cut-out pauses, away from pieces where hardly anything is said."""
    inside = [
        (max(low, start), min(high, end))
        for low, high in timeline.seconds()
        if low < end and high > start
    ]
    said = [piece for piece in inside if spoken(*piece) >= HARDLY]
    return (said[0][0], said[-1][1]) if said else (start, end)
