"""Parakeet on a device as the engine drives it: encoder, memory and batch executor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.audio.sample_window import LogMelStats
from oscine.engine import sequence
from oscine.engine.sequence import EncoderInput
from oscine.errors import UsageError
from oscine.models.parakeet.encoder import EncoderRunner, HeadProjection
from oscine.models.parakeet.executors import CtcExecutor, TransducerExecutor
from oscine.models.parakeet.memory import (
    Memory,
    Size,
    bytes_of,
    ctc_layout,
    transducer_layout,
)
from oscine.models.parakeet.model import ctc_argmax, project_encoder
from oscine.models.parakeet.sequences import Chunk, encoder_frames
from oscine.models.parakeet.weights import ParakeetWeights

STATS_FRAMES = 2560  # analysed at once; 20 to 24 s of a recording arrive at a time


class ParakeetRunner:
    """Runs a Parakeet for the engine; weights are uploaded once, plans are recorded once per shape.

    head: "ctc" to decode with the CTC head of a model that has a transducer too. Raises DeviceError
    if the backend cannot hold or compute a model of these sizes, UsageError for a missing head.
    """

    def __init__(
        self, weights: ParakeetWeights, backend: ops.Backend, head: str | None = None
    ) -> None:
        self.config, self.backend = weights.config, backend
        self.device = backend.name
        self.timings: dict[str, float] = {}
        # On a CPU one input keeps all cores busy; a GPU is given as many as its batches have.
        self.encode_batch = 1 if backend.encode_batch == 1 else backend.preferred_batch
        self.decoding: CtcExecutor | TransducerExecutor
        if weights.transducer is not None and head != "ctc":
            w = ops.upload(backend, weights.transducer)
            self.layout = partial(transducer_layout, self.config)
            self.memory = Memory(backend, self.layout)
            self.decoding = TransducerExecutor(backend, self.config, w, self.memory)
            wanted = HeadProjection(self.config.joint_dim, lambda x: project_encoder(backend, w, x))
        elif weights.ctc is not None:
            linear = ops.upload(backend, weights.ctc)
            self.layout = partial(ctc_layout, self.config)
            self.memory = Memory(backend, self.layout)
            self.decoding = CtcExecutor(backend, self.config, self.memory)
            wanted = HeadProjection(2, lambda x: ctc_argmax(backend, linear, x))
        else:
            raise UsageError(f"{weights.path.name} has no {head or 'transducer or CTC'} head")
        self.encoder = EncoderRunner(
            backend, self.config, ops.upload(backend, weights.encoder), wanted
        )
        self.grow(Size(1, 1, backend.bucket_frames(1)))
        if self.supports_hotwords:
            self.decoding.step_plan(1, ())  # while loading can still choose another backend

    @property
    def supports_hotwords(self) -> bool:
        """Whether it can boost phrases: a CTC head cannot."""
        return isinstance(self.decoding, TransducerExecutor)

    def make_batch_invariant(self) -> None:
        """The table of distances is of one size, whatever chunks there were."""
        self.encoder.batch_invariant = True

    def check(self, sequence: sequence.Sequence[Any]) -> None:
        assert isinstance(sequence, Chunk)
        sequence.check(self.config, self.supports_hotwords)

    def executor(self, key: None) -> CtcExecutor | TransducerExecutor:
        """The only one there is."""
        return self.decoding

    # -- memory -------------------------------------------------------------------------------

    def reserve(self, slots: int, encoder_slots: int, sequence: sequence.Sequence[Any]) -> None:
        assert isinstance(sequence, Chunk)
        frames = encoder_frames(sequence.audio, self.config.subsampling_factor)
        now, padded = self.memory.size, self.backend.bucket_frames(frames)
        self.grow(
            Size(
                max(slots, now.slots),
                max(encoder_slots, now.encoder_slots),
                max(padded, now.frames),
            )
        )

    def grow(self, size: Size) -> None:
        """Memory of that size, which keeps what it holds. Raises DeviceMemoryError."""
        before = self.memory.size
        if size == before:
            return
        self.decoding.ensure_rows(size.slots)
        self.memory.grow(size)
        self.decoding.rebase_frame_indices(before.frames)

    def release(self, slots: int, encoder_slots: int, *, plans: bool = False) -> None:
        frames = self.memory.size.frames
        self.encoder.clear_plans()
        self.memory.clear()
        self.grow(Size(slots, encoder_slots, frames))

    def bytes_held(self, size: Size) -> int:
        """What sequences of a size take on the device, beside weights and activations."""
        return bytes_of(self.layout(size))

    # -- encoding -----------------------------------------------------------------------------

    def encode(self, inputs: Sequence[EncoderInput], encoder_slots: Sequence[int]) -> None:
        for group in self.encoder.batches(inputs):
            made = self.encoder.run([inputs[number] for number in group])
            made.head.run()
            pairs = [(line, encoder_slots[number]) for line, number in enumerate(group)]
            ops.copy_starts(self.backend, made.out, self.memory["pool"], pairs)

    def log_mel_stats(self, samples: NDArray[np.float32], frames: int) -> LogMelStats:
        """The statistics of the log-mel power of consecutive frames of samples [n]."""
        return self.encoder.feature_plan(STATS_FRAMES).statistics(samples, frames)

    def encoded(self, audio: EncoderInput) -> NDArray[np.float32]:
        """The encoder's output for one input, [T, d]."""
        made = self.encoder.run([audio])
        frames = encoder_frames(audio, self.config.subsampling_factor)
        found: NDArray[np.float32] = self.backend.read(made.encoded)[:frames]
        return found

    def trace(self) -> dict[str, tuple[int, float]]:
        return self.backend.trace()
