"""Conversions to float16 that the kernel before them makes in its store."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from oscine.gpu.kernels import choices_of
from oscine.gpu.plan import Dispatch, ProbePoint
from oscine.gpu.tensor import Tensor


def fuse_f16_stores(dispatches: list[Dispatch], probe_points: list[ProbePoint]) -> None:
    """Drop each `to_f16` whose operand one kernel computes for it alone: that stores float16.

    The rounding is the same, so results are the same bits. Such a kernel has the choice STORE, and
    its result is its last operand. Changes both lists in place; probes show the float16.
    """
    users: dict[int, list[int]] = defaultdict(list)
    for index, dispatch in enumerate(dispatches):
        for tensor in {id(t): t for t in dispatch.tensors}.values():
            users[id(tensor)].append(index)
    fused: dict[int, Tensor] = {}
    dropped: list[int] = []
    for index, dispatch in enumerate(dispatches):
        if dispatch.kernel != "to_f16":
            continue
        x, y = dispatch.tensors
        producer = users[id(x)][0]
        if users[id(x)] != [producer, index] or not stores_f16(dispatches[producer], x):
            continue
        if (
            x.buffer is not None
            or x.nbytes != 2 * y.nbytes
            or touches(dispatches[producer:index], y)
        ):
            continue
        before = dispatches[producer]
        before.tensors = (*before.tensors[:-1], y)
        before.parameters = {**before.parameters, "STORE": "f16"}
        fused[id(x)] = y
        dropped.append(index)
    for number, point in enumerate(probe_points):
        removed = sum(index < point.after for index in dropped)
        tensor = fused.get(id(point.tensor), point.tensor)
        probe_points[number] = replace(point, tensor=tensor, after=point.after - removed)
    for index in reversed(dropped):
        del dispatches[index]


def stores_f16(dispatch: Dispatch, x: Tensor) -> bool:
    """Whether a dispatch computes x, its last operand, and can store it in float16."""
    return (
        dispatch.tensors[-1] is x
        and dispatch.parameters.get("STORE", "f32") == "f32"
        and "f16" in choices_of(dispatch.kernel).get("STORE", ())
    )


def touches(dispatches: list[Dispatch], y: Tensor) -> bool:
    """Whether one of these dispatches reads or writes y, or what is in its buffer."""
    return any(
        tensor is y or (y.buffer is not None and tensor.buffer is y.buffer)
        for dispatch in dispatches
        for tensor in dispatch.tensors
    )
