"""Runs the encoder on a device: several windows in a pass, and their cross keys and values.

N windows in a pass, S positions of each, d width.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oscine.audio.sample_window import SampleWindow
from oscine.engine.passes import pass_size
from oscine.engine.plan_cache import PlanCache
from oscine.errors import DeviceMemoryError
from oscine.models.front_end import FeaturePlan
from oscine.models.whisper import model
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.front_end import front_end
from oscine.models.whisper.weights import DecoderBlock, EncoderWeights
from oscine.ops import Backend, Plan, Tensor, upload

#: Features [2S, n_mels], or the samples that they are computed from.
Window: TypeAlias = NDArray[np.float32] | SampleWindow

log = logging.getLogger(__name__)

MAX_PLANS = 8
#: Bytes of a window in a pass by those of its residual stream, float32 [S, d]: 4 is the widest
#: tensor, the hidden rows of a block, and 16 are all tensors that exist at once.
WIDEST, WHOLE = 4, 16


@dataclass(frozen=True, slots=True)
class EncoderPlan:
    """A recorded pass over N windows, and one from its output to the cross keys of each layer.

    mel [N·2S, n_mels] is the input, audio [N·S, d] the output, and cross_kv [N, S, 2d] has the
    keys and values of the layer that was computed last.
    """

    windows: int
    mel: Tensor
    audio: Tensor
    cross_kv: Tensor
    encode: Plan
    layers: tuple[Plan, ...]


class EncoderRunner:
    """Encodes windows in passes of at most `max_windows`.

    Plans of all sizes share buffers, which grow. `blocks`: of the decoder, whose cross keys and
    values are stored in `cross_kv_dtype`; none for a model without a decoder. Raises DeviceError if
    the backend cannot hold or compute a model of these sizes.
    """

    def __init__(
        self,
        backend: Backend,
        config: WhisperConfig,
        w: EncoderWeights,
        blocks: Sequence[DecoderBlock] = (),
        cross_kv_dtype: type = np.float32,
    ) -> None:
        self.backend, self.config, self.w = backend, config, w
        self.blocks, self.cross_kv_dtype = blocks, cross_kv_dtype
        self.max_windows = max_windows(backend, config)
        self.buffers: list[Tensor] = []
        self.windows = 0  # that the buffers have room for
        self._feature_plan: FeaturePlan | None = None
        self.plans: PlanCache[EncoderPlan] = PlanCache(MAX_PLANS)
        self.plan(1)  # now, while loading can still choose another backend

    # -- passes -------------------------------------------------------------------------------

    def encode(
        self,
        inputs: Sequence[Window],
        encoder_slots: Sequence[int],
        cross_kv: Sequence[Tensor],
    ) -> None:
        """Encode windows, and store their cross keys and values in encoder slots.

        cross_kv: [encoder slots, S, 2d] of each layer.
        """
        start = 0
        while start < len(inputs):
            size = pass_size(len(inputs) - start, self.max_windows, self.backend.bucket_rows)
            plan = self.plan_that_fits(size)
            stop = start + min(size, plan.windows)
            self.run(plan, inputs[start:stop])
            pairs = list(enumerate(encoder_slots[start:stop]))
            for layer, target in zip(plan.layers, cross_kv, strict=True):
                layer.run()
                self.backend.copy(plan.cross_kv, target, pairs)
            start = stop

    def encode_one(self, window: Window) -> NDArray[np.float32]:
        """The output [S, d] for a window."""
        plan = self.plan(1)
        self.run(plan, [window])
        output: NDArray[np.float32] = self.backend.read(plan.audio)
        return output

    def run(self, plan: EncoderPlan, inputs: Sequence[Window]) -> None:
        """Encode at most N windows; the rest of the pass repeats earlier ones."""
        for number, window in enumerate(inputs):
            if isinstance(window, SampleWindow):
                self.feature_plan().run(window, plan.mel, number)
            else:
                self.backend.write(plan.mel, window, number * len(window))
        plan.encode.run()

    def feature_plan(self) -> FeaturePlan:
        """The plan from the samples of a window to its features, recorded on first use."""
        if self._feature_plan is None:
            constants = upload(self.backend, front_end(self.config.n_mels))
            self._feature_plan = FeaturePlan(self.backend, constants, self.config.window_frames)
        return self._feature_plan

    # -- plans --------------------------------------------------------------------------------

    def plan_that_fits(self, count: int) -> EncoderPlan:
        """The plan of a pass over that many windows, or over fewer where memory is short."""
        windows = self.backend.bucket_rows(count)
        while True:
            try:
                return self.plan(windows)
            except DeviceMemoryError as error:
                if windows == 1:
                    raise
                problem = str(error)
            windows //= 2
            self.max_windows = windows
            log.warning("%s; going on with %d windows in a pass", problem, windows)

    def plan(self, windows: int) -> EncoderPlan:
        """The plan of a pass over that many windows, recorded on first use."""
        return self.plans.get(windows, lambda: self.record(windows))

    def record(self, windows: int) -> EncoderPlan:
        """Record the passes. Raises DeviceMemoryError."""
        backend, config, w = self.backend, self.config, self.w
        self.grow(windows)
        mel, audio, cross_kv = (
            backend.view(buffer, (windows * buffer.shape[0] // self.windows, *buffer.shape[1:]))
            for buffer in self.buffers
        )
        rows = backend.view(cross_kv, (audio.shape[0], cross_kv.shape[2]))

        def trace() -> None:
            backend.store(model.encode(backend, w, config, mel, windows), audio)

        def record_layer(block: DecoderBlock) -> Plan:
            return backend.record(
                lambda: model.compute_cross_kv(backend, block, audio, rows), name="cross_kv"
            )

        encode = backend.record(trace, name="encode")
        return EncoderPlan(
            windows, mel, audio, cross_kv, encode, tuple(map(record_layer, self.blocks))
        )

    # -- memory -------------------------------------------------------------------------------

    def grow(self, windows: int) -> None:
        """Make room for that many windows in a pass. Raises DeviceMemoryError."""
        if windows <= self.windows:
            return
        self.release()
        config, zeros = self.config, self.backend.zeros
        positions, width = config.n_audio_ctx, 2 * config.n_text_state if self.blocks else 0
        try:
            self.buffers.append(zeros((windows * config.window_frames, config.n_mels)))
            self.buffers.append(zeros((windows * positions, config.n_audio_state)))
            self.buffers.append(zeros((windows, positions, width), self.cross_kv_dtype))
        except DeviceMemoryError:
            self.release()
            raise
        self.windows = windows

    def release(self) -> None:
        """Free the buffers, and drop the plans over them."""
        self.plans.clear()
        self.backend.release(*self.buffers)
        self.buffers, self.windows = [], 0
        if self._feature_plan is not None:
            self._feature_plan.release()
            self._feature_plan = None


def max_windows(backend: Backend, config: WhisperConfig) -> int:
    """How many windows a pass takes: as many as are faster together, and fit in memory."""
    stream = 4 * config.n_audio_ctx * config.n_audio_state
    largest, free = backend.memory_limits()
    counts = [backend.encode_batch, largest // (WIDEST * stream)]
    if free is not None:
        counts.append(free // 4 // (WHOLE * stream))
    return 1 << max(1, min(counts)).bit_length() - 1  # a power of two
