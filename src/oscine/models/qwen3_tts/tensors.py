"""The tensors of one file, held against what is expected, and the forms in which they are taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from mmap import mmap

import numpy as np

from oscine.bfloat16 import BFLOAT16, widen
from oscine.errors import CheckpointError
from oscine.models.qwen3_tts.config import Stack
from oscine.models.qwen3_tts.shapes import Shapes
from oscine.ops import Linear, Norm, RmsNorm, Snake
from oscine.weights import Checkpoint
from oscine.weights.source import Array, shown

_LEAST_USAGE = 1e-5  # of a codebook's entry; upstream's epsilon


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


class Tensors:
    """Reads by name. Nothing is read before all names and shapes have been compared."""

    def __init__(
        self, checkpoint: Checkpoint, expected: Shapes, optional: Shapes, ignored: str = ""
    ) -> None:
        """`optional`: may be absent; `ignored`: a prefix of names that are not looked at.

        Raises CheckpointError that names what is missing, unexpected or of wrong shape.
        """
        self.path, self.entries = checkpoint.path, checkpoint.tensors
        known = expected | optional
        misshapen = [
            f"{shown(name)} {list(entry.shape)} {entry.dtype}, not {list(known[name])}"
            for name, entry in self.entries.items()
            if (name in known and entry.shape != known[name])
            or (name in expected and entry.dtype.kind != "f")
        ]
        missing = expected.keys() - self.entries.keys()
        extra = self.entries.keys() - known.keys()
        if ignored:
            extra = {name for name in extra if not name.startswith(ignored)}
        if missing or extra or misshapen:
            raise CheckpointError.tensors(
                self.path, missing=missing, extra=map(shown, extra), misshapen=misshapen
            )

    def stored(self, name: str) -> Array:
        """A matrix in the type that the file has; a view of it."""
        with np.errstate(invalid="ignore"):
            return self.entries[name].stored()

    def wide(self, name: str) -> Array:
        """As float32."""
        with np.errstate(invalid="ignore"):
            return self.entries[name].read().astype(np.float32, copy=False)

    def matrix(self, name: str) -> Linear:
        """As stored, with its bias if there is one."""
        return Linear(self.stored(f"{name}.weight"), self.bias(name))

    def joined(self, names: Sequence[str]) -> Linear:
        """Matrices without biases, one below the other, as stored."""
        return Linear(stacked([self.stored(f"{name}.weight") for name in names]), None)

    def linear(self, name: str) -> Linear:
        """A matrix as float32; a convolution that sees one place is one."""
        weight = self.wide(f"{name}.weight")
        return Linear(weight.reshape(weight.shape[:2]), self.bias(name))

    def bias(self, name: str) -> Array | None:
        """That of a layer [O], float32; None where it has none."""
        return self.wide(f"{name}.bias") if f"{name}.bias" in self.entries else None

    def rms(self, name: str, eps: float) -> RmsNorm:
        """A norm that has a weight alone."""
        return RmsNorm(self.wide(f"{name}.weight"), eps)

    def norm(self, name: str, eps: float) -> Norm:
        """A layer norm."""
        return Norm(self.wide(f"{name}.weight"), self.wide(f"{name}.bias"), eps)

    def snake(self, name: str) -> Snake:
        """Its two factors, of which logarithms are stored."""
        with np.errstate(over="ignore"):
            scale = np.exp(self.wide(f"{name}.alpha"))
            gain = np.float32(1) / (np.exp(self.wide(f"{name}.beta")) + np.float32(1e-9))
        return Snake(scale, gain)

    def convolution(self, name: str) -> Linear:
        """[O, I, K] as [O, K, I]."""
        weight = self.wide(f"{name}.weight").transpose(0, 2, 1)
        return Linear(np.ascontiguousarray(weight), self.bias(name))

    def depthwise(self, name: str) -> Linear:
        """[C, 1, K] as [K, C]."""
        return Linear(np.ascontiguousarray(self.wide(f"{name}.weight")[:, 0].T), self.bias(name))

    def upsampling(self, name: str, stride: int) -> Linear:
        """A transposed convolution [I, O, K], K a multiple of s, as a plain one [s·O, K / s, I].

        Output s t + j is the sum over m of W[:, :, m s + j] times input t - m, so row j O + o has
        that of the earliest input first. The bias comes s times.
        """
        weight, bias = self.wide(f"{name}.weight"), self.wide(f"{name}.bias")
        inputs, outputs, kernel = weight.shape
        split = weight.reshape(inputs, outputs, kernel // stride, stride)
        turned = split.transpose(3, 1, 2, 0)[:, :, ::-1]
        folded = np.ascontiguousarray(turned).reshape(stride * outputs, kernel // stride, inputs)
        return Linear(folded, np.tile(bias, stride))

    def codebook(self, at: str, name: str) -> Array:
        """The entries themselves [N, d]: upstream keeps their sums and how often each was used."""
        usage = np.maximum(self.wide(f"{at}.cluster_usage"), np.float32(_LEAST_USAGE))
        with np.errstate(over="ignore", invalid="ignore"):
            table: Array = self.wide(f"{at}.{name}") / usage[:, None]
        return table

    def blocks(self, at: str, stack: Stack) -> tuple[Block, ...]:
        """Layers whose heads are normalised, as stored."""
        return tuple(self._block(f"{at}.layers.{layer}", stack) for layer in range(stack.layers))

    def _block(self, at: str, stack: Stack) -> Block:
        head = f"{at}.self_attn"
        return Block(
            norm=self.rms(f"{at}.input_layernorm", stack.eps),
            qkv=self.joined([f"{head}.{part}_proj" for part in "qkv"]),
            q_norm=self.wide(f"{head}.q_norm.weight"),
            k_norm=self.wide(f"{head}.k_norm.weight"),
            out=self.matrix(f"{head}.o_proj"),
            mlp_norm=self.rms(f"{at}.post_attention_layernorm", stack.eps),
            gate_up=self.joined([f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"]),
            down=self.matrix(f"{at}.mlp.down_proj"),
        )


def stacked(parts: Sequence[Array]) -> Array:
    """One below the other, in their type if it is the same one, else in float32.

    A view of the file where it has them so, as files sorted by name have gate and up: more than
    half of a large model is not copied then.
    """
    kinds = {part.dtype for part in parts}
    if len(kinds) > 1:
        parts = [
            widen(part) if part.dtype == BFLOAT16 else part.astype(np.float32, copy=False)
            for part in parts
        ]
    elif (whole := _neighbours(parts)) is not None:
        return whole
    elif kinds == {BFLOAT16}:  # NumPy copies records one by one
        return np.concatenate([part.view(np.uint16) for part in parts]).view(BFLOAT16)
    return np.concatenate(parts)


def _neighbours(parts: Sequence[Array]) -> Array | None:
    """What lies one after another in one mapped file, seen as one."""
    owner, first = _owner(parts[0]), parts[0]
    if owner is None or any(_owner(part) is not owner for part in parts):
        return None
    if any(a.ctypes.data + a.nbytes != b.ctypes.data for a, b in pairwise(parts)):
        return None
    file = np.frombuffer(owner, np.uint8)
    start = first.ctypes.data - file.ctypes.data
    data = file[start : start + sum(part.nbytes for part in parts)]
    return data.view(first.dtype).reshape(-1, *first.shape[1:])


def _owner(array: Array) -> mmap | None:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap) else None


def scaled(linear: Linear, scale: Array) -> Linear:
    """With what multiplies every output folded in; float32."""
    bias = None if linear.bias is None else linear.bias * scale
    return Linear(linear.weight * scale[:, None], bias)
