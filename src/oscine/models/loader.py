"""A network's tensors, described once: a builder asks a Loader for each by name and shape.

`load` runs the builder twice. The first run, over `Expect`, notes names and shapes and reads
nothing; these are compared with the checkpoint. The second run, over `Read`, reads. So what is
checked cannot differ from what is read, and nothing large is read before everything fits.

A builder may ask `has` and `shape` about the file, and must not look at the arrays that it gets:
in the first run there are none. Whatever is computed from them is a function given to `derived`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from oscine.bfloat16 import BFLOAT16, widen
from oscine.errors import CheckpointError
from oscine.ops import Linear, Norm, RmsNorm
from oscine.weights import Entry
from oscine.weights.source import Array, shown

Tree = TypeVar("Tree")
Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")
Shape = tuple[int, ...]

#: What `load` takes as dtype of the matrices; auto: as they are stored.
DTYPES = ("auto", "f32", "f16")
_NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
}
#: What the first run gives in place of every array.
_NOTHING: Any = np.empty(0, np.float32)


class Loader(ABC):
    """The tensors of a file by canonical name; shapes are those of the file, [out, in, ...]."""

    def __init__(
        self,
        path: Path,
        entries: Mapping[str, Entry],
        original_name: Callable[[str], str] = str,
    ) -> None:
        """`path`: what errors name; `original_name`: how the file spells a canonical name."""
        self.path = path
        self.entries = entries
        self._original_name = original_name

    def has(self, name: str) -> bool:
        """Whether the file has a tensor, for what differs between formats."""
        return name in self.entries

    def shape(self, name: str) -> Shape:
        """The shape a tensor has in the file; () for one that is absent."""
        return self.entries[name].shape if name in self.entries else ()

    def original_name(self, name: str) -> str:
        """A canonical name as the file spells it, fit for a message."""
        return shown(self._original_name(name))

    @abstractmethod
    def raw(self, name: str, *shape: int) -> Array:
        """A tensor in the type in which it is stored; a view of the file where possible."""

    @abstractmethod
    def f32(self, name: str, *shape: int) -> Array:
        """A tensor as float32."""

    @abstractmethod
    def derived(
        self,
        function: Callable[Arguments, Value],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Value:
        """function(*args, **kwargs), called in the second run only; of arrays or of trees."""

    @abstractmethod
    def cast(self, matrix: Array) -> Array:
        """A matrix, raw or derived, in the type that the caller of `load` asked for."""

    @abstractmethod
    def unused(self, name: str, *shape: int) -> None:
        """A tensor that the file may have and that is not read; its type does not matter."""

    def bias(self, name: str, *shape: int, present: bool = True) -> Array | None:
        """The bias of a layer, float32; None where the layer has none."""
        return self.f32(f"{name}.bias", *shape) if present else None

    def linear(self, name: str, out: int, inputs: int, *, bias: bool = True) -> Linear:
        """A layer [out, in]."""
        weight = self.raw(f"{name}.weight", out, inputs)
        return Linear(self.cast(weight), self.bias(name, out, present=bias))

    def pointwise(self, name: str, out: int, *inputs: int, bias: bool = True) -> Linear:
        """A convolution over one place, [out, in, 1 ...] in the file, as a layer [out, in]."""
        weight = self.derived(_flat, self.raw(f"{name}.weight", out, *inputs))
        return Linear(self.cast(weight), self.bias(name, out, present=bias))

    def fused(
        self,
        names: Sequence[str],
        outs: Sequence[int],
        inputs: int,
        *,
        bias: bool | Sequence[bool] = False,
    ) -> Linear:
        """Layers of the same input as one, [sum of outs, in], in the order of their names.

        bias: whether each has one, or all have; zeros stand in where only some have.
        """
        biased = [bias] * len(names) if isinstance(bias, bool) else bias
        layers = list(zip(names, outs, biased, strict=True))
        weights = [self.raw(f"{name}.weight", out, inputs) for name, out, _ in layers]
        biases = [
            self.f32(f"{name}.bias", out) if one else self.derived(np.zeros, out, np.float32)
            for name, out, one in layers
        ]
        return Linear(
            self.cast(self.derived(concat, *weights)),
            self.derived(concat, *biases) if any(biased) else None,
        )

    def norm(self, name: str, width: int, eps: float = 1e-5) -> Norm:
        """A layer norm."""
        return Norm(self.f32(f"{name}.weight", width), self.f32(f"{name}.bias", width), eps)

    def rms_norm(self, name: str, width: int, eps: float) -> RmsNorm:
        """A norm that has a weight alone."""
        return RmsNorm(self.f32(f"{name}.weight", width), eps)


class Expect(Loader):
    """The first run: names and shapes; nothing is read."""

    def __init__(
        self,
        path: Path,
        entries: Mapping[str, Entry],
        original_name: Callable[[str], str] = str,
    ) -> None:
        super().__init__(path, entries, original_name)
        self.expected: dict[str, Shape] = {}
        self.optional: dict[str, Shape] = {}

    def raw(self, name: str, *shape: int) -> Array:
        return self.f32(name, *shape)

    def f32(self, name: str, *shape: int) -> Array:
        known = self.expected.setdefault(name, shape)
        assert known == shape, f"{name} is described twice, as {known} and {shape}"
        nothing: Array = _NOTHING
        return nothing

    def derived(
        self,
        function: Callable[Arguments, Value],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Value:
        nothing: Value = _NOTHING
        return nothing

    def cast(self, matrix: Array) -> Array:
        return matrix

    def unused(self, name: str, *shape: int) -> None:
        self.optional[name] = shape

    def compare(self, ignored: Callable[[str], bool] = lambda name: False) -> None:
        """Raise CheckpointError that names what is missing, unexpected, misshapen or not floating.

        Tensors whose names are `ignored` may be there, of any shape and type.
        """
        known = self.optional | self.expected
        misshapen = [
            f"{self.original_name(name)} {list(entry.shape)} {entry.dtype}, not {list(known[name])}"
            for name, entry in self.entries.items()
            if name in known and entry.shape != known[name]
        ]
        not_floating = [
            f"{self.original_name(name)} {list(entry.shape)} {entry.dtype}"
            for name, entry in self.entries.items()
            if name in self.expected and entry.dtype.kind != "f"
        ]
        missing = self.expected.keys() - self.entries.keys()
        extra = [name for name in self.entries if name not in known and not ignored(name)]
        if missing or extra or misshapen or not_floating:
            raise CheckpointError.tensors(
                self.path,
                missing=map(self.original_name, missing),
                extra=map(self.original_name, extra),
                misshapen=misshapen,
                not_floating=not_floating,
            )


class Read(Loader):
    """The second run: the arrays."""

    def __init__(
        self,
        path: Path,
        entries: Mapping[str, Entry],
        original_name: Callable[[str], str] = str,
        dtype: str = "auto",
        *,
        keep_bf16: bool = False,
    ) -> None:
        super().__init__(path, entries, original_name)
        self._dtype = _NUMPY_TYPES.get(dtype)
        self._keep_bf16 = keep_bf16

    def raw(self, name: str, *shape: int) -> Array:
        entry = self.entries[name]
        return entry.stored() if self._keep_bf16 else entry.read()

    def f32(self, name: str, *shape: int) -> Array:
        with np.errstate(invalid="ignore"):
            return self.entries[name].read().astype(np.float32, copy=False)

    def derived(
        self,
        function: Callable[Arguments, Value],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Value:
        return function(*args, **kwargs)

    def cast(self, matrix: Array) -> Array:
        return matrix if self._dtype is None else astype(matrix, self._dtype)

    def unused(self, name: str, *shape: int) -> None:
        pass


def load(
    build: Callable[[Loader], Tree],
    path: Path,
    entries: Mapping[str, Entry],
    dtype: str = "auto",
    *,
    original_name: Callable[[str], str] = str,
    ignored: Callable[[str], bool] = lambda name: False,
    keep_bf16: bool = False,
) -> Tree:
    """The tree that `build` makes of a file's tensors, checked before anything is read.

    Args:
        build: Describes the network; called twice.
        path: What errors name.
        entries: The tensors by canonical name.
        dtype: One of DTYPES, for all matrices that `build` casts.
        original_name: How the file spells a canonical name, for errors.
        ignored: Names of tensors that may be in the file, of any shape and type.
        keep_bf16: Whether raw tensors stored as bfloat16 stay so; else they become float32.

    Raises:
        CheckpointError: tensors that are missing, unexpected, of wrong shape or not floating point.
    """
    expect = Expect(path, entries, original_name)
    build(expect)
    expect.compare(ignored)
    return build(Read(path, entries, original_name, dtype, keep_bf16=keep_bf16))


def stored_type(entry: Entry) -> str:
    """In what a tensor is stored: "bf16", "f16", or "f32" for every other type."""
    if entry.load_bits is not None:
        return "bf16"
    return "f16" if entry.dtype == np.float16 else "f32"


def astype(array: Array, dtype: np.dtype[Any]) -> Array:
    """A matrix of any type, bfloat16 included, as float16 or float32."""
    numbers = widen(array) if array.dtype == BFLOAT16 else array
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(dtype, copy=False)


def concat(*parts: Array) -> Array:
    """Arrays one below the other, in their type if it is the same one, else in float32.

    A view of the file where it has them so, as files sorted by name have gate and up: more than
    half of a large model is not copied then.
    """
    kinds = {part.dtype for part in parts}
    if len(kinds) > 1:
        return np.concatenate([astype(part, np.dtype(np.float32)) for part in parts])
    if (whole := _neighbours(parts)) is not None:
        return whole
    if kinds == {BFLOAT16}:  # NumPy copies records one by one
        return np.concatenate([part.view(np.uint16) for part in parts]).view(BFLOAT16)
    return np.concatenate(parts)


def _flat(weight: Array) -> Array:
    return weight.reshape(weight.shape[:2])


def _neighbours(parts: Sequence[Array]) -> Array | None:
    """Parts stored one after another in one mapped file, as one view; None where they are not."""
    owner, first = _owner(parts[0]), parts[0]
    if owner is None or any(_owner(part) is not owner for part in parts):
        return None
    if not all(part.flags.c_contiguous for part in parts):
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
