"""Shadow mode (OSCINE_CHECK=1): each op on both sides at once, stopping at the first that differs.

A debugger: it is slow, since every op waits for the GPU, but it names the op, its call and its
shapes in the middle of a real run. After each op the GPU is given NumPy's result, so that
a difference belongs to the op it is found in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.errors import DeviceError
from oscine.gpu.tensor import Tensor
from oscine.ops import Ops
from oscine.ops.check import MATRIX_LIMIT, difference
from oscine.ops.effects import op_effects
from oscine.ops.reference import Reference, ReferencePlan
from oscine.ops.webgpu import Gpu
from oscine.tree import tree_leaves, tree_map

DIFFERENCE_LIMIT = MATRIX_LIMIT  # a wrong kernel differs by far more, rounding by less

OP_EFFECTS = op_effects(Ops)


class Pair:
    """A tensor of both sides: NumPy's and the GPU's."""

    def __init__(self, reference: NDArray[Any], gpu: Tensor) -> None:
        self.reference, self.gpu = reference, gpu
        self.shape = reference.shape


def side(tree: Any, name: str) -> Any:
    """A tree of operands with each pair replaced by its `name` side."""
    return tree_map(attrgetter(name), tree, Pair)


def running_rows(
    running: NDArray[np.bool_] | None, *arrays: NDArray[Any]
) -> tuple[NDArray[Any], ...]:
    """Arrays reduced to the rows of running sequences, where others are undefined."""
    if running is None:
        return arrays
    return tuple(array.reshape(len(running), -1, array.shape[-1])[running] for array in arrays)


class Shadow:
    """A backend whose tensors are pairs and which compares every op. See oscine.ops.Backend."""

    preferred_batch, encode_batch = Gpu.preferred_batch, Gpu.encode_batch
    f16_cross_kv, is_async, batch_invariant = Gpu.f16_cross_kv, False, False
    reads_blocks = Gpu.reads_blocks

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.reference = gpu, Reference()
        self.budget, self.computes_features = gpu.budget, gpu.computes_features
        self.name = f"{gpu.name}, checked op by op"
        self.calls = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in OP_EFFECTS:
            raise AttributeError(name)
        return lambda *operands, **options: self.both(name, operands, options)

    def both(self, name: str, operands: tuple[Any, ...], options: dict[str, Any]) -> Pair | None:
        """Run an op on both sides and compare its result and the operands that it declares to
        write."""
        self.calls += 1
        everything, effects = [*operands, *options.values()], OP_EFFECTS[name]
        arguments = signature(getattr(self.reference, name)).bind(*operands, **options).arguments
        running = (
            arguments[effects.row_mask].rows.reference["done"] == 0 if effects.row_mask else None
        )
        expected = getattr(self.reference, name)(
            *(side(tree, "reference") for tree in operands),
            **{key: side(tree, "reference") for key, tree in options.items()},
        )
        out = None if expected is None else self.gpu.zeros(expected.shape)

        def trace() -> None:
            result = getattr(self.gpu, name)(
                *(side(tree, "gpu") for tree in operands),
                **{key: side(tree, "gpu") for key, tree in options.items()},
            )
            if out is not None:
                self.gpu.store(result, out)

        self.gpu.record(trace).run()
        for pair in tree_leaves(effects.written(arguments), Pair):
            self.compare(name, everything, pair.reference, self.gpu.read(pair.gpu))
        if out is None:
            return None
        self.compare(name, everything, *running_rows(running, expected, self.gpu.read(out)))
        self.gpu.write(out, expected)
        return Pair(expected, out)

    def compare(
        self, name: str, operands: list[Any], expected: NDArray[Any], actual: NDArray[Any]
    ) -> None:
        """Raise DeviceError where the two sides of an op differ."""
        error = difference(expected, actual)
        if error > DIFFERENCE_LIMIT:
            shapes = ", ".join(str(tree.shape) for tree in operands if isinstance(tree, Pair))
            raise DeviceError(
                f"{self.gpu.name}: {name} (call {self.calls}, operands {shapes}) differs from "
                f"NumPy by {error:.1e} of the largest value"
            )

    # -- memory and time ----------------------------------------------------------------------

    def upload(self, array: NDArray[Any]) -> Pair:
        return Pair(self.reference.upload(array), self.gpu.upload(array))

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Pair:
        return Pair(self.reference.zeros(shape, dtype), self.gpu.zeros(shape, dtype))

    def view(self, buffer: Pair, shape: tuple[int, ...]) -> Pair:
        expected = self.reference.view(buffer.reference, shape)
        return Pair(expected, self.gpu.view(buffer.gpu, shape))

    def memory_limits(self) -> tuple[int, int | None]:
        return self.gpu.memory_limits()

    def copy(self, source: Pair, target: Pair, pairs: Sequence[tuple[int, int]]) -> None:
        self.reference.copy(source.reference, target.reference, pairs)
        self.gpu.copy(source.gpu, target.gpu, pairs)

    def release(self, *buffers: Pair) -> None:
        self.gpu.release(*(buffer.gpu for buffer in buffers))

    def write(self, tensor: Pair, array: NDArray[Any], at: int = 0) -> None:
        self.reference.write(tensor.reference, array, at)
        self.gpu.write(tensor.gpu, array, at)

    def read(self, buffer: Pair) -> NDArray[Any]:
        return self.reference.read(buffer.reference)

    def wait(self) -> None:
        """Both sides have finished when an op returns."""

    def snapshot(self, *buffers: Pair) -> Callable[[], tuple[NDArray[Any], ...]]:
        return self.reference.snapshot(*(buffer.reference for buffer in buffers))

    def record(
        self,
        trace: Callable[[], None],
        until: Pair | None = None,
        name: str = "",
    ) -> ReferencePlan:
        return ReferencePlan(trace, None if until is None else until.reference)

    def finish_compiling(self) -> None:
        """Each op waits for its own kernels."""

    def bucket_length(self, length: int) -> int:
        return length

    def bucket_rows(self, count: int) -> int:
        return count

    def bucket_frames(self, count: int) -> int:
        return count

    def reshape(self, x: Pair, shape: tuple[int, ...]) -> Pair:
        gpu = Tensor(shape, x.gpu.dtype, x.gpu.buffer)
        return Pair(x.reference.reshape(shape), gpu)

    def probe(self, name: str, x: Pair) -> None:
        self.reference.probe(name, x.reference)

    def trace(self) -> dict[str, tuple[int, float]]:
        return {}

    def store(self, x: Pair, buffer: Pair) -> None:
        self.reference.store(x.reference, buffer.reference)
        self.gpu.write(buffer.gpu, buffer.reference)
