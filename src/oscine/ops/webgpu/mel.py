"""From spectra to the features of a speech encoder, on the GPU."""

from __future__ import annotations

from math import ceil, prod

from oscine.gpu.tensor import Tensor
from oscine.ops.reference.mel import PEAK_RANGE, STD_EPSILON, check_spectrum, check_stats
from oscine.ops.types import FeatureNorm, MelBank, SeqLengths
from oscine.ops.webgpu.recorder import Recorder, grid2d


class GpuMel(Recorder):
    """Records the ops of oscine.ops.reference.mel, which has their definitions."""

    def log_mel(self, spectrum: Tensor, mel: MelBank) -> Tensor:
        check_spectrum(spectrum, mel)
        rows, (bins, bands) = spectrum.shape[0], mel.bank.shape
        self.check_multiple_of_4("number of bins", bins)
        y = self.intermediate(rows, bands)
        self.dispatch(
            "log_mel", [spectrum, mel.bank, y], grid2d(ceil(rows / 4)),
            work=2.0 * rows * bins * bands, BINS4=bins // 4, MELS=bands, SCALE=mel.scale,
            FLOOR=mel.floor, GUARD=mel.guard, MAGNITUDE=mel.magnitude_epsilon is not None,
            EPSILON=mel.magnitude_epsilon or 0.0,
        )  # fmt: skip
        return y

    def feature_stats(self, x: Tensor, lengths: SeqLengths) -> Tensor:
        sequences, width = lengths.frames.shape[0], x.shape[1]
        y = self.intermediate(sequences, 3 * width)
        self.dispatch(
            "feature_stats", [x, lengths.frames, y], (width, sequences), work=6.0 * prod(x.shape),
            WIDTH=width, PER=lengths.frames_per_row, WORKGROUP_REDUCE=self.workgroup_reduce,
        )  # fmt: skip
        return y

    def normalise_features(self, x: Tensor, stats: Tensor, norm: FeatureNorm) -> Tensor:
        check_stats(x, stats)
        y = self.intermediate(*x.shape)
        self.dispatch(
            "normalise_features", [x, stats, y], grid2d(ceil(prod(x.shape) / 128)),
            WIDTH=x.shape[1], PEAK=norm == "peak", RANGE=PEAK_RANGE, EPSILON=STD_EPSILON,
        )  # fmt: skip
        return y
