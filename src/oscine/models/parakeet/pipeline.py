"""The public model: a recording in; text with times, or the encoder's output out."""

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
from oscine.models.parakeet.features import Features
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
from oscine.text.pieces import SPACE, Pieces
from oscine.types import Update

FOREIGN = 0.02  # share of labels with letters beyond ASCII up to which a model is an English one


class Parakeet(Transcriber[ParakeetRunner]):
    """A loaded model. `chunk_config`: into what pieces long recordings are cut."""

    def __init__(
        self,
        runner: ParakeetRunner,
        tokenizer: Pieces,
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
        """Segments as they are finished; to cancel, stop iterating. Otherwise as transcribe.

        `options`: those of TranscribeOptions that Parakeet takes (options.OPTIONS).
        """
        checked = OPTIONS.of(**options)
        source = open_source(audio)
        self._check(checked)
        context_graph = self._context_graph(checked)
        return ParakeetStream(
            self,
            self._text_side(),
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
        """Words as they are said, of audio as it comes.

        `pieces`: arrays of samples [n] at 16 kHz, of any length. A word is final at most `latency`
        seconds of audio, and the pause or word that ends it, after it was said; with more of them
        it is right more often. `cancel` is asked before each piece; what was heard is then
        finished. Nobody listens for speech here: noise is what the model makes of it.
        Raises UsageError, AudioError, NonFiniteError, DeviceError.
        """
        options = OPTIONS.of(language=language, hotwords=hotwords)
        self._check(options)
        cancelled = as_should_stop(cancel)
        context_graph = self._context_graph(options)
        submit = partial(self.engine.submit, caller=Caller(Priority.LIVE))
        return stream_updates(submit, self._text_side(), pieces, latency, context_graph, cancelled)

    def encode(self, audio: SourceLike) -> NDArray[np.float32]:
        """The encoder's output for a whole recording, [T, width], a row every 80 ms.

        What it computes on the way: oscine.probe. Raises UsageError for less than 10 ms.
        """
        config = self.runner.config
        features = Features(open_source(audio), config.n_mels)
        whole = EncoderInput(features.rows(0, features.frames), config.attention_window)
        check_audio(whole, config)
        return self.engine.call(lambda runner: runner.encoded(whole))

    def _text_side(self) -> ModelInfo:
        return ModelInfo(self.tokenizer, self.runner.config, self.multilingual)

    def _context_graph(self, options: TranscribeOptions) -> ContextGraph | None:
        return encode_hotwords(
            parse_hotwords(options.hotwords), self.tokenizer, self.runner.config.vocab_size
        )

    def _check(self, options: TranscribeOptions) -> None:
        """Refuse what this model cannot do."""
        language = options.language
        if self.multilingual and language is not None:
            raise UsageError(
                f"{self.name} finds the language itself and cannot be told one; leave out "
                "language, or use a Whisper model"
            )
        if language not in (None, "en"):
            raise UsageError(
                f"{self.name} is English-only and does not know language {language}; "
                "use parakeet-tdt-0.6b-v3, or a Whisper model"
            )
        if parse_hotwords(options.hotwords) and not self.runner.supports_hotwords:
            raise UsageError(f"{self.name} has a CTC head, which cannot listen for hotwords")


def is_multilingual(tokenizer: Pieces) -> bool:
    """Whether the labels are those of more than English: many have letters beyond ASCII.

    No configuration says what languages a model knows.
    """
    foreign = sum(
        any(letter.isalpha() and not letter.isascii() for letter in name.replace(SPACE, ""))
        for name in tokenizer.names
    )
    return foreign > FOREIGN * len(tokenizer)
