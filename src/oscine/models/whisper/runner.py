"""Whisper as the engine drives it: windows encoded into places of its memory.

What rows of text do is in executors.py.
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

MOST_PLANS = 8

EXECUTORS = {"decode": DecodingExecutor, "language": LanguageExecutor, "align": AlignmentExecutor}


class Encoding:
    """A recorded pass of the encoder over `count` windows, and what goes in and out."""

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
        """Encode windows [2S, n_mels]; a pass of more windows also computes those of one before."""
        for number, mel in enumerate(mels):
            self.backend.write(self.mel, mel, number * len(mel))
        self.plan.run()

    def release(self) -> None:
        """Give back what only this pass uses."""
        self.backend.release(self.mel, self.audio)


class WhisperRunner:
    """Weights uploaded once, plans recorded once, memory for as many windows and rows as are used.

    Where the weights are float16, so are the keys and values of windows, on backends that gain by
    it. Raises DeviceError if the backend cannot hold or compute a model of these sizes.
    """

    def __init__(
        self, weights: WhisperWeights, backend: ops.Backend, *, exact: bool = False
    ) -> None:
        """`exact`: keys and values of windows are float32 in any case, as goldens have them."""
        self.config, self.backend = weights.config, backend
        self.device = backend.name
        self.timings: dict[str, float] = {}
        self.encode_batch = backend.encode_batch
        self.encoder = ops.upload(backend, weights.encoder)
        self.encodings: PlanCache[Encoding] = PlanCache(MOST_PLANS, Encoding.release)
        self.executors: dict[Any, Any] = {}
        self.remember: ops.Plan | None = None
        self.encoding(1)  # now, while loading can still choose another backend
        if weights.decoder is None:
            return
        self.decoder = ops.upload(backend, weights.decoder)
        half = weights.decoder.embedding.dtype == np.float16 and backend.f16_cross_kv
        self.memory = DecoderMemory(
            self.config, backend, np.float16 if half and not exact else np.float32
        )
        self.heard = backend.zeros((self.config.n_audio_ctx, self.config.n_audio_state))
        self.reserve(1, 1)
        self.executor(("decode", 1, 0)).prepare()

    def executor(self, key: Any) -> Any:
        if key not in self.executors:
            kind, *shape = key
            self.executors[key] = EXECUTORS[kind](self.memory, self.decoder, *shape)
        return self.executors[key]

    def batch_that_fits(self, width: int) -> int:
        """Windows to decode side by side, of `width` rows each."""
        return self.memory.batch_that_fits(width)

    def trace(self) -> dict[str, tuple[int, float]]:
        """What the backend measured of itself: ops.Backend.trace."""
        return self.backend.trace()

    # -- memory -------------------------------------------------------------------------------

    def reserve(self, slots: int, places: int, sequence: AnySequence[Any] | None = None) -> None:
        if not self.memory.fits(slots, places):
            self.memory.reserve(slots, places)
            self.remember = None
            for executor in self.executors.values():
                executor.forget_plans()

    def release(self, slots: int, places: int) -> None:
        if not self.memory.fits(slots + 1, places) and not self.memory.fits(slots, places + 1):
            return
        self.executors.clear()
        self.encodings.clear()
        self.remember = None
        self.memory.clear()
        self.memory.reserve(slots, places)

    # -- the encoder --------------------------------------------------------------------------

    def encode(self, inputs: Sequence[EncoderInput], places: Sequence[int]) -> None:
        config, count = self.config, self.backend.bucket_rows(len(inputs))
        shape = config.n_audio_ctx, config.n_audio_state
        encoding = self.encoding(count)
        encoding.run([given.features for given in inputs])
        audio = self.backend.view(encoding.audio, (count, *shape))
        heard = self.backend.view(self.heard, (1, *shape))
        for number, place in enumerate(places):
            self.backend.copy(audio, heard, [(number, 0)])
            self.remembering().run()
            for staged, memory in zip(self.memory.staged, self.memory.windows, strict=False):
                self.backend.copy(staged, memory, [(0, place)])

    def remembering(self) -> ops.Plan:
        """From the encoder's output of one window to every layer's keys and values of it."""
        if self.remember is None:
            targets = self.memory.staged or self.memory.windows
            slots = [self.backend.view(slot, slot.shape[1:]) for slot in targets]
            self.remember = self.backend.record(
                lambda: model.remember(self.backend, self.decoder, self.heard, slots),
                name="remember",
            )
        return self.remember

    def encoding(self, count: int) -> Encoding:
        """The pass over that many windows."""
        return self.encodings.get(count, lambda: Encoding(self, count))

    def encode_alone(self, mel: NDArray[np.float32]) -> NDArray[np.float32]:
        """The encoder's output: mel [2S, n_mels] -> [S, d]. Raises UsageError for another shape."""
        self.check_mel(mel)
        encoding = self.encoding(1)
        encoding.run([mel])
        found: NDArray[np.float32] = self.backend.read(encoding.audio)
        return found

    # -- checks -------------------------------------------------------------------------------

    def check(self, sequence: AnySequence[Any]) -> None:
        """Refuse what kernels would read beside their arrays. Raises UsageError."""
        if sequence.audio is not None:
            self.check_mel(sequence.audio.features)
        if isinstance(sequence, DecodingSequence):
            self.check_request(sequence.request)
        elif isinstance(sequence, LanguageSequence):
            self.check_ids((sequence.sot, *sequence.ids))
        elif isinstance(sequence, AlignmentSequence):
            self.check_align(sequence)

    def check_mel(self, mel: NDArray[np.float32]) -> None:
        """A window of another size would silently be read as something else."""
        expected = (self.config.window_frames, self.config.n_mels)
        if mel.shape != expected:
            raise UsageError(f"mel window must have shape {expected}, not {mel.shape}")

    def check_request(self, request: DecodingRequest) -> None:
        """Refuse what the caches cannot hold."""
        room = self.config.n_text_ctx - len(request.prompt)
        if not request.prompt or room < 1:
            raise UsageError(
                f"a prompt must have 1 to {self.config.n_text_ctx - 1} tokens, "
                f"not {len(request.prompt)}"
            )
        if not 1 <= request.max_new_tokens <= room:
            raise UsageError(
                f"{request.max_new_tokens} new tokens after a prompt of {len(request.prompt)} "
                f"do not fit; the model has room for {room}"
            )
        named = (*request.prompt, request.eot, request.no_speech)
        self.check_ids((*named, *request.suppress_tokens, *request.begin_suppress_tokens))
        if not 0 <= request.sot_index < len(request.prompt):
            raise UsageError(
                f"row {request.sot_index} of a prompt of {len(request.prompt)} is none"
            )

    def check_align(self, sequence: AlignmentSequence) -> None:
        """Refuse a prompt that the caches cannot hold."""
        if not 1 <= len(sequence.prompt) <= self.config.n_text_ctx:
            raise UsageError(
                f"{len(sequence.prompt)} tokens cannot be aligned; the model has room for "
                f"{self.config.n_text_ctx}"
            )
        self.check_ids((*sequence.prompt, sequence.eot))

    def check_ids(self, ids: Sequence[int]) -> None:
        """Refuse what is no token of this model."""
        vocabulary = self.config.n_vocab
        if min(ids) < 0 or max(ids) >= vocabulary:
            wrong = next(id for id in ids if not 0 <= id < vocabulary)
            raise UsageError(f"{wrong} is no token; this model has 0 to {vocabulary - 1}")
