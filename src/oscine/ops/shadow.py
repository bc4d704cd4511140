"""Shadow mode (OSCINE_CHECK=1): each op on both sides at once, stopping at the first that differs.

The debugger of the house: slow, since every op waits for the GPU, but it names the op, its call
and its shapes in the middle of a real run. After each op the GPU is given NumPy's result, so that
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
from oscine.ops.facts import facts_of
from oscine.ops.reference import Reference, ReferencePlan
from oscine.ops.webgpu import Gpu
from oscine.tree import tree_leaves, tree_map

LIMIT = MATRIX_LIMIT  # a wrong kernel differs by far more, rounding by less

OPS = facts_of(Ops)


class Pair:
    """A tensor of both sides: NumPy's and the GPU's."""

    def __init__(self, ours: NDArray[Any], theirs: Tensor) -> None:
        self.ours, self.theirs = ours, theirs
        self.shape = ours.shape


def side(tree: Any, name: str) -> Any:
    """A tree of operands with each pair replaced by its `name` side."""
    return tree_map(attrgetter(name), tree, Pair)


def valid(running: NDArray[np.bool_] | None, *arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Arrays reduced to the rows of running sequences, where others are undefined."""
    if running is None:
        return arrays
    return tuple(array.reshape(len(running), -1, array.shape[-1])[running] for array in arrays)


class Shadow:
    """A backend whose tensors are pairs and which compares every op. See oscine.ops.Backend."""

    preferred_batch, encode_batch = Gpu.preferred_batch, Gpu.encode_batch
    f16_cross_kv, is_async, batch_invariant = Gpu.f16_cross_kv, False, False

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.reference = gpu, Reference()
        self.budget = gpu.budget
        self.name = f"{gpu.name}, checked op by op"
        self.calls = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in OPS:
            raise AttributeError(name)
        return lambda *operands, **options: self.both(name, operands, options)

    def both(self, name: str, operands: tuple[Any, ...], options: dict[str, Any]) -> Pair | None:
        """Run an op on both sides and compare its result and the operands that it declares to
        write."""
        self.calls += 1
        everything, facts = [*operands, *options.values()], OPS[name]
        given = signature(getattr(self.reference, name)).bind(*operands, **options).arguments
        running = given[facts.masked].rows.ours["done"] == 0 if facts.masked else None
        ours = getattr(self.reference, name)(
            *(side(tree, "ours") for tree in operands),
            **{key: side(tree, "ours") for key, tree in options.items()},
        )
        out = None if ours is None else self.gpu.zeros(ours.shape)

        def trace() -> None:
            result = getattr(self.gpu, name)(
                *(side(tree, "theirs") for tree in operands),
                **{key: side(tree, "theirs") for key, tree in options.items()},
            )
            if out is not None:
                self.gpu.store(result, out)

        self.gpu.record(trace).run()
        for pair in tree_leaves(facts.written(given), Pair):
            self.compare(name, everything, pair.ours, self.gpu.read(pair.theirs))
        if out is None:
            return None
        self.compare(name, everything, *valid(running, ours, self.gpu.read(out)))
        self.gpu.write(out, ours)
        return Pair(ours, out)

    def compare(
        self, name: str, operands: list[Any], ours: NDArray[Any], found: NDArray[Any]
    ) -> None:
        """Raise DeviceError where the two sides of an op differ."""
        error = difference(ours, found)
        if error > LIMIT:
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
        ours = self.reference.view(buffer.ours, shape)
        return Pair(ours, self.gpu.view(buffer.theirs, shape))

    def memory_limits(self) -> tuple[int, int | None]:
        return self.gpu.memory_limits()

    def copy(self, source: Pair, target: Pair, pairs: Sequence[tuple[int, int]]) -> None:
        self.reference.copy(source.ours, target.ours, pairs)
        self.gpu.copy(source.theirs, target.theirs, pairs)

    def release(self, *buffers: Pair) -> None:
        self.gpu.release(*(buffer.theirs for buffer in buffers))

    def write(self, tensor: Pair, array: NDArray[Any], at: int = 0) -> None:
        self.reference.write(tensor.ours, array, at)
        self.gpu.write(tensor.theirs, array, at)

    def read(self, buffer: Pair) -> NDArray[Any]:
        return self.reference.read(buffer.ours)

    def wait(self) -> None:
        """Both sides have finished when an op returns."""

    def snapshot(self, *buffers: Pair) -> Callable[[], tuple[NDArray[Any], ...]]:
        return self.reference.snapshot(*(buffer.ours for buffer in buffers))

    def record(
        self,
        trace: Callable[[], None],
        until: Pair | None = None,
        name: str = "",
    ) -> ReferencePlan:
        return ReferencePlan(trace, None if until is None else until.ours)

    def bucket_length(self, length: int) -> int:
        return length

    def bucket_rows(self, count: int) -> int:
        return count

    def bucket_frames(self, count: int) -> int:
        return count

    def reshape(self, x: Pair, shape: tuple[int, ...]) -> Pair:
        theirs = Tensor(shape, x.theirs.dtype, x.theirs.buffer)
        return Pair(x.ours.reshape(shape), theirs)

    def probe(self, name: str, x: Pair) -> None:
        self.reference.probe(name, x.ours)

    def trace(self) -> dict[str, tuple[int, float]]:
        return {}

    def store(self, x: Pair, buffer: Pair) -> None:
        self.reference.store(x.ours, buffer.ours)
        self.gpu.write(buffer.theirs, buffer.ours)
