"""Loads a network's weights: a builder function asks a Loader for each tensor by name and shape.

`load` runs the builder twice. The first run, with a `ShapeCheckLoader`, records names and shapes,
which are compared with the checkpoint. The second run, with an `ArrayLoader`, reads the tensors. So
the checks cannot differ from what is read, and nothing large is read before all names and shapes
match.

A builder may query the file with `has` and `shape`. It must not inspect the arrays that it gets,
since the first run returns placeholders; it computes with them in functions given to `derived`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from oscine.dtypes import BFLOAT16, to_f32
from oscine.errors import CheckpointError
from oscine.ops import LayerNorm, Linear, RmsNorm
from oscine.quantized import BLOCK, BLOCK_DTYPES, quantize
from oscine.threads import parallel_for
from oscine.weights import LazyTensor
from oscine.weights.mapped_file import Array, printable_name

Tree = TypeVar("Tree")
Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")
Shape = tuple[int, ...]

#: The values of `dtype` of `load`; auto: matrices keep the type of the file.
DTYPES = ("auto", "f32", "f16", "q8", "q4")
#: The dtype of matrices that are not in blocks. With q8 and q4 it is float16, which matrix units
#: take, and which rounds far less than the blocks do.
_FLOAT_DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "q8": np.dtype(np.float16),
    "q4": np.dtype(np.float16),
}
PIECE_BYTES = 4 << 20  # of a tensor that is converted in parallel
QUANTIZED_PIECE = 1 << 17  # weights that are quantized at a time, which stay in a cache
#: Stands for every array in the first run.
_PLACEHOLDER: Any = np.empty(0, np.float32)


class Loader(ABC):
    """A file's tensors by canonical name, with the shapes of the file: [out, in, ...]."""

    def __init__(
        self,
        path: Path,
        entries: Mapping[str, LazyTensor],
        original_name: Callable[[str], str] = str,
    ) -> None:
        """`path`: the file, for errors; `original_name`: turns a canonical name into the file's."""
        self.path = path
        self.entries = entries
        self._original_name = original_name

    def has(self, name: str) -> bool:
        """Whether the file has a tensor of this name; formats differ."""
        return name in self.entries

    def shape(self, name: str) -> Shape:
        """The shape of a tensor in the file; () if it is absent."""
        return self.entries[name].shape if name in self.entries else ()

    def original_name(self, name: str) -> str:
        """The file's own name of a tensor, safe to print."""
        return printable_name(self._original_name(name))

    @abstractmethod
    def raw(self, name: str, *shape: int) -> Array:
        """A tensor in the type of the file; a view of the file where possible."""

    @abstractmethod
    def products(self, names: Sequence[str], outs: Sequence[int], inputs: int) -> list[Array]:
        """The weights [out, inputs] of products that are cast together, raw.

        Where the file has all of them in the blocks that `load` is asked for, they are these
        blocks, which `cast` and `concat` keep.
        """

    @abstractmethod
    def f32(self, name: str, *shape: int) -> Array:
        """A tensor converted to float32."""

    @abstractmethod
    def derived(
        self,
        function: Callable[Arguments, Value],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Value:
        """The result of function(*args, **kwargs), which is called in the second run only."""

    @abstractmethod
    def cast(self, matrix: Array) -> Array:
        """The weight of a product, raw or derived, in the `dtype` of `load`.

        With q8 and q4 it is in blocks of that dtype if blocks divide its rows, else float16.
        """

    @abstractmethod
    def cast_float(self, array: Array) -> Array:
        """A table or convolution, raw or derived, in the `dtype` of `load`; with q8 and q4 float16.

        Kernels other than those of products read no blocks.
        """

    @abstractmethod
    def ignore(self, name: str, *shape: int) -> None:
        """Allow the file to have a tensor that is not read, of any type."""

    def bias(self, name: str, *shape: int, present: bool = True) -> Array | None:
        """The bias of a layer as float32; None unless `present`."""
        return self.f32(f"{name}.bias", *shape) if present else None

    def linear(self, name: str, out: int, inputs: int, *, bias: bool = True) -> Linear:
        """A linear layer; its weight is [out, inputs]."""
        (weight,) = self.products([f"{name}.weight"], [out], inputs)
        return Linear(self.cast(weight), self.bias(name, out, present=bias))

    def pointwise(self, name: str, out: int, *inputs: int, bias: bool = True) -> Linear:
        """A convolution of kernel size 1, [out, in, 1, ...] in the file, as a layer [out, in]."""
        weight = self.derived(_without_kernel_axes, self.raw(f"{name}.weight", out, *inputs))
        return Linear(self.cast(weight), self.bias(name, out, present=bias))

    def fused(
        self,
        names: Sequence[str],
        outs: Sequence[int],
        inputs: int,
        *,
        bias: bool | Sequence[bool] = False,
    ) -> Linear:
        """Several layers with the same input as one layer [sum of outs, inputs], in order.

        bias: whether each layer has one, or whether all do; where only some do, the others get
        zeros.
        """
        has_bias = [bias] * len(names) if isinstance(bias, bool) else bias
        layers = list(zip(names, outs, has_bias, strict=True))
        weights = self.products([f"{name}.weight" for name in names], outs, inputs)
        biases = [
            self.f32(f"{name}.bias", out) if present else self.derived(np.zeros, out, np.float32)
            for name, out, present in layers
        ]
        return Linear(
            self.cast(self.derived(concat, *weights)),
            self.derived(concat, *biases) if any(has_bias) else None,
        )

    def norm(self, name: str, width: int, eps: float = 1e-5) -> LayerNorm:
        """A LayerNorm with weight and bias."""
        return LayerNorm(self.f32(f"{name}.weight", width), self.f32(f"{name}.bias", width), eps)

    def rms_norm(self, name: str, width: int, eps: float) -> RmsNorm:
        """An RMSNorm, which has a weight but no bias."""
        return RmsNorm(self.f32(f"{name}.weight", width), eps)


class ShapeCheckLoader(Loader):
    """The loader of the first run: records names and shapes, reads nothing."""

    def __init__(
        self,
        path: Path,
        entries: Mapping[str, LazyTensor],
        original_name: Callable[[str], str] = str,
    ) -> None:
        super().__init__(path, entries, original_name)
        self.expected: dict[str, Shape] = {}
        self.optional: dict[str, Shape] = {}

    def raw(self, name: str, *shape: int) -> Array:
        return self.f32(name, *shape)

    def products(self, names: Sequence[str], outs: Sequence[int], inputs: int) -> list[Array]:
        return [self.raw(name, out, inputs) for name, out in zip(names, outs, strict=True)]

    def f32(self, name: str, *shape: int) -> Array:
        known = self.expected.setdefault(name, shape)
        assert known == shape, f"{name} is described twice, as {known} and {shape}"
        placeholder: Array = _PLACEHOLDER
        return placeholder

    def derived(
        self,
        function: Callable[Arguments, Value],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Value:
        placeholder: Value = _PLACEHOLDER
        return placeholder

    def cast(self, matrix: Array) -> Array:
        return matrix

    def cast_float(self, array: Array) -> Array:
        return array

    def ignore(self, name: str, *shape: int) -> None:
        self.optional[name] = shape

    def compare(self, ignored: Callable[[str], bool] = lambda name: False) -> None:
        """Raise CheckpointError for tensors that are missing, unexpected, misshapen or not floats.

        Tensors whose names are `ignored` may be present, with any shape and type.
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


class ArrayLoader(Loader):
    """The loader of the second run: reads the arrays."""

    def __init__(
        self,
        path: Path,
        entries: Mapping[str, LazyTensor],
        original_name: Callable[[str], str] = str,
        dtype: str = "auto",
        *,
        keep_bf16: bool = False,
    ) -> None:
        super().__init__(path, entries, original_name)
        self._dtype = _FLOAT_DTYPES.get(dtype)
        self._block_dtype = BLOCK_DTYPES.get(dtype)
        self._keep_bf16 = keep_bf16

    def raw(self, name: str, *shape: int) -> Array:
        entry = self.entries[name]
        return entry.raw() if self._keep_bf16 else entry.read()

    def products(self, names: Sequence[str], outs: Sequence[int], inputs: int) -> list[Array]:
        entries = [self.entries[name] for name in names]
        wanted = self._block_dtype
        if wanted is not None and all(entry.block_dtype == wanted for entry in entries):
            return [entry.blocks() for entry in entries]
        return [self.raw(name, out, inputs) for name, out in zip(names, outs, strict=True)]

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
        if matrix.dtype == self._block_dtype:
            return matrix
        if self._block_dtype is None or matrix.shape[1] % BLOCK:
            return self.cast_float(matrix)
        return quantized(matrix, self._block_dtype)

    def cast_float(self, array: Array) -> Array:
        return array if self._dtype is None else astype(array, self._dtype)

    def ignore(self, name: str, *shape: int) -> None:
        pass


def load(
    build: Callable[[Loader], Tree],
    path: Path,
    entries: Mapping[str, LazyTensor],
    dtype: str = "auto",
    *,
    original_name: Callable[[str], str] = str,
    ignored: Callable[[str], bool] = lambda name: False,
    keep_bf16: bool = False,
) -> Tree:
    """Build the tree of a network's weights, after checking names and shapes of the file.

    Args:
        build: Describes the network; called twice.
        path: The file, for errors.
        entries: The tensors by canonical name.
        dtype: One of DTYPES, for all matrices that `build` casts.
        original_name: Turns a canonical name into the file's own, for errors.
        ignored: Whether a tensor of this name may be in the file, with any shape and type.
        keep_bf16: Keep raw tensors that are stored as bfloat16; else they become float32.

    Raises:
        CheckpointError: a tensor is missing, unexpected, misshapen or not floating point.
    """
    checker = ShapeCheckLoader(path, entries, original_name)
    build(checker)
    checker.compare(ignored)
    return build(ArrayLoader(path, entries, original_name, dtype, keep_bf16=keep_bf16))


def stored_dtype(entry: LazyTensor) -> str:
    """The dtype of a tensor in the file: "bf16", "f16", or "f32" for all others."""
    if entry.load_raw is not None:
        return "bf16"
    return "f16" if entry.dtype == np.float16 else "f32"


def astype(array: Array, dtype: np.dtype[Any]) -> Array:
    """A matrix of any dtype, including bfloat16, as float16 or float32."""
    return array if array.dtype == dtype else _stack([array], dtype)


def quantized(matrix: Array, dtype: np.dtype[Any]) -> Array:
    """A matrix [outputs, inputs] of any dtype in blocks, made by all cores."""
    blocks = np.empty((len(matrix), matrix.shape[1] // BLOCK), dtype)

    def convert(rows: slice) -> None:
        blocks[rows] = quantize(to_f32(matrix[rows]), dtype)

    step = max(1, QUANTIZED_PIECE // matrix.shape[1])
    parallel_for(convert, [slice(at, at + step) for at in range(0, len(matrix), step)])
    return blocks


def concat(*parts: Array) -> Array:
    """Concatenate arrays along the first axis, in their common dtype, else in float32.

    The result is a view of the file where the file stores them contiguously, as files sorted by
    name store gate and up. More than half of a large model is then not copied.
    """
    dtypes = {part.dtype for part in parts}
    if len(dtypes) > 1:
        return _stack(parts, np.dtype(np.float32))
    if (view := _contiguous_view(parts)) is not None:
        return view
    if parts[0].dtype.names:  # NumPy would copy bfloat16 and blocks one by one
        kind = parts[0].dtype
        data = [np.ascontiguousarray(part).view(np.uint8) for part in parts]
        return _stack(data, np.dtype(np.uint8)).view(kind)
    return _stack(parts, parts[0].dtype)


def _stack(parts: Sequence[Array], dtype: np.dtype[Any]) -> Array:
    """Arrays of at least one axis one below the other, converted to a dtype by all cores."""
    stacked = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), dtype)
    pieces: list[tuple[Array, Array]] = []
    start = 0
    for part in parts:
        rows = max(1, PIECE_BYTES * len(part) // max(part.nbytes, 1))
        for at in range(0, len(part), rows):
            source = part[at : at + rows]
            pieces.append((stacked[start + at : start + at + len(source)], source))
        start += len(part)
    parallel_for(_convert_piece, pieces)
    return stacked


def _convert_piece(piece: tuple[Array, Array]) -> None:
    target, source = piece
    numbers = to_f32(source) if source.dtype == BFLOAT16 else source
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(target, numbers, casting="unsafe")


def _without_kernel_axes(weight: Array) -> Array:
    return weight.reshape(weight.shape[:2])


def _contiguous_view(parts: Sequence[Array]) -> Array | None:
    """One view over parts that a mapped file stores contiguously; None if it does not."""
    owner, first = _mmap_owner(parts[0]), parts[0]
    if owner is None or any(_mmap_owner(part) is not owner for part in parts):
        return None
    if not all(part.flags.c_contiguous for part in parts):
        return None
    if any(a.ctypes.data + a.nbytes != b.ctypes.data for a, b in pairwise(parts)):
        return None
    file = np.frombuffer(owner, np.uint8)
    start = first.ctypes.data - file.ctypes.data
    data = file[start : start + sum(part.nbytes for part in parts)]
    return data.view(first.dtype).reshape(-1, *first.shape[1:])


def _mmap_owner(array: Array) -> mmap | None:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return base if isinstance(base, mmap) else None
