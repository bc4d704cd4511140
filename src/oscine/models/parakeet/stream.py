"""A recording to a transcript: what is listened to, and the times that its words had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from oscine.audio.io import Source
from oscine.audio.speech import survey
from oscine.models.cancel import Cancel
from oscine.models.parakeet.chunks import Passage
from oscine.models.parakeet.features import Features
from oscine.models.parakeet.options import ParakeetOptions
from oscine.models.parakeet.words import Segmenter, Timing
from oscine.models.transcription import (
    Progress,
    Transcription,
    restored_word,
    vad_options,
)
from oscine.types import Segment

if TYPE_CHECKING:
    from oscine.models.parakeet.pipeline import Parakeet


class Stream(Transcription):
    """Parakeet's. `language` is "en" for an English model, else "": the model does not tell."""

    def __init__(
        self,
        model: Parakeet,
        source: Source,
        options: ParakeetOptions,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        model.check(options)
        super().__init__(model, source, options.shared, progress, cancel)
        self._model, self._options = model, options
        self._phrases = model.phrases(options.phrases)
        self.language = "" if model.multilingual else "en"
        self.again = 0.0

    def _channel(self, source: Source, channel: int | None, count: int) -> Iterator[Segment]:
        """One channel, or all of them mixed."""
        started = perf_counter()
        options = self._options.shared
        speech = survey(source, vad=vad_options(options), check=self._check)
        config = self._model.decoder.config
        features = Features(speech.recording, config.n_mels, check=self._check)
        self._listened(speech, channel, started)
        batch = self._model.batch(options.batch_size)
        passage = Passage(self._model, speech, features, self._phrases, batch, self._check)
        share = (channel or 1) - 1

        def report(frame: int) -> None:
            if features.frames:
                self._report((share + min(frame / features.frames, 1.0)) / count)

        timing = Timing(self._model.spelling, timeless=bool(config.durations))
        for start, end in self._ranges(speech, features.frames, channel):
            rules = self._options.segmenting
            segmenter = Segmenter(rules, with_words=options.word_timestamps)
            for spoken in passage.words(start, end, report):
                word = restored_word(timing.word(spoken), speech.timeline)
                for segment in segmenter.push(word, spoken):
                    yield replace(segment, channel=channel)
            for segment in segmenter.finish():
                yield replace(segment, channel=channel)
        self.again = (self.again or 0.0) + passage.again
        report(features.frames)
