"""The speaker encoder: a reference's mel spectrogram to one vector, the speaker embedding.

Source: Desplanques et al. 2020, arXiv:2005.07143 (ECAPA-TDNN); Qwen3TTSSpeakerEncoder in
qwen_tts/core/models/modeling_qwen3_tts.py. T mel frames, C channels of a block, M of the
aggregation of all blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.audio.mel_speaker import HOP_LENGTH, MIN_SAMPLES, speaker_mel
from oscine.errors import NonFiniteError
from oscine.models.qwen3_tts.codec import pointwise_conv
from oscine.models.qwen3_tts.config import SpeakerEncoderConfig
from oscine.models.qwen3_tts.reference_audio import check_reference_audio
from oscine.models.qwen3_tts.weights import SeRes2NetBlock, SpeakerEncoderWeights, check_finite
from oscine.ops import Backend, ConvParams, Linear, Ops, Tensor
from oscine.types import Audio


def speaker_embedding(ops: Ops, w: SpeakerEncoderWeights, mel: Tensor) -> Tensor:
    """Encode a mel spectrogram [T, mels] to [1, enc_dim]; T exceeds half of every kernel's
    reach.
    """
    x = tdnn_block(ops, mel, w.tdnn, 1)
    ops.probe("speaker.block0", x)
    outputs = []
    for index, block in enumerate(w.blocks, 1):
        x = se_res2net_block(ops, x, block)
        ops.probe(f"speaker.block{index}", x)
        outputs.append(x)
    x = pointwise_conv(ops, ops.concat(outputs), w.mfa, "relu")
    ops.probe("speaker.mfa", x)
    x = attentive_stats_pool(ops, x, w)
    ops.probe("speaker.pooled", x)
    return ops.linear(x, w.fc)


def tdnn_block(ops: Ops, x: Tensor, conv: Linear, dilation: int) -> Tensor:
    """A convolution with reflect padding to the length of its input, then ReLU."""
    reach = dilation * (conv.weight.shape[1] - 1)
    taps = ConvParams(reach // 2, reach - reach // 2, dilation=dilation, padding="reflect")
    return ops.conv1d(x, conv, taps, activation="relu")


def se_res2net_block(ops: Ops, x: Tensor, w: SeRes2NetBlock) -> Tensor:
    """A squeeze-excitation Res2Net block: x [T, C] -> [T, C].

    The channels are split into equal parts. The first part is unchanged, the second is convolved,
    and each later part is convolved after the result of the part before is added to it.
    """
    y = pointwise_conv(ops, x, w.tdnn1, "relu")
    width = y.shape[1] // (len(w.res2net) + 1)
    parts, before = [ops.slice_columns(y, 0, width)], None
    for index, conv in enumerate(w.res2net, 1):
        before = tdnn_block(
            ops, ops.slice_columns(y, index * width, width, add=before), conv, w.dilation
        )
        parts.append(before)
    y = pointwise_conv(ops, ops.concat(parts), w.tdnn2, "relu")
    mean = ops.slice_columns(ops.stats_pool(y), 0, y.shape[1])
    squeezed = ops.linear(mean, w.se_conv1, activation="relu")
    return ops.scale_channels(y, ops.linear(squeezed, w.se_conv2, activation="sigmoid"), add=x)


def attentive_stats_pool(ops: Ops, x: Tensor, w: SpeakerEncoderWeights) -> Tensor:
    """Attentive statistics pooling: mean and standard deviation over time, weighted by attention.

    x [T, M] -> [1, 2M]. The attention's input is each frame with the mean and deviation of all: [T,
    3M].
    """
    context = ops.concat([x, ops.stats_pool(x)])
    hidden = ops.activate(pointwise_conv(ops, context, w.asp_tdnn, "relu"), "tanh")
    return ops.stats_pool(x, pointwise_conv(ops, hidden, w.asp_conv))


class SpeakerEncoder:
    """The speaker encoder on a device. A plan is recorded for each recording, as lengths rarely
    repeat.

    Raises DeviceError if the backend cannot hold or compute an encoder of these sizes,
    NonFiniteError for weights that are not finite.
    """

    def __init__(
        self, weights: SpeakerEncoderWeights, config: SpeakerEncoderConfig, backend: Backend
    ) -> None:
        check_finite(weights, "the speaker encoder")
        self.config, self.backend = config, backend
        self.weights: SpeakerEncoderWeights = ops.upload(backend, weights)
        reaches = (
            d * (k - 1) for d, k in zip(config.enc_dilations, config.enc_kernel_sizes, strict=True)
        )
        frames = max(reach - reach // 2 for reach in reaches) + 1
        self.min_samples = max(MIN_SAMPLES, frames * HOP_LENGTH)

    def embed(self, samples: NDArray[Any] | Audio) -> NDArray[np.float32]:
        """Encode mono samples [n] at 24 kHz to the speaker embedding [enc_dim], not normalised.

        Raises UsageError for another shape or rate, or fewer than `min_samples` (1280, 53 ms, for
        released sizes); NonFiniteError for NaN or infinity.
        """
        samples = check_reference_audio(samples, self.config.sample_rate, self.min_samples)
        vector = self.embed_mel(speaker_mel(samples, self.config.mel_dim))
        if not np.isfinite(vector).all():
            raise NonFiniteError("the speaker embedding is not finite; the weights are damaged")
        return vector

    def embed_mel(self, mel: NDArray[np.float32]) -> NDArray[np.float32]:
        """Encode a mel spectrogram [T, mels] to [enc_dim]."""
        x, y = self.backend.zeros(mel.shape), self.backend.zeros((1, self.config.enc_dim))
        self.backend.write(x, mel)

        def trace() -> None:
            self.backend.store(speaker_embedding(self.backend, self.weights, x), y)

        self.backend.record(trace, name="speaker").run()
        vector: NDArray[np.float32] = self.backend.read(y)[0]
        self.backend.release(x, y)
        return vector
