"""Log-mel features that are computed on the device, from the samples of an encoder's input.

Where a device computes beside the host, a recording's samples are uploaded in place of its
features. A family has the numbers of its front end as a FrontEnd; oscine.audio has the same
features on the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.audio.sample_window import LogMelStats, SampleWindow
from oscine.errors import DeviceMemoryError
from oscine.models.padding import pad_to_multiple

WIDTH = 4  # samples of a row: kernels read four at a time


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """The constants of a log-mel front end, on the host or on a device.

    basis: a convolution [2F, K / 4, 4] over rows of four samples, whose outputs are the real and
    the imaginary part of each bin. hop: rows from one frame to the next.
    """

    basis: ops.Linear
    mel: ops.MelBank
    hop: int
    norm: ops.FeatureNorm

    @classmethod
    def of(
        cls,
        basis: NDArray[np.float32],
        bank: NDArray[np.float32],
        hop_length: int,
        norm: ops.FeatureNorm,
        **logarithm: float,
    ) -> FrontEnd:
        """Of a Fourier basis [2F, K], mel filters [M, F] and the fields of an ops.MelBank."""
        padded = pad_to_multiple(pad_to_multiple(basis, 0, groups=2), 1)
        rows = padded.reshape(len(padded), -1, WIDTH)
        filters = np.ascontiguousarray(pad_to_multiple(bank.T, 0))
        mel = ops.MelBank(filters, **logarithm)
        return cls(ops.Linear(rows, None), mel, hop_length // WIDTH, norm)

    def sample_count(self, frames: int) -> int:
        """The number of samples that so many frames cover."""
        rows: int = (frames - 1) * self.hop + self.basis.weight.shape[1]
        return rows * WIDTH


class FeaturePlan:
    """Recorded: from the samples of a window of at most `frames` frames to its features.

    First log-mel power and its statistics; then its normalisation, by these statistics or by those
    of a whole recording. Every window is a pass of its own: it is short beside the encoder's, and
    its rounding does not depend on other windows.
    """

    def __init__(self, backend: ops.Backend, front_end: FrontEnd, frames: int) -> None:
        """`front_end`: on the device. Raises DeviceMemoryError."""
        self.backend, self.front_end, self.frames = backend, front_end, frames
        self.n_mels = front_end.mel.bank.shape[1]
        self.sample_count = front_end.sample_count(frames)
        self.buffers: list[ops.Tensor] = []
        try:
            self.samples = self._buffer(self.sample_count // WIDTH, WIDTH)
            self.length = self._buffer(1, dtype=np.uint32)
            self.logs = self._buffer(frames, self.n_mels)
            self.stats = self._buffer(1, 3 * self.n_mels)
            self.features = self._buffer(frames, self.n_mels)
            self._analysis = backend.record(self._trace_analysis, name="log_mel")
            self._normalisation = backend.record(self._trace_normalisation, name="normalise")
        except DeviceMemoryError:
            self.release()
            raise

    def _buffer(self, *shape: int, dtype: Any = np.float32) -> ops.Tensor:
        self.buffers.append(self.backend.zeros(shape, dtype))
        return self.buffers[-1]

    def _trace_analysis(self) -> None:
        backend, w = self.backend, self.front_end
        spectrum = backend.conv1d(self.samples, w.basis, ops.ConvParams(0, stride=w.hop))
        logs = backend.log_mel(spectrum, w.mel)
        backend.store(backend.feature_stats(logs, ops.SeqLengths(self.length)), self.stats)
        backend.store(logs, self.logs)

    def _trace_normalisation(self) -> None:
        normal = self.backend.normalise_features(self.logs, self.stats, self.front_end.norm)
        self.backend.store(normal, self.features)

    def analyse(self, samples: NDArray[np.float32], frames: int) -> None:
        """Compute the log-mel power and the statistics of that many frames of samples [n]."""
        missing = self.sample_count - len(samples)
        padded = np.pad(samples, (0, missing)) if missing else samples
        self.backend.write(self.samples, padded)
        self.backend.write(self.length, np.full(1, frames, np.uint32))
        self._analysis.run()

    def statistics(self, samples: NDArray[np.float32], frames: int) -> LogMelStats:
        """The statistics of the log-mel power of that many frames of samples [n]."""
        snapshots, parts = [], []
        for start in range(0, frames, self.frames):
            count, first = min(self.frames, frames - start), start * self.front_end.hop * WIDTH
            self.analyse(samples[first : first + self.front_end.sample_count(count)], count)
            snapshots.append((count, self.backend.snapshot(self.stats)))
        for count, snapshot in snapshots:
            values = snapshot()[0].reshape(3, -1).astype(np.float64)
            parts.append(LogMelStats(count, values))
        return LogMelStats.of(parts)

    def run(self, window: SampleWindow, target: ops.Tensor, number: int) -> None:
        """Compute the features of a window as window `number` of target [B · frames, M]."""
        backend = self.backend
        self.analyse(window.samples, len(window))
        if window.stats is not None:
            backend.write(self.stats, window.stats)
        self._normalisation.run()
        shape = self.frames, self.n_mels
        targets = backend.view(target, (target.shape[0] // self.frames, *shape))
        backend.copy(backend.view(self.features, (1, *shape)), targets, [(0, number)])
        if window.content < len(window):
            rest = np.full((len(window) - window.content, self.n_mels), window.padding, np.float32)
            backend.write(target, rest, number * self.frames + window.content)

    def release(self) -> None:
        """Free the buffers."""
        self.backend.release(*self.buffers)
