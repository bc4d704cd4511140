"""A recording to a transcript: what is listened to, and the times that its words had."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING

from oscine.audio.io import Source, channel_count, open_source
from oscine.audio.speech import Speech, survey
from oscine.errors import Cancelled
from oscine.models.parakeet.chunks import Passage
from oscine.models.parakeet.features import Features
from oscine.models.parakeet.options import ParakeetOptions
from oscine.models.parakeet.words import Segmenter, Timing
from oscine.models.whisper.stream import (
    Cancel,
    Progress,
    clip_frames,
    clip_ranges,
    restored_word,
    vad_options,
)
from oscine.types import Coverage, Segment, Transcript

if TYPE_CHECKING:
    from oscine.models.parakeet.pipeline import Parakeet

log = logging.getLogger(__name__)


class Stream(Iterator[Segment]):
    """One transcription under way: iterate for segments, stop iterating to cancel.

    `language` is "en" for an English model, else "", as the model does not tell. `duration` are the
    seconds of audio. `transcript()` gives what is finished so far, at any time. Channels that are
    transcribed apart follow each other; the transcript has them in order of time.
    """

    def __init__(
        self,
        model: Parakeet,
        source: Source,
        options: ParakeetOptions,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        model.check(options)
        self._model, self._source, self._options = model, source, options
        self._phrases = model.phrases(options.phrases)
        self.language = "" if model.multilingual else "en"
        self.duration = 0.0
        self._progress = progress
        self._cancelled = cancel.is_set if isinstance(cancel, Event) else cancel
        self._done: list[Segment] = []
        self._heard: list[tuple[int | None, Speech]] = []
        self._again = 0.0
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
            self._timings["total"] += 1000 * (perf_counter() - started)
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
        if self._options.shared.split_channels:
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
            coverage=self._coverage(),
        )

    def _coverage(self) -> Coverage | None:
        """Of all that was listened to so far; None where nobody has listened for speech."""
        heard = [(channel, speech) for channel, speech in self._heard if speech.spans is not None]
        if not heard:
            return None
        total = missed = 0.0
        for channel, speech in heard:
            texts = [(s.start, s.end) for s in self._done if s.channel == channel]
            ranges = clip_ranges(self._options.shared.clip_timestamps, speech.duration)
            inside = sum(speech.speech_seconds(start, end) for start, end in ranges)
            outside = speech.speech_seconds(0.0, speech.duration) - inside
            total += inside
            missed += max(0.0, speech.without_text(texts) - outside)
        return Coverage(round(total, 2), round(missed, 2), round(self._again, 2))

    def _run(self) -> Iterator[Segment]:
        """Every channel that is asked for."""
        if not self._options.shared.split_channels:
            yield from self._channel(self._source, None, 1)
            return
        count = channel_count(self._source)
        for channel in range(1, count + 1):
            yield from self._channel(open_source(self._source, channel=channel), channel, count)

    def _channel(self, source: Source, channel: int | None, count: int) -> Iterator[Segment]:
        """One channel, or all of them mixed."""
        started = perf_counter()
        options = self._options.shared
        speech = survey(source, vad=vad_options(options), check=self._check)
        self._heard.append((channel, speech))
        config = self._model.decoder.config
        features = Features(speech.recording, config.n_mels, check=self._check)
        self._timings["audio"] += 1000 * (perf_counter() - started)
        self.duration = max(self.duration, speech.duration)
        batch = self._model.batch(options.batch_size)
        passage = Passage(self._model, speech, features, self._phrases, batch, self._check)
        share = (channel or 1) - 1

        def report(frame: int) -> None:
            if self._progress is not None and features.frames:
                done = (share + min(frame / features.frames, 1.0)) / count
                self._progress(done * self.duration, self.duration)

        timing = Timing(self._model.spelling, timeless=bool(config.durations))
        for start, end in self._ranges(features, speech):
            rules = self._options.segmenting
            segmenter = Segmenter(rules, with_words=options.word_timestamps)
            for spoken in passage.words(start, end, report):
                word = restored_word(timing.word(spoken), speech.timeline)
                for segment in segmenter.push(word, spoken):
                    yield replace(segment, channel=channel)
            for segment in segmenter.finish():
                yield replace(segment, channel=channel)
        self._again += passage.again
        report(features.frames)

    def _ranges(self, features: Features, speech: Speech) -> list[tuple[int, int]]:
        """The clips as ranges of frames of what is listened to; why, where there are none."""
        clips = self._options.shared.clip_timestamps
        ranges = clip_frames(clips, features.frames, speech.timeline)
        if not ranges:
            why = "it holds no sound of 10 ms or more"
            if features.frames:
                why = "clip_timestamps name none of it"
            elif speech.spans is not None and not speech.spans and speech.duration > 0:
                why = "no speech is heard in it; to look anyway, turn the vad_filter off"
            log.warning("%s: nothing to transcribe: %s", self._source.name, why)
        return ranges

    def _check(self, *_: int) -> None:
        """Stop here if the caller wants to."""
        if self._cancelled is not None and self._cancelled():
            raise Cancelled(f"{self._source.name}: cancelled")
