"""Runs Whisper for the engine: memory, encoder passes, and checks of sequences.

The decoder's passes are in executors.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.engine.plan_cache import PlanCache
from oscine.engine.sequence import EncoderInput
from oscine.engine.sequence import Sequence as AnySequence
from oscine.errors import DeviceMemoryError, UsageError
from oscine.models.whisper import model
from oscine.models.whisper.executors import AlignmentExecutor, DecodingExecutor, LanguageExecutor
from oscine.models.whisper.memory import DecoderMemory
from oscine.models.whisper.sequences import (
    AlignmentSequence,
    DecodingRequest,
    DecodingSequence,
    LanguageSequence,
)
from oscine.models.whisper.weights import WhisperWeights

MAX_PLANS = 8

EXECUTORS = {"decode": DecodingExecutor, "language": LanguageExecutor, "align": AlignmentExecutor}


class EncoderPlan:
    """A recorded pass of the encoder over `count` windows, with its input and output."""

    def __init__(self, runner: WhisperRunner, count: int) -> None:
        config, backend = runner.config, runner.backend
        self.backend = backend
        self.mel = backend.zeros((count * config.window_frames, config.n_mels))
        self.audio = backend.zeros((count * config.n_audio_ctx, config.n_audio_state))

        def trace() -> None:
            audio = model.encode(backend, runner.encoder, config, self.mel, count)
            backend.store(audio, self.audio)

        try:
            self.plan = backend.record(trace, name="encode")
        except DeviceMemoryError:
            self.release()
            raise

    def run(self, mels: Sequence[NDArray[np.float32]]) -> None:
        """Encode windows [2S, n_mels]; the rest of a larger pass repeats earlier windows."""
        for number, mel in enumerate(mels):
            self.backend.write(self.mel, mel, number * len(mel))
        self.plan.run()

    def release(self) -> None:
        """Free the input and output."""
        self.backend.release(self.mel, self.audio)


class WhisperRunner:
    """A Whisper network on a device: uploads the weights, records plans, and grows its memory.

    Cross keys and values are float16 if the weights are, on backends where that is faster. Raises
    DeviceError if the backend cannot store or compute a model of these sizes.
    """

    def __init__(
        self, weights: WhisperWeights, backend: ops.Backend, *, f32_cross_kv: bool = False
    ) -> None:
        """`f32_cross_kv`: use float32 for cross keys and values in any case, as goldens do."""
        self.config, self.backend = weights.config, backend
        self.device = backend.name
        self.timings: dict[str, float] = {}
        self.encode_batch = backend.encode_batch
        self.encoder = ops.upload(backend, weights.encoder)
        self.encoder_plans: PlanCache[EncoderPlan] = PlanCache(MAX_PLANS, EncoderPlan.release)
        self.executors: dict[Any, Any] = {}
        self._cross_kv_plan: ops.Plan | None = None
        self.encoder_plan(1)  # now, while loading can still choose another backend
        if weights.decoder is None:
            return
        self.decoder = ops.upload(backend, weights.decoder)
        half = weights.decoder.token_embedding.dtype == np.float16 and backend.f16_cross_kv
        self.memory = DecoderMemory(
            self.config, backend, np.float16 if half and not f32_cross_kv else np.float32
        )
        self.encoder_output = backend.zeros((self.config.n_audio_ctx, self.config.n_audio_state))
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
            self._cross_kv_plan = None
            for executor in self.executors.values():
                executor.clear_plans()

    def release(self, slots: int, encoder_slots: int, *, plans: bool = False) -> None:
        memory = self.memory
        larger = memory.fits(slots + 1, encoder_slots) or memory.fits(slots, encoder_slots + 1)
        if not larger and not plans:
            return
        self.executors.clear()
        self.encoder_plans.clear()
        self._cross_kv_plan = None
        self.memory.clear()
        self.memory.reserve(slots, encoder_slots)

    # -- the encoder --------------------------------------------------------------------------

    def encode(self, inputs: Sequence[EncoderInput], encoder_slots: Sequence[int]) -> None:
        config, count = self.config, self.backend.bucket_rows(len(inputs))
        shape = config.n_audio_ctx, config.n_audio_state
        plan = self.encoder_plan(count)
        plan.run([audio.features for audio in inputs])
        audio = self.backend.view(plan.audio, (count, *shape))
        encoder_output = self.backend.view(self.encoder_output, (1, *shape))
        for number, encoder_slot in enumerate(encoder_slots):
            self.backend.copy(audio, encoder_output, [(number, 0)])
            self.cross_kv_plan().run()
            for staged, memory in zip(
                self.memory.staged_cross_kv, self.memory.cross_kv, strict=False
            ):
                self.backend.copy(staged, memory, [(0, encoder_slot)])

    def cross_kv_plan(self) -> ops.Plan:
        """The plan from the encoder's output of one window to its cross keys and values."""
        if self._cross_kv_plan is None:
            targets = self.memory.staged_cross_kv or self.memory.cross_kv
            slots = [self.backend.view(slot, slot.shape[1:]) for slot in targets]
            self._cross_kv_plan = self.backend.record(
                lambda: model.compute_cross_kv(
                    self.backend, self.decoder, self.encoder_output, slots
                ),
                name="cross_kv",
            )
        return self._cross_kv_plan

    def encoder_plan(self, count: int) -> EncoderPlan:
        """The plan for that many windows, recorded on first use."""
        return self.encoder_plans.get(count, lambda: EncoderPlan(self, count))

    def encode_one(self, mel: NDArray[np.float32]) -> NDArray[np.float32]:
        """The encoder's output [S, d] for a mel [2S, n_mels]; UsageError for other shapes."""
        self.check_mel(mel)
        plan = self.encoder_plan(1)
        plan.run([mel])
        output: NDArray[np.float32] = self.backend.read(plan.audio)
        return output

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

    def check_mel(self, mel: NDArray[np.float32]) -> None:
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
