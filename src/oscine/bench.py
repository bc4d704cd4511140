"""Measures a model on its device, for `oscine bench` and the programs in benchmarks/.

A family measures its own parts (`Family.bench`) with the functions of this file, and yields a
`Measurement` for each. `measure_limits` measures what the device reaches at best, so that a part is
reported as a share of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oscine.dtypes import dtype_name
from oscine.gpu.tensor import Tensor
from oscine.ops import Backend, Linear, Plan
from oscine.quantized import BLOCK_DTYPES
from oscine.threads import count, parallel_for
from oscine.tree import tree_leaves

T = TypeVar("T")

WARM_UP_S = 0.5  # that a GPU takes to raise its clock
MIN_RUN_S = 0.02  # of replays that are timed together, beside which the final wait is short
LONG_REPLAY_S = 0.005  # a replay that takes longer is not tried at a larger size
MAX_REPLAYS = 200
COPY_MIB = (16, 64, 128)  # WebGPU assures bindings of 128 MiB
PRODUCT_SIZES = (512, 1024, 2048, 4096)  # rows, inputs and outputs


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What is measured: batch sizes, repeats of each value, seconds of the made recording."""

    batches: tuple[int, ...]
    repeats: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The times of one case, and the work that is done in them.

    Args:
        case: Its name: "encoder", "step", "recording".
        per: What each time is of: "window", "step", "frame".
        times_ms: One value for each repeat.
        batch: How many windows, rows or voices are computed side by side.
        audio_s: Seconds of audio in each time, where that is a speed.
        flop: Floating-point operations in each time; 0: not counted.
        nbytes: Bytes of the device's memory that are read at least in each time; 0: not counted.
        dtype: Of the weights, as oscine.dtypes names it.
        details: Further values by name, which are reported as they are.
    """

    case: str
    per: str
    times_ms: Sequence[float]
    batch: int = 1
    audio_s: float = 0.0
    flop: float = 0.0
    nbytes: float = 0.0
    dtype: str = ""
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def ms(self) -> float:
        """The median time."""
        return median(self.times_ms)

    def to_dict(self, limits: DeviceLimits) -> dict[str, Any]:
        """The measurement as an object for JSON, with shares of what the device reaches."""
        found: dict[str, Any] = {
            "case": self.case, "batch": self.batch, "per": self.per, "dtype": self.dtype,
            "ms": self.ms, "spread_ms": [min(self.times_ms), max(self.times_ms)],
            "repeats": len(self.times_ms),
        }  # fmt: skip
        if self.audio_s:
            found["times_real_time"] = 1000 * self.audio_s / self.ms
        if self.flop:
            found["tflops"] = self.flop / self.ms / 1e9
            multiplied = "f16" if self.dtype in BLOCK_DTYPES else self.dtype
            rate = limits.product_tflops.get(multiplied, limits.product_tflops["f32"])
            found["product_share"] = found["tflops"] / rate
        if self.nbytes:
            found["bandwidth_gbs"] = self.nbytes / self.ms / 1e6
            found["bandwidth_share"] = found["bandwidth_gbs"] / limits.bandwidth_gbs
        return found | dict(self.details)


# -- timing -----------------------------------------------------------------------------------


def time_runs(work: Callable[[], object], repeats: int) -> list[float]:
    """Milliseconds of each run of `work`, after WARM_UP_S seconds and at least one run of it."""
    began = perf_counter()
    work()
    while perf_counter() - began < WARM_UP_S:
        work()
    return [time_once(work)[0] for _ in range(repeats)]


def time_once(work: Callable[[], T]) -> tuple[float, T]:
    """Milliseconds of one run of `work`, and its result."""
    started = perf_counter()
    result = work()
    return 1000 * (perf_counter() - started), result


def time_replay(backend: Backend, plan: Plan) -> float:
    """Milliseconds of a replay of a plan: the mean of so many that the final wait is short."""

    def replay(times: int) -> float:
        started = perf_counter()
        plan.run(times)
        backend.wait()
        return perf_counter() - started

    replay(1)
    times = max(1, min(MAX_REPLAYS, round(MIN_RUN_S / replay(1))))
    return 1000 * median(replay(times) for _ in range(3)) / times


def time_steps(
    backend: Backend,
    step: Plan,
    state: Sequence[Any],
    prepare: Callable[[], None],
    repeats: int,
    *,
    bursts: int = 8,
    steps_per_burst: int = 16,
) -> list[float]:
    """Milliseconds a step, in bursts whose state is read one burst behind, as the engine does.

    Each value is the mean of `bursts` bursts, after `prepare`, which is not timed. `state`: the
    tensors that are read.
    """
    times: list[float] = []
    warm_until, warm_up_runs = perf_counter() + WARM_UP_S, 0
    while len(times) < repeats + warm_up_runs:
        if perf_counter() < warm_until or not times:
            warm_up_runs = len(times) + 1
        prepare()
        backend.wait()
        started = perf_counter()
        reads: list[Callable[[], object]] = []
        for _ in range(bursts):
            step.run(steps_per_burst)
            reads.append(backend.snapshot(*state))
            if len(reads) > 1:
                reads.pop(0)()
        reads.pop()()
        times.append(1000 * (perf_counter() - started) / (bursts * steps_per_burst))
    return times[warm_up_runs:]


def run_together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of calls that run at once, each in a thread of its own."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result() for each in [pool.submit(call) for call in calls]]


# -- what the work is -------------------------------------------------------------------------


def tensor_bytes(tree: Any) -> int:
    """The bytes on the device of all tensors in a tree of weights."""
    kinds: tuple[type, ...] = (np.ndarray, Tensor)
    return sum(int(tensor.nbytes) for kind in kinds for tensor in tree_leaves(tree, kind))


def made_sound(seconds: float, rate: int = 16_000) -> NDArray[np.float32]:
    """Sound with the level and rhythm of speech, float32 [seconds · rate]; always the same.

    Harmonics of a gliding pitch and noise, in four syllables a second.
    """
    t = np.arange(round(seconds * rate)) / rate
    phase = 2 * np.pi * np.cumsum(140 + 40 * np.sin(2 * np.pi * 0.31 * t)) / rate
    voiced = sum(np.sin(n * phase) / n for n in range(1, 16))
    noise = np.random.default_rng(0).standard_normal(len(t))
    syllables = np.clip(np.sin(2 * np.pi * 4 * t) + 0.3, 0, None)
    sound: NDArray[np.float32] = (0.1 * syllables * (voiced + 0.2 * noise)).astype(np.float32)
    return sound


# -- what the device reaches at best ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a device reaches: GB/s of a copy, read and written; TFLOP/s of a product, by dtype."""

    bandwidth_gbs: float
    product_tflops: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The limits as an object for JSON."""
        return {"bandwidth_gbs": self.bandwidth_gbs, "product_tflops": dict(self.product_tflops)}


def measure_limits(backend: Backend) -> DeviceLimits:
    """Measure a device by a copy and by matrix products with float16 and float32 weights.

    Raises DeviceError, DeviceMemoryError.
    """
    rates = {}
    for dtype in (np.float16, np.float32):
        stored = dtype_name(backend.upload(np.zeros((4, 4), dtype)).dtype)
        if stored not in rates:  # NumPy stores float32 alone
            rates[stored] = product_rate(backend, dtype) / 1e12
    return DeviceLimits(copy_bandwidth(backend) / 1e9, rates)


def copy_bandwidth(backend: Backend) -> float:
    """Bytes a second that a copy reads and writes, at a size that no cache holds."""
    rate, width = 0.0, 1024
    for size in COPY_MIB:
        shape = (size << 20) // (4 * width), width
        source, target = backend.zeros(shape), backend.zeros(shape)
        try:
            spent = time_replay(backend, copy_plan(backend, source, target)) / 1000
        finally:
            backend.release(source, target)
        rate = 2 * (size << 20) / spent
        if spent > LONG_REPLAY_S:
            break
    return rate


class HostCopy:
    """A plan that copies an array on all cores."""

    def __init__(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        self.source, self.target = source, target

    def run(self, times: int = 1) -> None:
        """Copy the array `times` times."""
        rows, parts = len(self.source), count()
        cuts = [slice(rows * n // parts, rows * (n + 1) // parts) for n in range(parts)]
        for _ in range(times):
            parallel_for(self.copy, cuts)

    def copy(self, rows: slice) -> None:
        """Copy some rows."""
        self.target[rows] = self.source[rows]


def copy_plan(backend: Backend, source: Any, target: Any) -> Plan:
    """A plan that copies one tensor [R, C] to another."""
    if isinstance(source, np.ndarray):  # the definition of the op copies it twice, on one core
        return HostCopy(source, target)
    width = source.shape[1]
    return backend.record(lambda: backend.store(backend.slice_columns(source, 0, width), target))


def product_rate(backend: Backend, dtype: type[Any]) -> float:
    """Floating-point operations a second of the fastest matrix product."""
    best, noise = 0.0, np.random.default_rng(0).standard_normal(1 << 20, np.float32)
    for size in PRODUCT_SIZES:
        values = np.resize(noise, (size, size))
        x, y = backend.zeros((size, size)), backend.zeros((size, size))
        backend.write(x, values)
        weight = backend.upload((values / size).astype(dtype))
        spent = time_replay(backend, product_plan(backend, x, weight, y)) / 1000
        backend.release(x, y, weight)
        best = max(best, 2.0 * size**3 / spent)
        if spent > LONG_REPLAY_S:
            break
    return best


def product_plan(backend: Backend, x: Any, weight: Any, y: Any) -> Plan:
    """A plan of y = x Wᵀ."""
    return backend.record(lambda: backend.store(backend.linear(x, Linear(weight, None)), y))
