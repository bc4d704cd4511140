"""Layers that the networks of a Qwen3-TTS share, each built by a Loader from its checkpoint name.

Weights are folded so that the forward passes are simple: q, k and v are one matrix, gate and up
one; layer scales and ConvNeXt's gamma are multiplied into rows; transposed convolutions are plain
ones with stride times as many outputs; Snake's exponentials are precomputed; codebooks are divided
by their usage. Convolutions, Snakes and codebooks are float32, whatever the file's dtype and the
dtype passed to `load`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oscine.models.loader import Loader
from oscine.models.padding import pad_linear, pad_to_multiple
from oscine.models.qwen3_tts.config import TransformerConfig
from oscine.ops import Linear, RmsNorm, Snake
from oscine.weights.mapped_file import Array

_MIN_USAGE = 1e-5  # of a codebook entry; upstream's epsilon


@dataclass(frozen=True, slots=True)
class TransformerLayer:
    """A gated transformer layer; names as in vLLM, where projections are merged.

    qkv_proj [Q + 2K, D], o_proj [D, Q], gate_up_proj [2I, D] (gate's rows, then up's), down_proj
    [D, I]. q_norm and k_norm [W]; None in the codec's decoder. No biases.
    """

    input_layernorm: RmsNorm
    qkv_proj: Linear
    q_norm: Array | None
    k_norm: Array | None
    o_proj: Linear
    post_attention_layernorm: RmsNorm
    gate_up_proj: Linear
    down_proj: Linear


# -- transformers ---------------------------------------------------------------------------------


def transformer_layers(
    t: Loader, at: str, stack: TransformerConfig, *, layer_scale: bool = False
) -> tuple[TransformerLayer, ...]:
    """The layers of a gated transformer, in the dtype passed to `load`.

    Talker and code predictor normalise queries and keys. The codec's decoder has no such norms but
    a `layer_scale` for each branch, which is folded in.
    """
    return tuple(
        _transformer_layer(t, f"{at}.layers.{n}", stack, layer_scale)
        for n in range(stack.num_hidden_layers)
    )


def _transformer_layer(
    t: Loader, at: str, stack: TransformerConfig, layer_scale: bool
) -> TransformerLayer:
    d, head, mlp = stack.hidden_size, f"{at}.self_attn", f"{at}.mlp"
    out = t.linear(f"{head}.o_proj", d, stack.q_size, bias=False)
    down = t.linear(f"{mlp}.down_proj", d, stack.intermediate_size, bias=False)
    if layer_scale:
        out = fold_scale(t, out, f"{at}.self_attn_layer_scale.scale", d)
        down = fold_scale(t, down, f"{at}.mlp_layer_scale.scale", d)
    return TransformerLayer(
        input_layernorm=t.rms_norm(f"{at}.input_layernorm", d, stack.norm_eps),
        qkv_proj=qkv_proj(t, head, stack),
        q_norm=None if layer_scale else t.f32(f"{head}.q_norm.weight", stack.head_dim),
        k_norm=None if layer_scale else t.f32(f"{head}.k_norm.weight", stack.head_dim),
        o_proj=out,
        post_attention_layernorm=t.rms_norm(f"{at}.post_attention_layernorm", d, stack.norm_eps),
        gate_up_proj=t.fused(
            [f"{mlp}.gate_proj", f"{mlp}.up_proj"], [stack.intermediate_size] * 2, d
        ),
        down_proj=down,
    )


def qkv_proj(t: Loader, at: str, stack: TransformerConfig) -> Linear:
    """The three projections of an attention as one: [Q + 2K, D]."""
    outs = (stack.q_size, stack.kv_size, stack.kv_size)
    return t.fused([f"{at}.{part}_proj" for part in "qkv"], outs, stack.hidden_size)


def fold_scale(t: Loader, linear: Linear, name: str, width: int) -> Linear:
    """A float32 layer with every output multiplied by the vector `name` [width]."""
    return t.derived(_scale_rows, linear, t.f32(name, width))


def _scale_rows(linear: Linear, scale: Array) -> Linear:
    bias = None if linear.bias is None else linear.bias * scale
    return Linear(linear.weight * scale[:, None], bias)


# -- convolutions ---------------------------------------------------------------------------------


def conv1d(
    t: Loader, name: str, out: int, inputs: int, kernel: int, *, bias: bool = True
) -> Linear:
    """A convolution, [out, in, K] in the file, as [out, K, in]."""
    weight = t.f32(f"{name}.weight", out, inputs, kernel)
    return Linear(t.derived(_channels_last, weight), t.bias(name, out, present=bias))


def pointwise_conv(t: Loader, name: str, out: int, inputs: int, *, bias: bool = True) -> Linear:
    """A convolution with kernel size 1, [out, in, 1] in the file, as a linear layer [out, in]."""
    weight = t.f32(f"{name}.weight", out, inputs, 1)
    return Linear(t.derived(_squeeze_kernel, weight), t.bias(name, out, present=bias))


def depthwise_conv(t: Loader, name: str, channels: int, kernel: int) -> Linear:
    """A depthwise convolution, [C, 1, K] in the file, as [K, C]."""
    weight = t.f32(f"{name}.weight", channels, 1, kernel)
    return Linear(t.derived(_depthwise_channels_last, weight), t.bias(name, channels))


def conv_transpose1d(
    t: Loader, name: str, inputs: int, out: int, kernel: int, stride: int
) -> Linear:
    """A transposed convolution as a plain one.

    The file has [I, O, K], K a multiple of the stride s; the result is [s·O, K / s, I]. Output s t
    + j is the sum over m of W[:, :, m s + j] times input t - m, so row j O + o has the weights of
    the earliest input first. The bias is repeated s times.
    """
    weight = t.f32(f"{name}.weight", inputs, out, kernel)
    bias = t.derived(np.tile, t.f32(f"{name}.bias", out), stride)
    return Linear(t.derived(_transposed_as_conv, weight, stride), bias)


def pad_channels(t: Loader, linear: Linear, *, outputs: int = 1, inputs: int = 1) -> Linear:
    """Outputs and inputs padded with zeros, in that many groups each; 0 leaves them unchanged.

    The width of each group becomes a multiple of 4, which kernels read at a time.
    """
    return t.derived(pad_linear, linear, outputs, inputs)


def snake(t: Loader, at: str, channels: int) -> Snake:
    """exp(alpha) and 1 / (exp(beta) + 1e-9), padded to a multiple of 4 channels.

    The file has alpha and beta, the logarithms.
    """
    return Snake(
        t.derived(_exp_alpha, t.f32(f"{at}.alpha", channels)),
        t.derived(_inverse_beta, t.f32(f"{at}.beta", channels)),
    )


def _squeeze_kernel(weight: Array) -> Array:
    return weight.reshape(weight.shape[:2])


def _depthwise_channels_last(weight: Array) -> Array:
    return np.ascontiguousarray(weight[:, 0].T)


def _channels_last(weight: Array) -> Array:
    return np.ascontiguousarray(weight.transpose(0, 2, 1))


def _transposed_as_conv(weight: Array, stride: int) -> Array:
    inputs, outputs, kernel = weight.shape
    by_phase = weight.reshape(inputs, outputs, kernel // stride, stride)
    reordered = by_phase.transpose(3, 1, 2, 0)[:, :, ::-1]
    return np.ascontiguousarray(reordered).reshape(stride * outputs, kernel // stride, inputs)


def _exp_alpha(alpha: Array) -> Array:
    with np.errstate(over="ignore"):
        return pad_to_multiple(np.exp(alpha), 0)


def _inverse_beta(beta: Array) -> Array:
    with np.errstate(over="ignore"):
        return pad_to_multiple(np.float32(1) / (np.exp(beta) + np.float32(1e-9)), 0)


# -- codebooks ------------------------------------------------------------------------------------


def codebook(t: Loader, at: str, name: str, codes: int, width: int) -> Array:
    """The entries [codes, width]; upstream stores their sums and how often each was used."""
    sums, usage = t.f32(f"{at}.{name}", codes, width), t.f32(f"{at}.cluster_usage", codes)
    return t.derived(_codebook_entries, sums, usage)


def _codebook_entries(sums: Array, usage: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        entries: Array = sums / np.maximum(usage, np.float32(_MIN_USAGE))[:, None]
    return entries
