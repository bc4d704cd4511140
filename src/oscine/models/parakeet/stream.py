"""Transcription of one recording: speech detection, decoding, words, segments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter

from oscine.audio.io import Source
from oscine.audio.speech import detect_speech
from oscine.models.base_model import Model
from oscine.models.cancel import Cancel
from oscine.models.parakeet.hotwords import ContextGraph
from oscine.models.parakeet.long_form import ChunkConfig, LongFormDecoder, resolve_batch_size
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.samples import recording_features
from oscine.models.parakeet.words import ModelInfo, SegmentBuilder, WordTimer
from oscine.models.transcription import (
    Progress,
    Transcription,
    vad_options,
    word_to_original_time,
)
from oscine.options.transcribe import TranscribeOptions
from oscine.types import Segment


class ParakeetStream(Transcription):
    """A transcription in progress. `language` is "en" for an English model, else "" (unknown)."""

    def __init__(
        self,
        model: Model[ParakeetRunner],
        info: ModelInfo,
        chunk_config: ChunkConfig,
        source: Source,
        options: TranscribeOptions,
        context_graph: ContextGraph | None,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        super().__init__(model, source, options, progress, cancel)
        self._submit = partial(model.engine.submit, caller=self._caller)
        self._features = partial(
            recording_features,
            runner=model.runner,
            max_single_frames=chunk_config.max_single_frames,
            submit=self._submit,
            check=self._check_cancelled,
        )
        self._batch = resolve_batch_size(options.batch_size, model.runner.backend)
        self._info, self._chunk_config = info, chunk_config
        self._options, self._context_graph = options, context_graph
        self.language = "" if info.multilingual else "en"
        self.redecoded_s = 0.0

    def _transcribe_channel(
        self, source: Source, channel: int | None, count: int
    ) -> Iterator[Segment | None]:
        """The segments of one channel, or of all channels mixed."""
        started = perf_counter()
        options = self._options
        speech = detect_speech(source, vad=vad_options(options), check=self._check_cancelled)
        info = self._info
        features = self._features(speech.recording)
        self._add_speech(speech, channel, started)
        yield None
        decoder = LongFormDecoder(
            self._submit, info, self._chunk_config, speech, features, self._context_graph,
            self._batch, self._check_cancelled,
        )  # fmt: skip
        share = (channel or 1) - 1

        def report(frame: int) -> None:
            if features.frames:
                self._report_progress((share + min(frame / features.frames, 1.0)) / count)

        timing = WordTimer(info.tokenizer, zero_width_punctuation=bool(info.config.durations))
        for start, end in self._clip_ranges(speech, features.frames, channel):
            segmenter = SegmentBuilder(options, with_words=options.word_timestamps)
            for spoken in decoder.decode_range(start, end, report):
                word = word_to_original_time(timing.word(spoken), speech.timeline)
                for segment in segmenter.push(word, spoken):
                    yield replace(segment, channel=channel)
            for segment in segmenter.finish():
                yield replace(segment, channel=channel)
        self.redecoded_s = (self.redecoded_s or 0.0) + decoder.redecoded_s
        report(features.frames)
