"""The speaker encoder: a reference's mel to one vector, the voice.

Source: Desplanques et al. 2020, arXiv:2005.07143 (ECAPA-TDNN); Qwen3TTSSpeakerEncoder in
qwen_tts/core/models/modeling_qwen3_tts.py. T mel frames, C channels of a block, M of the mixture.
Concatenations are sums of products: a layer over parts side by side is the sum of its columns over
each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.audio.mel_speaker import HOP, LEAST_SAMPLES, speaker_mel
from oscine.errors import NonFiniteError
from oscine.models.qwen3_tts.codec import pointwise
from oscine.models.qwen3_tts.config import SpeakerConfig
from oscine.models.qwen3_tts.fitted import check_finite, fit_speaker
from oscine.models.qwen3_tts.model import Note, ignore
from oscine.models.qwen3_tts.reference import checked_samples
from oscine.models.qwen3_tts.weights import SpeakerBlock, SpeakerWeights
from oscine.ops import Backend, Linear, Ops, Taps, Tensor
from oscine.types import Audio
from oscine.weights.source import Array


@dataclass(frozen=True, slots=True)
class Parts:
    """A block whose layers over all channels are cut into those over a part of them each.

    first[j] [c, 1, C] gives part j, second[j] [C, 1, c] takes it. squeeze [s, 2C] reads the means,
    and gives the deviations that come with them no weight.
    """

    first: tuple[Linear, ...]
    convolutions: tuple[Linear, ...]
    second: tuple[Linear, ...]
    squeeze: Linear
    excite: Linear
    dilation: int


@dataclass(frozen=True, slots=True)
class Cut:
    """SpeakerWeights as the forward takes them: mixed by block; attention in what goes over frames
    [a, 1, M] and over their mean and deviation [a, 2M], which has the bias; scores [M, 1, a]."""

    first: Linear
    blocks: tuple[Parts, ...]
    mixed: tuple[Linear, ...]
    attention: Linear
    attention_pooled: Linear
    scores: Linear
    last: Linear


def columns(linear: Linear, count: int) -> tuple[Linear, ...]:
    """A layer over `count` parts side by side as one for each; the first has the bias."""
    cut = np.split(linear.weight, count, axis=1)
    return tuple(point(weight, None if index else linear.bias) for index, weight in enumerate(cut))


def point(weight: Array, bias: Array | None) -> Linear:
    """A layer as codec.pointwise takes it."""
    return Linear(np.ascontiguousarray(weight)[:, None], bias)


def cut_weights(w: SpeakerWeights) -> Cut:
    """Before the upload. Widths are to be fitted first: fitted.fit_speaker."""
    inner = w.mixed.weight.shape[0]
    over_frames, over_pooled = np.split(w.attention.weight, [inner], axis=1)
    return Cut(
        w.first,
        tuple(cut_block(block) for block in w.blocks),
        columns(w.mixed, len(w.blocks)),
        point(over_frames, None),
        Linear(np.ascontiguousarray(over_pooled), w.attention.bias),
        point(w.scores.weight, w.scores.bias),
        w.last,
    )


def cut_block(block: SpeakerBlock) -> Parts:
    """Its layers over all channels by part."""
    count = len(block.parts) + 1
    weights, bias = np.split(block.first.weight, count), block.first.bias
    biases = [None] * count if bias is None else np.split(bias, count)
    squeeze = np.pad(block.squeeze.weight, ((0, 0), (0, block.squeeze.weight.shape[1])))
    return Parts(
        tuple(point(weight, bias) for weight, bias in zip(weights, biases, strict=True)),
        block.parts,
        columns(block.second, count),
        Linear(squeeze, block.squeeze.bias),
        block.excite,
        block.dilation,
    )


def embed(ops: Ops, w: Cut, mel: Tensor, note: Note = ignore) -> Tensor:
    """mel [T, mels] -> [1, width], T above half of every convolution's reach.

    Noted: block{i}, mfa, pooled [1, 2M].
    """
    x = mirrored(ops, mel, w.first, 1)
    note("block0", x)
    outputs = []
    for index, block in enumerate(w.blocks, 1):
        x = squeezed(ops, x, block)
        note(f"block{index}", x)
        outputs.append(x)
    x = ops.activate(added(ops, outputs, w.mixed), "relu")
    note("mfa", x)
    x = pooled(ops, x, w)
    note("pooled", x)
    return ops.linear(x, w.last)


def mirrored(ops: Ops, x: Tensor, conv: Linear, dilation: int) -> Tensor:
    """A convolution as long as its input, which is reflected at its ends, then ReLU."""
    reach = dilation * (conv.weight.shape[1] - 1)
    taps = Taps(reach // 2, reach - reach // 2, dilation=dilation, padding="reflect")
    return ops.convolve(x, conv, taps, activation="relu")


def added(ops: Ops, parts: list[Tensor], layers: tuple[Linear, ...]) -> Tensor:
    """Σ layer(part): what a layer over all parts side by side gives."""
    y = pointwise(ops, parts[0], layers[0])
    for part, layer in zip(parts[1:], layers[1:], strict=True):
        y = pointwise(ops, part, layer, add=y)
    return y


def squeezed(ops: Ops, x: Tensor, w: Parts) -> Tensor:
    """A squeeze-excite Res2Net block, x [T, C] -> [T, C]: every part hears the one before it."""
    parts = [pointwise(ops, x, w.first[0], "relu")]
    before: Tensor = None
    for layer, conv in zip(w.first[1:], w.convolutions, strict=True):
        before = mirrored(ops, pointwise(ops, x, layer, "relu", before), conv, w.dilation)
        parts.append(before)
    y = ops.activate(added(ops, parts, w.second), "relu")
    factors = ops.linear(ops.statistics(y), w.squeeze, activation="relu")
    return ops.scale_channels(y, ops.linear(factors, w.excite, activation="sigmoid"), add=x)


def pooled(ops: Ops, x: Tensor, w: Cut) -> Tensor:
    """Mean and deviation over time, weighted by attention: x [T, M] -> [1, 2M]."""
    whole = ops.linear(ops.statistics(x), w.attention_pooled)  # the same for every frame: a bias
    bias = ops.reshape(whole, (whole.shape[1],))
    hidden = pointwise(ops, x, Linear(w.attention.weight, bias), "relu")
    return ops.statistics(x, pointwise(ops, ops.activate(hidden, "tanh"), w.scores))


class SpeakerEncoder:
    """Resident weights; a plan is recorded for each recording, as lengths seldom come again.

    Raises DeviceError if the backend cannot hold or compute an encoder of these sizes,
    NonFiniteError for weights that are no numbers.
    """

    def __init__(self, weights: SpeakerWeights, config: SpeakerConfig, backend: Backend) -> None:
        check_finite(weights, "the speaker encoder")
        self.config, self.backend = config, backend
        self.w: Cut = ops.upload(backend, cut_weights(fit_speaker(weights)))
        reaches = (d * (k - 1) for d, k in zip(config.dilations, config.kernels, strict=True))
        frames = max(reach - reach // 2 for reach in reaches) + 1
        self.least_samples = max(LEAST_SAMPLES, frames * HOP)

    def embed(self, samples: NDArray[Any] | Audio) -> NDArray[np.float32]:
        """Mono samples [n] at 24 kHz -> the speaker's vector [width], not normalised.

        Raises UsageError for another shape or rate, or fewer than `least_samples` (1280, 53 ms, of
        released sizes); NonFiniteError for NaN or infinity.
        """
        samples = checked_samples(samples, self.config.rate, self.least_samples)
        vector = self.embed_mel(speaker_mel(samples, self.config.mels))
        if not np.isfinite(vector).all():
            raise NonFiniteError("the speaker's vector is not finite; the weights are damaged")
        return vector

    def embed_mel(self, mel: NDArray[np.float32], note: Note = ignore) -> NDArray[np.float32]:
        """mel [T, mels] -> [width]; note is told each stage, and may keep it."""
        heard, found = self.backend.slot(mel.shape), self.backend.slot((1, self.config.width))
        self.backend.write(heard, mel)

        def trace() -> None:
            self.backend.keep(embed(self.backend, self.w, heard, note), found)

        self.backend.record(trace, name="speaker").run()
        vector: NDArray[np.float32] = self.backend.read(found)[0]
        self.backend.release(heard, found)
        return vector
