"""A recording to a transcript: what is listened to, and the times that its words had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter

from oscine.audio.io import Source
from oscine.audio.speech import survey
from oscine.models.base_model import Model
from oscine.models.cancel import Cancel
from oscine.models.parakeet.boost import Phrases
from oscine.models.parakeet.chunks import Lengths, Passage, batch_size
from oscine.models.parakeet.features import Features
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.words import Segmenter, TextSide, Timing
from oscine.models.transcription import (
    Progress,
    Transcription,
    vad_options,
    word_to_original_time,
)
from oscine.options.transcribe import TranscribeOptions
from oscine.types import Segment


class Stream(Transcription):
    """Parakeet's. `language` is "en" for an English model, else "": the model does not tell."""

    def __init__(
        self,
        model: Model[ParakeetRunner],
        text: TextSide,
        lengths: Lengths,
        source: Source,
        options: TranscribeOptions,
        phrases: Phrases | None,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        super().__init__(model, source, options, progress, cancel)
        self._submit = partial(model.engine.submit, caller=self._caller)
        self._batch = batch_size(options.batch_size, model.runner.backend)
        self._text, self._lengths = text, lengths
        self._options, self._phrases = options, phrases
        self.language = "" if text.multilingual else "en"
        self.redecoded_s = 0.0

    def _transcribe_channel(
        self, source: Source, channel: int | None, count: int
    ) -> Iterator[Segment | None]:
        """One channel, or all of them mixed."""
        started = perf_counter()
        options = self._options
        speech = survey(source, vad=vad_options(options), check=self._check_cancelled)
        text = self._text
        features = Features(speech.recording, text.config.n_mels, check=self._check_cancelled)
        self._add_speech(speech, channel, started)
        yield None
        passage = Passage(
            self._submit, text, self._lengths, speech, features, self._phrases, self._batch,
            self._check_cancelled,
        )  # fmt: skip
        share = (channel or 1) - 1

        def report(frame: int) -> None:
            if features.frames:
                self._report_progress((share + min(frame / features.frames, 1.0)) / count)

        timing = Timing(text.tokenizer, timeless=bool(text.config.durations))
        for start, end in self._clip_ranges(speech, features.frames, channel):
            segmenter = Segmenter(options, with_words=options.word_timestamps)
            for spoken in passage.words(start, end, report):
                word = word_to_original_time(timing.word(spoken), speech.timeline)
                for segment in segmenter.push(word, spoken):
                    yield replace(segment, channel=channel)
            for segment in segmenter.finish():
                yield replace(segment, channel=channel)
        self.redecoded_s = (self.redecoded_s or 0.0) + passage.again
        report(features.frames)
