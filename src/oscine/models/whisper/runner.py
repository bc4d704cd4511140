"""Runs Whisper for the engine: memory, encoder passes, and checks of sequences.

The decoder's passes are in executors.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.audio.sample_window import LogMelStats
from oscine.engine.sequence import EncoderInput
from oscine.engine.sequence import Sequence as AnySequence
from oscine.errors import UsageError
from oscine.models.whisper.encoder import EncoderRunner, Window
from oscine.models.whisper.executors import AlignmentExecutor, DecodingExecutor, LanguageExecutor
from oscine.models.whisper.memory import DecoderMemory
from oscine.models.whisper.sequences import (
    AlignmentSequence,
    DecodingRequest,
    DecodingSequence,
    LanguageSequence,
)
from oscine.models.whisper.weights import WhisperWeights

EXECUTORS = {"decode": DecodingExecutor, "language": LanguageExecutor, "align": AlignmentExecutor}


class WhisperRunner:
    """A Whisper network on a device: uploads the weights, records plans, and grows its memory.

    Cross keys and values are float32 if the weights are, else float16 where that is faster. Raises
    DeviceError if the backend cannot store or compute a model of these sizes.
    """

    def __init__(
        self, weights: WhisperWeights, backend: ops.Backend, *, f32_cross_kv: bool = False
    ) -> None:
        """`f32_cross_kv`: use float32 for cross keys and values in any case, as goldens do."""
        self.config, self.backend = weights.config, backend
        self.device = backend.name
        self.timings: dict[str, float] = {}
        self.executors: dict[Any, Any] = {}
        encoder = ops.upload(backend, weights.encoder)
        if weights.decoder is None:
            self.encoder = EncoderRunner(backend, self.config, encoder)
            return
        self.decoder = ops.upload(backend, weights.decoder)
        half = weights.decoder.token_embedding.dtype != np.float32 and backend.f16_cross_kv
        self.memory = DecoderMemory(
            self.config, backend, np.float16 if half and not f32_cross_kv else np.float32
        )
        self.encoder = EncoderRunner(
            backend, self.config, encoder, self.decoder.blocks, self.memory.cross_kv_dtype
        )
        self.reserve(1, 1)
        self.executor(("decode", 1, 0)).prepare()

    def executor(self, key: Any) -> Any:
        if key not in self.executors:
            kind, *shape = key
            self.executors[key] = EXECUTORS[kind](self.memory, self.decoder, *shape)
        return self.executors[key]

    def max_batch_size(self, group_size: int) -> int:
        """The number of windows of `group_size` rows each that a batch can have."""
        return self.memory.max_batch_size(group_size)

    def trace(self) -> dict[str, tuple[int, float]]:
        """Passes and milliseconds by stage, measured by the backend."""
        return self.backend.trace()

    # -- memory -------------------------------------------------------------------------------

    def reserve(
        self, slots: int, encoder_slots: int, sequence: AnySequence[Any] | None = None
    ) -> None:
        if not self.memory.fits(slots, encoder_slots):
            self.memory.reserve(slots, encoder_slots)
            for executor in self.executors.values():
                executor.clear_plans()

    def release(self, slots: int, encoder_slots: int, *, plans: bool = False) -> None:
        memory = self.memory
        larger = memory.fits(slots + 1, encoder_slots) or memory.fits(slots, encoder_slots + 1)
        if not larger and not plans:
            return
        self.executors.clear()
        self.encoder.release()
        self.memory.clear()
        self.memory.reserve(slots, encoder_slots)

    # -- the encoder --------------------------------------------------------------------------

    @property
    def encode_batch(self) -> int:
        """The number of windows that are encoded in one pass."""
        return self.encoder.max_windows

    def encode(self, inputs: Sequence[EncoderInput], encoder_slots: Sequence[int]) -> None:
        windows = [audio.features for audio in inputs]
        self.encoder.encode(windows, encoder_slots, self.memory.cross_kv)

    def log_mel_stats(self, samples: NDArray[np.float32], frames: int) -> LogMelStats:
        """The statistics of the log-mel power of consecutive frames of samples [n]."""
        return self.encoder.feature_plan().statistics(samples, frames)

    def encode_one(self, mel: Window) -> NDArray[np.float32]:
        """The encoder's output [S, d] for a window [2S, n_mels]; UsageError for other shapes."""
        self.check_mel(mel)
        return self.encoder.encode_one(mel)

    # -- checks -------------------------------------------------------------------------------

    def check(self, sequence: AnySequence[Any]) -> None:
        """Raise UsageError for a sequence with which kernels would read out of bounds."""
        if sequence.audio is not None:
            self.check_mel(sequence.audio.features)
        if isinstance(sequence, DecodingSequence):
            self.check_request(sequence.request)
        elif isinstance(sequence, LanguageSequence):
            self.check_ids((sequence.sot, *sequence.ids))
        elif isinstance(sequence, AlignmentSequence):
            self.check_align(sequence)

    def check_mel(self, mel: Window) -> None:
        """Raise UsageError for a window of another shape."""
        expected = (self.config.window_frames, self.config.n_mels)
        if mel.shape != expected:
            raise UsageError(f"mel window must have shape {expected}, not {mel.shape}")

    def check_request(self, request: DecodingRequest) -> None:
        """Raise UsageError for a request that does not fit into the caches."""
        capacity = self.config.n_text_ctx - len(request.prompt)
        if not request.prompt or capacity < 1:
            raise UsageError(
                f"a prompt must have 1 to {self.config.n_text_ctx - 1} tokens, "
                f"not {len(request.prompt)}"
            )
        if not 1 <= request.max_new_tokens <= capacity:
            raise UsageError(
                f"{request.max_new_tokens} new tokens after a prompt of {len(request.prompt)} "
                f"do not fit; the model has room for {capacity}"
            )
        ids = (*request.prompt, request.eot, request.no_speech)
        self.check_ids((*ids, *request.suppress_tokens, *request.begin_suppress_tokens))
        if not 0 <= request.sot_index < len(request.prompt):
            raise UsageError(
                f"sot_index must be below {len(request.prompt)}, not {request.sot_index}"
            )

    def check_align(self, sequence: AlignmentSequence) -> None:
        """Raise UsageError for a prompt that does not fit into the caches."""
        if not 1 <= len(sequence.prompt) <= self.config.n_text_ctx:
            raise UsageError(
                f"{len(sequence.prompt)} tokens cannot be aligned; the model has room for "
                f"{self.config.n_text_ctx}"
            )
        self.check_ids((*sequence.prompt, sequence.eot))

    def check_ids(self, ids: Sequence[int]) -> None:
        """Raise UsageError for ids outside the vocabulary."""
        vocabulary = self.config.n_vocab
        if min(ids) < 0 or max(ids) >= vocabulary:
            outside = next(id for id in ids if not 0 <= id < vocabulary)
            raise UsageError(f"{outside} is not a token id; this model has 0 to {vocabulary - 1}")
