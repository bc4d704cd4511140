"""Runs the encoder on a device: batches of inputs in a few shapes for which plans are recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oscine.audio.sample_window import SampleWindow
from oscine.engine.passes import pass_size
from oscine.engine.plan_cache import PlanCache
from oscine.engine.sequence import EncoderInput
from oscine.errors import DeviceMemoryError
from oscine.models.front_end import FeaturePlan
from oscine.models.parakeet import model
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.front_end import front_end
from oscine.models.parakeet.sequences import ENCODED, AttentionWindow, EncodingMode, encoder_frames
from oscine.models.parakeet.weights import EncoderWeights
from oscine.ops import Backend, Plan, Tensor, upload

MAX_WINDOWS = 2  # attention windows per shape whose plans are kept
MAX_SHAPES = 12  # whose plans are kept; each has buffers of its own
MAX_FEATURE_PLANS = 4  # lengths of windows of samples whose plans are kept
MIN_FIXED_DISTANCE = 512  # encoder frames, 41 s
MAX_BATCH_FRAMES = 6144  # encoder frames in one pass; larger batches take several passes


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """A batch shape for which plans are recorded; `frames` is the maximum per input."""

    inputs: int
    frames: int

    @property
    def rows(self) -> int:
        """Encoder frames of all inputs."""
        return self.inputs * self.frames


@dataclass(frozen=True, slots=True)
class HeadProjection:
    """The part of the head that is computed once per encoder frame: [R, d] -> [R, width]."""

    width: int
    trace: Callable[[Tensor], Tensor]


class EncoderRunner:
    """Encodes batches of inputs, and computes the head's projection of their frames.

    Raises DeviceError if the backend cannot hold or compute a model of these sizes.
    """

    def __init__(
        self, backend: Backend, config: ParakeetConfig, w: EncoderWeights, head: HeadProjection
    ) -> None:
        self.backend, self.config, self.w, self.head = backend, config, w, head
        #: Whether the rounding of an input's rel_positions may not depend on earlier inputs.
        self.batch_invariant = False
        self.rel_positions: list[Tensor] = []  # per layer, [2M - 1, d]
        self.max_distance = 0  # M
        self.plans: PlanCache[EncoderPlan] = PlanCache(MAX_SHAPES, EncoderPlan.release)
        self.feature_plans: PlanCache[FeaturePlan] = PlanCache(
            MAX_FEATURE_PLANS, FeaturePlan.release
        )
        # While loading, so that another backend can still be chosen.
        self.prepare(self.shape([1]), config.attention_window)

    def batches(self, inputs: Sequence[EncoderInput]) -> Iterator[list[int]]:
        """Indices of the inputs of each pass: similar lengths, up to MAX_BATCH_FRAMES in all.

        The longest come first, so that a pass of its own for what is left is a short one.
        """
        lengths = [encoder_frames(audio, self.config.subsampling_factor) for audio in inputs]
        left = sorted(range(len(inputs)), key=lambda number: -lengths[number])

        def fits(count: int) -> bool:
            return self.shape([lengths[number] for number in left[:count]]).rows <= MAX_BATCH_FRAMES

        while left:
            largest = 1
            while largest < len(left) and fits(largest + 1):
                largest += 1
            size = pass_size(largest, largest, self.backend.bucket_rows)
            yield left[:size]
            left = left[size:]

    def run(self, inputs: Sequence[EncoderInput]) -> EncoderPlan:
        """Encode inputs with the same batch_key in one pass; valid until the next pass."""
        shape = self.shape(
            [encoder_frames(audio, self.config.subsampling_factor) for audio in inputs]
        )
        features, mode = [audio.features for audio in inputs], inputs[0].batch_key
        made = self.prepare_or_evict(shape, mode)
        if mode == ENCODED:
            made.load_encoded(features)
        else:
            made.encode(features, mode)
        return made

    def shape(self, lengths: Sequence[int]) -> EncoderShape:
        """The shape for inputs of these lengths, padded where recording a plan is expensive."""
        return EncoderShape(
            self.backend.bucket_rows(len(lengths)), self.backend.bucket_frames(max(lengths))
        )

    def prepare_or_evict(self, shape: EncoderShape, mode: EncodingMode) -> EncoderPlan:
        """Like `prepare`, but frees the plans of all other shapes if memory runs out."""
        try:
            return self.prepare(shape, mode)
        except DeviceMemoryError:
            if not len(self.plans):
                raise
        self.clear_plans()
        return self.prepare(shape, mode)

    def prepare(self, shape: EncoderShape, mode: EncodingMode) -> EncoderPlan:
        """The plans of a shape, recorded on first use; the least recently used ones are evicted.

        Raises DeviceMemoryError, DeviceError.
        """
        if mode != ENCODED:
            max_distance = shape.frames if mode is None else max(mode) + 1
            wanted = self.backend.bucket_length(
                max(max_distance, MIN_FIXED_DISTANCE) if self.batch_invariant else max_distance
            )
            if wanted > self.max_distance or (self.batch_invariant and wanted != self.max_distance):
                self.precompute_positions(wanted)
        made = self.plans.get(shape, lambda: EncoderPlan(self, shape))
        if mode != ENCODED:
            made.plan(mode)
        return made

    def feature_plan(self, frames: int) -> FeaturePlan:
        """The plan from the samples of a window to its features, recorded on first use."""

        def record() -> FeaturePlan:
            constants = upload(self.backend, front_end(self.config.n_mels))
            return FeaturePlan(self.backend, constants, frames)

        return self.feature_plans.get(frames, record)

    def clear_plans(self) -> None:
        """Free all plans, with their buffers."""
        self.plans.clear()
        self.feature_plans.clear()

    def precompute_positions(self, max_distance: int) -> None:
        """Project the position table of every layer, for frames up to `max_distance` apart.

        Plans over the previous tables are dropped. Raises DeviceMemoryError.
        """
        self.plans.clear()
        self.backend.release(*self.rel_positions)
        self.rel_positions, self.max_distance = [], 0
        shape = 2 * max_distance - 1, self.config.d_model
        rel_positions = [self.backend.zeros(shape) for _ in range(self.config.n_layers)]

        def trace() -> None:
            found = model.project_positions(self.backend, self.w, self.config, max_distance)
            for projected, slot in zip(found, rel_positions, strict=True):
                self.backend.store(projected, slot)

        try:
            self.backend.record(trace, name="positions").run()
        except DeviceMemoryError:
            self.backend.release(*rel_positions)
            raise
        # Only now, so that a failure leaves no table without values.
        self.rel_positions, self.max_distance = rel_positions, max_distance


class EncoderPlan:
    """Plans and buffers of one shape: mel [B·n, n_mels], encoded [B·T, d], out [B, T, width]."""

    def __init__(self, encoder: EncoderRunner, shape: EncoderShape) -> None:
        backend, config = encoder.backend, encoder.config
        self.encoder, self.shape = encoder, shape
        slots: list[Tensor] = []
        try:
            for size, kind in (
                ((shape.rows * config.subsampling_factor, config.n_mels), np.float32),
                ((shape.inputs,), np.uint32),
                ((shape.rows, config.d_model), np.float32),
                ((shape.inputs, shape.frames, encoder.head.width), np.float32),
            ):
                slots.append(backend.zeros(size, kind))
            self.mel, self.frames, self.encoded, self.out = self.slots = slots
            self.head = backend.record(self.trace_head, name="project")
        except DeviceMemoryError:
            backend.release(*slots)
            raise
        self.window_plans: PlanCache[Plan] = PlanCache(MAX_WINDOWS)

    def trace_head(self) -> None:
        """Record the head's projection of the encoder output."""
        backend, head = self.encoder.backend, self.encoder.head
        backend.store(
            head.trace(self.encoded), backend.view(self.out, (self.shape.rows, head.width))
        )

    def plan(self, attention_window: AttentionWindow) -> Plan:
        """The encoder's plan for an attention window, recorded on first use."""
        return self.window_plans.get(
            attention_window,
            lambda: self.encoder.backend.record(
                lambda: self.trace_encoder(attention_window), name="encode"
            ),
        )

    def trace_encoder(self, attention_window: AttentionWindow) -> None:
        """Record the encoder."""
        e = self.encoder
        encoded = model.encode(
            e.backend, e.w, e.config, self.mel, self.frames, e.rel_positions, attention_window
        )
        e.backend.store(encoded, self.encoded)

    def encode(
        self,
        windows: Sequence[NDArray[np.float32] | SampleWindow],
        attention_window: AttentionWindow,
    ) -> None:
        """Upload mels [n, n_mels], or samples, padded to the shape, and run the encoder."""
        backend, config = self.encoder.backend, self.encoder.config
        frames = np.zeros(self.shape.inputs, np.uint32)
        frames[: len(windows)] = [len(window) for window in windows]
        rows = self.shape.frames * config.subsampling_factor
        if not all(isinstance(window, SampleWindow) for window in windows):
            nothing = np.zeros((0, config.n_mels), np.float32)
            mels = [nothing if isinstance(each, SampleWindow) else each for each in windows]
            backend.write(self.mel, self.pad_batch(mels, rows, config.n_mels))
        for number, window in enumerate(windows):
            if isinstance(window, SampleWindow):
                self.encoder.feature_plan(rows).run(window, self.mel, number)
        backend.write(self.frames, frames)
        self.plan(attention_window).run()

    def load_encoded(self, encoded: Sequence[NDArray[np.float32]]) -> None:
        """Upload encoder output [T, d] that exists already, in place of `encode`."""
        padded = self.pad_batch(encoded, self.shape.frames, self.encoder.config.d_model)
        self.encoder.backend.write(self.encoded, padded)

    def pad_batch(
        self, arrays: Sequence[NDArray[np.float32]], rows: int, width: int
    ) -> NDArray[np.float32]:
        """Stack arrays [n, width], zero-padded to [B, rows, width]."""
        padded = np.zeros((self.shape.inputs, rows, width), np.float32)
        for place, array in zip(padded, arrays, strict=False):
            place[: len(array)] = array
        return padded

    def release(self) -> None:
        """Free the buffers of this shape."""
        self.encoder.backend.release(*self.slots)
