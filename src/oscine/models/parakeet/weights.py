"""Loads any checkpoint of Parakeet as one tree of arrays, checked against its configuration.

Sizes, names and quirks: MODELS/parakeet.md. Source of the network: NeMo
nemo/collections/asr/modules/conformer_encoder.py, rnnt.py; transformers models/parakeet.

Folded into the weights here, so that the forward pass is simpler: the factor 1/2 of the
feed-forward modules (linear2, exact in any format), batch normalisation (into the depthwise
convolution), √d_model of scaled inputs (into the linear layer after subsampling), the order of that
layer's inputs (channels last), and the sum of the LSTM's two biases. Subsampling channels are
zero-padded to a multiple of 4, because kernels read vec4.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from oscine.audio.mel import mel_filters
from oscine.audio.mel_nemo import N_FFT
from oscine.errors import CheckpointError
from oscine.models.loader import Loader, load, stored_dtype
from oscine.models.padding import pad_linear, pad_to_multiple
from oscine.models.parakeet.config import (
    EMBEDDING,
    LSTM,
    ParakeetConfig,
    read_config,
    read_stated_config,
    subsampled_bins,
)
from oscine.models.parakeet.tensor_names import MEL_FILTERS_TENSOR, CheckpointTensors
from oscine.ops import LayerNorm, Linear
from oscine.text.sentencepiece import SentencePieceTokenizer
from oscine.text.sentencepiece_loader import load_sentencepiece_tokenizer
from oscine.tree import tree_map
from oscine.weights import Checkpoint, LazyTensor, read_checkpoint
from oscine.weights.mapped_file import Array

log = logging.getLogger(__name__)

_BATCH_NORM_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class FeedForward:
    """A feed-forward module: norm, linear1 [4d, d], SiLU, linear2 [d, 4d] with the factor 1/2."""

    norm: LayerNorm
    linear1: Linear
    linear2: Linear


@dataclass(frozen=True, slots=True)
class RelPosAttention:
    """Relative-position attention.

    linear_qkv.weight [3d, d] has the rows of q, k and v; linear_pos [d, d]; pos_bias_u and
    pos_bias_v are [d], head by head.
    """

    norm: LayerNorm
    linear_qkv: Linear
    linear_out: Linear
    linear_pos: Linear
    pos_bias_u: Array
    pos_bias_v: Array


@dataclass(frozen=True, slots=True)
class ConvModule:
    """A convolution module.

    pointwise_conv1 [2d, d] (value, then gate), depthwise_conv.weight [K, d], pointwise_conv2 [d,
    d].
    """

    norm: LayerNorm
    pointwise_conv1: Linear
    depthwise_conv: Linear
    pointwise_conv2: Linear


@dataclass(frozen=True, slots=True)
class ConformerBlock:
    """One Conformer block; `norm_out` is its last layer."""

    feed_forward1: FeedForward
    self_attn: RelPosAttention
    conv: ConvModule
    feed_forward2: FeedForward
    norm_out: LayerNorm


@dataclass(frozen=True, slots=True)
class SubsamplingLayer:
    """A stage that halves time and frequency.

    depthwise.weight [3, 3, C] (time, frequency, channel), pointwise [C, C].
    """

    depthwise: Linear
    pointwise: Linear


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """Weights of the encoder; C is a multiple of 4.

    subsampling_first_conv.weight [3, 3, C] has one input channel. subsampling_linear [d, F·C] has
    its inputs frequency first.
    """

    subsampling_first_conv: Linear
    subsampling_layers: tuple[SubsamplingLayer, ...]
    subsampling_linear: Linear
    blocks: tuple[ConformerBlock, ...]


@dataclass(frozen=True, slots=True)
class LstmLayer:
    """One LSTM layer with gates in the order i f g o.

    input [4P, P] has the sum of both biases, hidden [4P, P] has none.
    """

    input: Linear
    hidden: Linear


@dataclass(frozen=True, slots=True)
class TransducerWeights:
    """Prediction and joint network. The embedding and the LSTM have one dtype.

    embedding [V + 1, P]: the blank's row is zero, it starts a transcript. joint_out [V + 1 + n, J]:
    tokens, then durations.
    """

    embedding: Array
    lstm: tuple[LstmLayer, ...]
    joint_enc: Linear  # [joint, d]
    joint_pred: Linear  # [joint, P]
    joint_out: Linear


@dataclass(frozen=True, slots=True)
class ParakeetWeights:
    """A loaded checkpoint. Matrices have the requested dtype, or the stored float16 or float32.

    Vectors and convolutions are float32. Arrays may be read-only views of the file.
    """

    config: ParakeetConfig
    encoder: EncoderWeights
    transducer: TransducerWeights | None
    ctc: Linear | None  # [V + 1, d]
    path: Path
    folder: Path
    format: str
    vocabulary: tuple[str, ...]  # V tokens, in SentencePiece's spelling
    stored_dtype: str  # dtype of matrices in the file: "f16" if all of them are, else "f32"
    tokenizer: SentencePieceTokenizer | None = None


def load_weights(path: Checkpoint | Path | str, dtype: str = "auto") -> ParakeetWeights:
    """Read a checkpoint: a .nemo archive, a folder of transformers or of MLX, or their files.

    Args:
        path: The file or folder, or the checkpoint if it is already open.
        dtype: "f16" or "f32" for all matrices; "auto": as stored. Convolutions with a kernel larger
            than 1 are always float32.

    Raises:
        CheckpointError: damaged files; tensors that are missing, unexpected or of wrong shape; a
            configuration of another network, or one that contradicts the tensors; no vocabulary.
    """
    checkpoint = read_checkpoint(path)
    stated = read_stated_config(checkpoint)
    names = CheckpointTensors.of(checkpoint)
    config = read_config(checkpoint.path, stated, names.entries, names.original_name)
    tokenizer = load_sentencepiece_tokenizer(
        checkpoint.folder, checkpoint.files, stated.vocabulary, config.vocab_size, checkpoint.path
    )
    encoder, transducer, ctc = load(
        partial(network, config=config, names=names),
        checkpoint.path,
        names.entries,
        dtype,
        original_name=names.original_name,
    )
    matrices = (
        entry
        for name, entry in names.entries.items()
        if name.endswith(".weight") and len(entry.shape) == 2
    )
    return ParakeetWeights(
        config=config,
        encoder=encoder,
        transducer=transducer,
        ctc=ctc,
        path=checkpoint.path,
        folder=checkpoint.folder,
        format=names.format,
        vocabulary=tokenizer.pieces,
        stored_dtype="f16" if all(stored_dtype(entry) == "f16" for entry in matrices) else "f32",
        tokenizer=tokenizer,
    )


def network(
    t: Loader, config: ParakeetConfig, names: CheckpointTensors
) -> tuple[EncoderWeights, TransducerWeights | None, Linear | None]:
    """All tensors of a checkpoint of these sizes: the encoder and the heads it has."""
    if names.filters is not None:
        t.derived(_check_filters, t.path, names.filters, config.n_mels)
    return (
        encoder(t, config),
        transducer(t, config, names.has_single_bias) if config.has_transducer else None,
        t.pointwise("ctc", config.vocab_size + 1, config.d_model, 1) if config.has_ctc else None,
    )


def _check_filters(path: Path, filters: LazyTensor, n_mels: int) -> None:
    """Raise CheckpointError if a mel bank in the file differs from the one computed here."""
    known = mel_filters(n_mels, N_FFT)
    shape = (1, *known.shape)
    if filters.shape != shape:
        raise CheckpointError.tensors(
            path, misshapen=[f"{MEL_FILTERS_TENSOR} {list(filters.shape)}, not {list(shape)}"]
        )
    if not np.allclose(filters.read()[0], known, atol=0.01 * float(known.max())):
        raise CheckpointError(
            path, f"{MEL_FILTERS_TENSOR} is not Slaney's mel bank, which is used here"
        )


# -- the encoder ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BiasFlags:
    """Which layers of the blocks have biases, by kind: if one of a kind has a bias, all must."""

    linear: bool
    convolution: bool

    @classmethod
    def seen(cls, present: Collection[str]) -> BiasFlags:
        """From the names of the tensors in the checkpoint."""
        biases = [n for n in present if n.startswith("encoder.layers.") and n.endswith(".bias")]
        convolution = any("_conv" in n.split(".")[-2] and ".norm" not in n for n in biases)
        return cls(any(".linear" in n for n in biases), convolution)


def encoder(t: Loader, config: ParakeetConfig) -> EncoderWeights:
    """The subsampling layers and the blocks."""
    at, c, biased = "encoder.pre_encode", config.subsampling_channels, BiasFlags.seen(t.entries)
    weights = EncoderWeights(
        subsampling_first_conv=depthwise_conv2d(t, f"{at}.conv.0", c),
        subsampling_layers=tuple(
            SubsamplingLayer(
                depthwise_conv2d(t, f"{at}.conv.{index}", c),
                t.pointwise(f"{at}.conv.{index + 1}", c, c, 1, 1),
            )
            # NeMo's list of layers has a ReLU after each stage.
            for index in range(2, 2 + 3 * (config.subsampling_factor.bit_length() - 2), 3)
        ),
        subsampling_linear=subsampling_linear(t, f"{at}.out", config),
        blocks=tuple(
            conformer_block(t, f"encoder.layers.{layer}", config, biased)
            for layer in range(config.n_layers)
        ),
    )
    return t.derived(pad_channels, weights)


def depthwise_conv2d(t: Loader, name: str, channels: int) -> Linear:
    """A depthwise 3x3 convolution, [C, 1, 3, 3] as [3, 3, C]: time, frequency, channel."""
    weight = t.f32(f"{name}.weight", channels, 1, 3, 3)
    return Linear(t.derived(_channels_last, weight), t.bias(name, channels))


def subsampling_linear(t: Loader, name: str, config: ParakeetConfig) -> Linear:
    """The linear layer after subsampling, with √d_model folded in where inputs are scaled."""
    d, c = config.d_model, config.subsampling_channels
    weight = t.raw(
        f"{name}.weight", d, c * subsampled_bins(config.n_mels, config.subsampling_factor)
    )
    weight, bias = t.derived(_frequency_first, weight, c), t.f32(f"{name}.bias", d)
    if config.xscaling:
        root = float(np.sqrt(np.float64(d)))
        weight, bias = t.derived(_scale, weight, root), t.derived(_scale, bias, root)
    return Linear(t.cast_float(weight), bias)


def conformer_block(
    t: Loader, at: str, config: ParakeetConfig, biased: BiasFlags
) -> ConformerBlock:
    """The weights of one Conformer block at prefix `at`."""
    d = config.d_model
    return ConformerBlock(
        feed_forward1=feed_forward(t, at, "feed_forward1", config, biased.linear),
        self_attn=RelPosAttention(
            norm=t.norm(f"{at}.norm_self_att", d),
            linear_qkv=t.fused(
                [f"{at}.self_attn.linear_{part}" for part in "qkv"],
                [d, d, d],
                d,
                bias=biased.linear,
            ),
            linear_out=t.linear(f"{at}.self_attn.linear_out", d, d, bias=biased.linear),
            linear_pos=t.linear(f"{at}.self_attn.linear_pos", d, d, bias=False),
            pos_bias_u=head_bias(t, f"{at}.self_attn.pos_bias_u", config),
            pos_bias_v=head_bias(t, f"{at}.self_attn.pos_bias_v", config),
        ),
        conv=ConvModule(
            norm=t.norm(f"{at}.norm_conv", d),
            pointwise_conv1=t.pointwise(
                f"{at}.conv.pointwise_conv1", 2 * d, d, 1, bias=biased.convolution
            ),
            depthwise_conv=depthwise(t, f"{at}.conv", config, biased.convolution),
            pointwise_conv2=t.pointwise(
                f"{at}.conv.pointwise_conv2", d, d, 1, bias=biased.convolution
            ),
        ),
        feed_forward2=feed_forward(t, at, "feed_forward2", config, biased.linear),
        norm_out=t.norm(f"{at}.norm_out", d),
    )


def feed_forward(t: Loader, at: str, name: str, config: ParakeetConfig, bias: bool) -> FeedForward:
    """A feed-forward module with the factor 1/2 folded into linear2."""
    d, inner = config.d_model, config.ff_dim
    down = t.bias(f"{at}.{name}.linear2", d, present=bias)
    # In float16, halving loses the last bit of values below 6e-5: 3e-8, less than rounding errors.
    half = t.derived(_scale, t.raw(f"{at}.{name}.linear2.weight", d, inner), 0.5)
    return FeedForward(
        norm=t.norm(f"{at}.norm_{name}", d),
        linear1=t.linear(f"{at}.{name}.linear1", inner, d, bias=bias),
        linear2=Linear(t.cast(half), None if down is None else t.derived(_scale, down, 0.5)),
    )


def head_bias(t: Loader, name: str, config: ParakeetConfig) -> Array:
    """A bias [H, d / H] of all heads as [d]."""
    return t.derived(_flatten, t.f32(name, config.n_heads, config.d_model // config.n_heads))


def depthwise(t: Loader, at: str, config: ParakeetConfig, bias: bool) -> Linear:
    """The depthwise convolution over time with the batch normalisation folded in."""
    d = config.d_model
    return t.derived(
        _fold_batch_norm,
        t,
        at,
        t.f32(f"{at}.depthwise_conv.weight", d, 1, config.conv_kernel_size),
        t.bias(f"{at}.depthwise_conv", d, present=bias),
        *(t.f32(f"{at}.batch_norm.{part}", d) for part in ("weight", "bias")),
        *(t.f32(f"{at}.batch_norm.running_{part}", d) for part in ("mean", "var")),
    )


def pad_channels(w: EncoderWeights) -> EncoderWeights:
    """The encoder with subsampling channels zero-padded to a multiple of 4; same output."""
    channels = w.subsampling_first_conv.weight.shape[-1]
    if channels % 4 == 0:
        return w
    groups = w.subsampling_linear.weight.shape[1] // channels
    return replace(
        w,
        subsampling_first_conv=_pad_last_axis(w.subsampling_first_conv),
        subsampling_layers=tuple(
            SubsamplingLayer(_pad_last_axis(layer.depthwise), pad_linear(layer.pointwise))
            for layer in w.subsampling_layers
        ),
        subsampling_linear=Linear(
            pad_to_multiple(w.subsampling_linear.weight, 1, groups), w.subsampling_linear.bias
        ),
    )


def _pad_last_axis(conv: Linear) -> Linear:
    """A convolution whose channels [..., C] and bias [C] are zero-padded."""
    bias = None if conv.bias is None else pad_to_multiple(conv.bias, 0)
    return Linear(pad_to_multiple(conv.weight, conv.weight.ndim - 1), bias)


def _flatten(array: Array) -> Array:
    return array.reshape(-1)


def _channels_last(weight: Array) -> Array:
    return np.ascontiguousarray(weight[:, 0].transpose(1, 2, 0))


def _frequency_first(weight: Array, channels: int) -> Array:
    """[d, C·F] as [d, F·C]."""
    split = weight.reshape(len(weight), channels, -1)
    return np.ascontiguousarray(split.transpose(0, 2, 1)).reshape(weight.shape)


def _scale(array: Array, factor: float) -> Array:
    """array * factor in the array's dtype; float16 becomes float32 if it would be rounded."""
    if array.dtype == np.float16 and not np.log2(factor).is_integer():
        array = array.astype(np.float32)
    product: Array = array * array.dtype.type(factor)
    return product


def _fold_batch_norm(t: Loader, at: str, weight: Array, bias: Array | None, *norm: Array) -> Linear:
    """w' = w γ / √(var + eps), b' = β + (b - mean) γ / √(var + eps), in float64; [K, d]."""
    scale, shift, mean, variance = (part.astype(np.float64) for part in norm)
    if not (variance >= 0).all():
        name = t.original_name(f"{at}.batch_norm.running_var")
        raise CheckpointError(t.path, f"tensor {name} has a negative variance")
    gain = scale / np.sqrt(variance + _BATCH_NORM_EPS)
    folded = shift + ((0.0 if bias is None else bias) - mean) * gain
    return Linear(
        np.ascontiguousarray((weight[:, 0] * gain[:, None]).T.astype(np.float32)),
        folded.astype(np.float32),
    )


# -- the transducer -------------------------------------------------------------------------------


def transducer(t: Loader, config: ParakeetConfig, single_bias: bool) -> TransducerWeights:
    """The weights of the prediction network and the joint network."""
    p, labels, joint = config.predictor_dim, config.vocab_size + 1, config.joint_dim
    embedding = t.derived(_zero_blank, t, t.raw(EMBEDDING, labels, p), config.blank_id)
    weights = TransducerWeights(
        embedding=t.cast_float(embedding),
        lstm=tuple(
            lstm_layer(t, layer, p, single_bias) for layer in range(config.predictor_layers)
        ),
        joint_enc=t.linear("joint.enc", joint, config.d_model),
        joint_pred=Linear(
            t.cast_float(t.raw("joint.pred.weight", joint, p)), t.bias("joint.pred", joint)
        ),
        joint_out=t.linear("joint.joint_net.2", labels + len(config.durations), joint),
    )
    return t.derived(unify_dtypes, weights)


def lstm_layer(t: Loader, layer: int, p: int, single_bias: bool) -> LstmLayer:
    """The weights of one LSTM layer; `single_bias`: the file has the sum of its two biases."""
    bias = t.f32(f"{LSTM}.bias_ih_l{layer}", 4 * p)
    if not single_bias:
        bias = t.derived(_sum_biases, bias, t.f32(f"{LSTM}.bias_hh_l{layer}", 4 * p))
    return LstmLayer(
        Linear(t.cast_float(t.raw(f"{LSTM}.weight_ih_l{layer}", 4 * p, p)), bias),
        Linear(t.cast_float(t.raw(f"{LSTM}.weight_hh_l{layer}", 4 * p, p)), None),
    )


def unify_dtypes(w: TransducerWeights) -> TransducerWeights:
    """The weights with all matrices of the prediction network in one dtype, as kernels need."""
    layers = [layer for lstm in w.lstm for layer in (lstm.input, lstm.hidden)]
    if len({w.embedding.dtype, *(layer.weight.dtype for layer in layers)}) == 1:
        return w
    wide = partial(tree_map, lambda array: array.astype(np.float32, copy=False))
    return replace(w, embedding=wide(w.embedding), lstm=wide(w.lstm))


def _zero_blank(t: Loader, embedding: Array, blank: int) -> Array:
    if embedding[blank].any():
        log.warning(
            "%s: the blank's row of the embedding is not zero; using zeros, as NeMo does", t.path
        )
        embedding = embedding.copy()
        embedding[blank] = 0
    return embedding


def _sum_biases(first: Array, second: Array) -> Array:
    return first + second
