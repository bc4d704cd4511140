"""A network's tensors, described once: a builder asks a Loader for each by name and shape.

`load` runs the builder twice. The first run, over `Expect`, notes names and shapes and reads
nothing; these are compared with the checkpoint. The second run, over `Read`, reads. So what is
checked cannot differ from what is read, and nothing large is read before everything fits.

A builder must not look at the numbers or shapes of the arrays that it gets: `derived` does that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from oscine.bfloat16 import BFLOAT16, widen
from oscine.errors import CheckpointError
from oscine.ops import Linear, Norm, RmsNorm
from oscine.weights import Entry
from oscine.weights.source import Array, shown

Tree = TypeVar("Tree")
Shape = tuple[int, ...]

#: What `load` takes as dtype of the matrices; auto: as they are stored.
DTYPES = ("auto", "f32", "f16")
_NUMPY_TYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16)}
#: What Expect gives for every tensor.
_NOTHING = np.empty(0, np.float32)


class Loader(ABC):
    """Tensors by canonical name. Shapes are those of the file, [out, in, ...]."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = entries

    def has(self, name: str) -> bool:
        """Whether the file has a tensor, for what differs between formats."""
        return name in self.entries

    def shape(self, name: str) -> Shape:
        """The shape a tensor has in the file; () for one that is absent."""
        return self.entries[name].shape if name in self.entries else ()

    @abstractmethod
    def matrix(self, name: str, *shape: int) -> Array:
        """A tensor in the type in which it is stored; a view of the file where possible."""

    @abstractmethod
    def vector(self, name: str, *shape: int) -> Array:
        """A tensor of any rank as float32."""

    @abstractmethod
    def derived(self, function: Callable[..., Any], *parts: Any) -> Any:
        """function(*parts): whatever is computed from tensors, once they are read."""

    @abstractmethod
    def unused(self, name: str, *shape: int) -> None:
        """A tensor that may be in the file and is not read; its type does not matter."""

    @abstractmethod
    def cast(self, matrix: Array) -> Array:
        """A matrix, derived or not, in the type that the caller of `load` asked for."""

    def bias(self, name: str, *shape: int, present: bool = True) -> Array | None:
        """The bias of a layer; None where the layer has none."""
        return self.vector(f"{name}.bias", *shape) if present else None

    def linear(self, name: str, out: int, inputs: int, *, bias: bool = True) -> Linear:
        """A layer [out, in]."""
        weight = self.matrix(f"{name}.weight", out, inputs)
        return Linear(self.cast(weight), self.bias(name, out, present=bias))

    def pointwise(self, name: str, out: int, *inputs: int, bias: bool = True) -> Linear:
        """A convolution of one place, [out, in, 1 ...] in the file, as a layer [out, in]."""
        weight = self.derived(lambda w: w.reshape(w.shape[:2]), self.matrix(
            f"{name}.weight", out, *inputs))
        return Linear(self.cast(weight), self.bias(name, out, present=bias))

    def fused(self, names: Sequence[str], outs: Sequence[int], inputs: int) -> Linear:
        """Layers without biases, one below the other: [sum of outs, in]."""
        weights = [
            self.matrix(f"{name}.weight", out, inputs)
            for name, out in zip(names, outs, strict=True)
        ]
        return Linear(self.cast(self.derived(stacked, *weights)), None)

    def norm(self, name: str, width: int, eps: float = 1e-5) -> Norm:
        """A layer norm."""
        weight = self.vector(f"{name}.weight", width)
        return Norm(weight, self.vector(f"{name}.bias", width), eps)

    def rms_norm(self, name: str, width: int, eps: float) -> RmsNorm:
        """A norm that has a weight alone."""
        return RmsNorm(self.vector(f"{name}.weight", width), eps)


class Expect(Loader):
    """The first run: names and shapes, nothing is read."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        super().__init__(entries)
        self.expected: dict[str, Shape] = {}
        self.optional: dict[str, Shape] = {}
        self.matrices: set[str] = set()

    def matrix(self, name: str, *shape: int) -> Array:
        self.matrices.add(name)
        return self.vector(name, *shape)

    def vector(self, name: str, *shape: int) -> Array:
        self.expected[name] = shape
        return _NOTHING

    def derived(self, function: Callable[..., Any], *parts: Any) -> Any:
        return _NOTHING

    def unused(self, name: str, *shape: int) -> None:
        self.optional[name] = shape

    def cast(self, matrix: Array) -> Array:
        return matrix

    def compare(
        self,
        path: Path,
        own: Callable[[str], str] = str,
        ignored: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """Raise CheckpointError that names what is missing, unexpected or of wrong shape.

        `own` gives the file's name of a canonical one; tensors that are `ignored` may be there.
        """
        known = self.expected | self.optional
        misshapen = [
            f"{shown(own(name))} {list(entry.shape)} {entry.dtype}, not {list(known[name])}"
            for name, entry in self.entries.items()
            if (name in known and entry.shape != known[name])
            or (name in self.expected and entry.dtype.kind != "f")
        ]
        missing = [shown(own(name)) for name in self.expected.keys() - self.entries.keys()]
        extra = [
            shown(own(name)) for name in self.entries.keys() - known.keys() if not ignored(name)
        ]
        if missing or extra or misshapen:
            raise CheckpointError.tensors(path, missing=missing, extra=extra, misshapen=misshapen)


class Read(Loader):
    """The second run. `keep_bf16`: matrices stored as bfloat16 stay so, else they become float32."""

    def __init__(
        self, entries: Mapping[str, Entry], dtype: str = "auto", *, keep_bf16: bool = False
    ) -> None:
        super().__init__(entries)
        self.dtype = _NUMPY_TYPES.get(dtype)
        self.keep_bf16 = keep_bf16

    def matrix(self, name: str, *shape: int) -> Array:
        entry = self.entries[name]
        return entry.stored() if self.keep_bf16 else entry.read()

    def vector(self, name: str, *shape: int) -> Array:
        with np.errstate(invalid="ignore"):
            return self.entries[name].read().astype(np.float32, copy=False)

    def derived(self, function: Callable[..., Any], *parts: Any) -> Any:
        return function(*parts)

    def unused(self, name: str, *shape: int) -> None:
        pass

    def cast(self, matrix: Array) -> Array:
        return matrix if self.dtype is None else as_dtype(matrix, self.dtype)


def load(
    build: Callable[[Loader], Tree],
    path: Path,
    entries: Mapping[str, Entry],
    dtype: str = "auto",
    *,
    own: Callable[[str], str] = str,
    ignored: Callable[[str], bool] = lambda name: False,
    keep_bf16: bool = False,
) -> Tree:
    """The tree that `build` makes of a file's tensors, checked first.

    Args:
        path: What errors name.
        entries: The tensors by canonical name.
        dtype: One of DTYPES, for all matrices.
        own, ignored: See Expect.compare.
        keep_bf16: See Read.

    Raises:
        CheckpointError: tensors that are missing, unexpected or of wrong shape.
    """
    expect = Expect(entries)
    build(expect)
    expect.compare(path, own, ignored)
    return build(Read(entries, dtype, keep_bf16=keep_bf16))


def as_dtype(array: Array, dtype: np.dtype[Any]) -> Array:
    """A matrix of any type, bfloat16 included, as float16 or float32."""
    numbers = widen(array) if array.dtype == BFLOAT16 else array
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(dtype, copy=False)


def stacked(*parts: Array) -> Array:
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


