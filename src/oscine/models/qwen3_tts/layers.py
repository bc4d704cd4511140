"""Layers that the networks of a Qwen3-TTS share, each built from a Loader by its name in the file.

What is folded here, so that the forwards need not know of it: q, k and v are one matrix, gate and
up one; layer scales and ConvNeXt's gamma are in the rows that they multiply; transposed
convolutions are plain ones with stride times as many outputs; Snake's logarithms are gone;
codebooks are divided by their usage. Convolutions, Snakes and codebooks are float32, whatever the
file stores and the caller of `load` asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oscine.models.loader import Loader
from oscine.models.padding import pad_linear, pad_to_multiple
from oscine.models.qwen3_tts.config import Stack
from oscine.ops import Linear, RmsNorm, Snake
from oscine.weights.mapped_file import Array

_MIN_USAGE = 1e-5  # of a codebook's entry; upstream's epsilon


@dataclass(frozen=True, slots=True)
class Block:
    """A layer: qkv [Q + 2K, D], out [D, Q], gate_up [2I, D] (gate's rows, then up's), down [D, I].

    q_norm and k_norm [W]; None in the codec's decoder. No biases.
    """

    norm: RmsNorm
    qkv: Linear
    q_norm: Array | None
    k_norm: Array | None
    out: Linear
    mlp_norm: RmsNorm
    gate_up: Linear
    down: Linear


# -- transformers ---------------------------------------------------------------------------------


def blocks(t: Loader, at: str, stack: Stack, *, scaled: bool = False) -> tuple[Block, ...]:
    """The layers of a gated transformer, in the type that the caller of `load` asked for.

    Those of talker and predictor normalise their heads; those of the codec's decoder are `scaled`:
    each branch has a layer scale, which is folded in, and heads have no norms.
    """
    return tuple(_block(t, f"{at}.layers.{n}", stack, scaled) for n in range(stack.layers))


def _block(t: Loader, at: str, stack: Stack, scaled: bool) -> Block:
    d, head, mlp = stack.width, f"{at}.self_attn", f"{at}.mlp"
    out = t.linear(f"{head}.o_proj", d, stack.query_width, bias=False)
    down = t.linear(f"{mlp}.down_proj", d, stack.inner, bias=False)
    if scaled:
        out = rescaled(t, out, f"{at}.self_attn_layer_scale.scale", d)
        down = rescaled(t, down, f"{at}.mlp_layer_scale.scale", d)
    return Block(
        norm=t.rms_norm(f"{at}.input_layernorm", d, stack.eps),
        qkv=query_key_value(t, head, stack),
        q_norm=None if scaled else t.f32(f"{head}.q_norm.weight", stack.head_width),
        k_norm=None if scaled else t.f32(f"{head}.k_norm.weight", stack.head_width),
        out=out,
        mlp_norm=t.rms_norm(f"{at}.post_attention_layernorm", d, stack.eps),
        gate_up=t.fused([f"{mlp}.gate_proj", f"{mlp}.up_proj"], [stack.inner] * 2, d),
        down=down,
    )


def query_key_value(t: Loader, at: str, stack: Stack) -> Linear:
    """The three projections of an attention as one: [Q + 2K, D]."""
    outs = (stack.query_width, stack.key_width, stack.key_width)
    return t.fused([f"{at}.{part}_proj" for part in "qkv"], outs, stack.width)


def rescaled(t: Loader, linear: Linear, name: str, width: int) -> Linear:
    """A float32 layer whose every output the vector `name` [width] multiplies."""
    return t.derived(_scaled, linear, t.f32(name, width))


def _scaled(linear: Linear, scale: Array) -> Linear:
    bias = None if linear.bias is None else linear.bias * scale
    return Linear(linear.weight * scale[:, None], bias)


# -- convolutions ---------------------------------------------------------------------------------


def convolution(
    t: Loader, name: str, out: int, inputs: int, kernel: int, *, bias: bool = True
) -> Linear:
    """[out, in, K] in the file as [out, K, in]."""
    weight = t.f32(f"{name}.weight", out, inputs, kernel)
    return Linear(t.derived(_channels_last, weight), t.bias(name, out, present=bias))


def pointwise(t: Loader, name: str, out: int, inputs: int, *, bias: bool = True) -> Linear:
    """A convolution of one place, [out, in, 1] in the file, as a layer [out, in]."""
    weight = t.f32(f"{name}.weight", out, inputs, 1)
    return Linear(t.derived(_flat, weight), t.bias(name, out, present=bias))


def depthwise(t: Loader, name: str, channels: int, kernel: int) -> Linear:
    """[C, 1, K] in the file as [K, C]."""
    weight = t.f32(f"{name}.weight", channels, 1, kernel)
    return Linear(t.derived(_transposed, weight), t.bias(name, channels))


def transposed_convolution(
    t: Loader, name: str, inputs: int, out: int, kernel: int, stride: int
) -> Linear:
    """[I, O, K] in the file, K a multiple of the stride s, as a plain one [s·O, K / s, I].

    Output s t + j is the sum over m of W[:, :, m s + j] times input t - m, so row j O + o has
    that of the earliest input first. The bias comes s times.
    """
    weight = t.f32(f"{name}.weight", inputs, out, kernel)
    bias = t.derived(np.tile, t.f32(f"{name}.bias", out), stride)
    return Linear(t.derived(_as_plain, weight, stride), bias)


def padded(t: Loader, linear: Linear, *, outputs: int = 1, inputs: int = 1) -> Linear:
    """Outputs and inputs filled up with zeros, in that many groups each; 0 leaves them as they are.

    Each group becomes a multiple of four wide, which kernels read at a time.
    """
    return t.derived(pad_linear, linear, outputs, inputs)


def snake(t: Loader, at: str, channels: int) -> Snake:
    """Both factors, of which the file has logarithms; filled up to a multiple of four channels."""
    return Snake(
        t.derived(_scale, t.f32(f"{at}.alpha", channels)),
        t.derived(_gain, t.f32(f"{at}.beta", channels)),
    )


def _flat(weight: Array) -> Array:
    return weight.reshape(weight.shape[:2])


def _transposed(weight: Array) -> Array:
    return np.ascontiguousarray(weight[:, 0].T)


def _channels_last(weight: Array) -> Array:
    return np.ascontiguousarray(weight.transpose(0, 2, 1))


def _as_plain(weight: Array, stride: int) -> Array:
    inputs, outputs, kernel = weight.shape
    split = weight.reshape(inputs, outputs, kernel // stride, stride)
    turned = split.transpose(3, 1, 2, 0)[:, :, ::-1]
    return np.ascontiguousarray(turned).reshape(stride * outputs, kernel // stride, inputs)


def _scale(alpha: Array) -> Array:
    with np.errstate(over="ignore"):
        return pad_to_multiple(np.exp(alpha), 0)


def _gain(beta: Array) -> Array:
    with np.errstate(over="ignore"):
        return pad_to_multiple(np.float32(1) / (np.exp(beta) + np.float32(1e-9)), 0)


# -- codebooks ------------------------------------------------------------------------------------


def codebook(t: Loader, at: str, name: str, codes: int, width: int) -> Array:
    """The entries [codes, width]; upstream stores their sums and how often each was used."""
    sums, usage = t.f32(f"{at}.{name}", codes, width), t.f32(f"{at}.cluster_usage", codes)
    return t.derived(_entries, sums, usage)


def _entries(sums: Array, usage: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        entries: Array = sums / np.maximum(usage, np.float32(_MIN_USAGE))[:, None]
    return entries
