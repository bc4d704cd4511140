"""The public Parakeet model: transcribes recordings and live audio, or returns encoder output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.audio.io import SourceLike, open_source
from oscine.engine.sequence import Caller, EncoderInput, Priority
from oscine.errors import UsageError
from oscine.models.cancel import Cancel, as_should_stop
from oscine.models.parakeet.features import NemoFeatures
from oscine.models.parakeet.hotwords import ContextGraph, encode_hotwords
from oscine.models.parakeet.long_form import ChunkConfig
from oscine.models.parakeet.options import OPTIONS, parse_hotwords
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.sequences import check_audio
from oscine.models.parakeet.stream import ParakeetStream
from oscine.models.parakeet.streaming import DEFAULT_LATENCY_S, stream_updates
from oscine.models.parakeet.words import ModelInfo
from oscine.models.transcription import Progress, Transcriber
from oscine.options.transcribe import TranscribeOptions
from oscine.text.sentencepiece import SPACE, SentencePieceTokenizer
from oscine.types import Update

MAX_NON_ASCII_SHARE = 0.02  # of tokens with non-ASCII letters in an English vocabulary


class Parakeet(Transcriber[ParakeetRunner]):
    """A loaded Parakeet model. `chunk_config` sets how long recordings are split."""

    def __init__(
        self,
        runner: ParakeetRunner,
        tokenizer: SentencePieceTokenizer,
        name: str,
        rebuild: Callable[[], ParakeetRunner] | None = None,
        chunk_config: ChunkConfig | None = None,
    ) -> None:
        super().__init__(runner, name, rebuild)
        self.tokenizer = tokenizer
        self._chunk_config = chunk_config or ChunkConfig()
        self.multilingual = is_multilingual(tokenizer)

    def stream(
        self,
        audio: SourceLike,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> ParakeetStream:
        """Transcribe a recording and yield segments as they are finished.

        To cancel, stop iterating, or use `cancel`. `options`: those of TranscribeOptions that
        Parakeet supports (options.OPTIONS). Raises as `transcribe` does.
        """
        checked = OPTIONS.of(**options)
        source = open_source(audio)
        self._check(checked)
        context_graph = self._context_graph(checked)
        return ParakeetStream(
            self,
            self._info(),
            self._chunk_config,
            source,
            checked,
            context_graph,
            progress,
            cancel,
        )

    def listen(
        self,
        pieces: Iterable[Any],
        *,
        latency: float = DEFAULT_LATENCY_S,
        language: str | None = None,
        hotwords: str | None = None,
        cancel: Cancel | None = None,
    ) -> Iterator[Update]:
        """Transcribe live audio and yield updates with final and partial words.

        `pieces`: arrays of samples [n] at 16 kHz, of any length. A word becomes final at most
        `latency` seconds of audio after it was said, plus the pause or word that ends it; a higher
        latency is more accurate. `cancel` is checked before each piece; the audio received until
        then is still decoded. There is no voice activity detection, so noise may be transcribed as
        words. Raises UsageError, AudioError, NonFiniteError, DeviceError.
        """
        options = OPTIONS.of(language=language, hotwords=hotwords)
        self._check(options)
        cancelled = as_should_stop(cancel)
        context_graph = self._context_graph(options)
        submit = partial(self.engine.submit, caller=Caller(Priority.LIVE))
        return stream_updates(submit, self._info(), pieces, latency, context_graph, cancelled)

    def encode(self, audio: SourceLike) -> NDArray[np.float32]:
        """The encoder's output for a whole recording, [T, d_model], one row per 80 ms.

        Intermediate stages can be read with oscine.probe. Raises UsageError for less than 10 ms of
        audio.
        """
        config = self.runner.config
        features = NemoFeatures(open_source(audio), config.n_mels)
        whole = EncoderInput(features.rows(0, features.frames), config.attention_window)
        check_audio(whole, config)
        return self.engine.call(lambda runner: runner.encoded(whole))

    def _info(self) -> ModelInfo:
        return ModelInfo(self.tokenizer, self.runner.config, self.multilingual)

    def _context_graph(self, options: TranscribeOptions) -> ContextGraph | None:
        return encode_hotwords(
            parse_hotwords(options.hotwords), self.tokenizer, self.runner.config.vocab_size
        )

    def _check(self, options: TranscribeOptions) -> None:
        """Raise UsageError for options that this model does not support."""
        language = options.language
        if self.multilingual and language is not None:
            raise UsageError(
                f"{self.name} detects the language itself; leave out "
                "language, or use a Whisper model"
            )
        if language not in (None, "en"):
            raise UsageError(
                f"{self.name} is English-only and does not support language {language}; "
                "use parakeet-tdt-0.6b-v3, or a Whisper model"
            )
        if parse_hotwords(options.hotwords) and not self.runner.supports_hotwords:
            raise UsageError(f"{self.name} has a CTC head, which does not support hotwords")


def is_multilingual(tokenizer: SentencePieceTokenizer) -> bool:
    """Whether a vocabulary covers more than English: many tokens have non-ASCII letters.

    Configurations do not list the languages of a model.
    """
    non_ascii = sum(
        any(letter.isalpha() and not letter.isascii() for letter in name.replace(SPACE, ""))
        for name in tokenizer.pieces
    )
    return non_ascii > MAX_NON_ASCII_SHARE * len(tokenizer)
