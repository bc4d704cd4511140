"""Tiles of products that are measured on a device by `oscine doctor --tune`, and their file.

Without a file, and where its entry is of another driver or version, DEFAULT_THRESHOLDS hold.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib.metadata import version
from math import ceil, exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from oscine.bench import time_replay
from oscine.files import read_bounded, write_error
from oscine.formats import write_result
from oscine.gpu.device import PACKAGES, Adapter
from oscine.gpu.tensor import Tensor
from oscine.hub import home
from oscine.ops import Linear
from oscine.ops.webgpu import Gpu
from oscine.ops.webgpu.thresholds import DEFAULT_THRESHOLDS, TileThresholds

logger = logging.getLogger(__name__)

FILE = "tuning.json"
MAX_FILE_BYTES = 1 << 20
MIN_GAIN = 0.03  # of the time, below which the default stays
COLD_BYTES = 64 << 20  # of the weights of few rows, which a step does not find in a cache
MAX_COLD_ROWS = 64
NEVER = 1 << 20  # as a threshold: no product of a model has as many workgroups, rows or outputs

#: Rows, outputs and depth of products in Whisper's, Parakeet's and Qwen3-TTS's networks.
MANY_ROWS = (
    *((1500, 512, 512), (1500, 2048, 512), (1500, 512, 2048)),
    *((1500, 1280, 1280), (1500, 5120, 1280), (1500, 1280, 5120)),
    *((375, 1024, 1024), (375, 4096, 1024), (375, 1024, 4096), (3000, 1024, 1024)),
)
WIDTHS = ((1280, 1280), (3840, 1280), (5120, 1280), (1280, 5120), (2048, 2048), (6144, 2048))
ONE_ROW = tuple((1, *width) for width in WIDTHS)
FEW_ROWS = tuple((16, *width) for width in WIDTHS)

Product = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Trial:
    """The values of a field of TileThresholds to try, and the products that show their worth."""

    field: str
    values: tuple[int, ...]
    products: tuple[Product, ...]
    dtype: type[Any]


TRIALS = (
    Trial("matrix_workgroups", (0, 30, 60, 90, 140, 200, NEVER), MANY_ROWS, np.float16),
    Trial("broad_workgroups", (0, 60, 120, 250, 500, NEVER), MANY_ROWS, np.float32),
    Trial("narrow_workgroups", (0, 32, 64, 128, 256), MANY_ROWS, np.float32),
    Trial("workgroup_rows", (0, 1024, 2048, 4096, NEVER), ONE_ROW, np.float16),
    Trial("narrow_outputs", (0, 1024, 2048, 4096), FEW_ROWS, np.float16),
    Trial("broad_outputs", (0, 2048, 4096, NEVER), FEW_ROWS, np.float16),
)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The thresholds of a device, and by field the share of time that its value saves."""

    thresholds: TileThresholds
    gains: Mapping[str, float]


# -- the measurement ------------------------------------------------------------------------------


def tune(gpu: Gpu, trials: Sequence[Trial] = TRIALS) -> Tuning:
    """Measure which thresholds make products fastest; it takes seconds, and ends with gpu's as
    they were. Raises DeviceError, DeviceMemoryError."""
    before, found, gains = gpu.thresholds, DEFAULT_THRESHOLDS, {}
    try:
        for trial in trials:
            if trial.field == "matrix_workgroups" and not gpu.matrix:
                continue
            times = measure(gpu, trial, found)
            value, gain = choose(times, getattr(DEFAULT_THRESHOLDS, trial.field))
            found = replace(found, **{trial.field: value})
            if gain:
                gains[trial.field] = gain
    finally:
        gpu.thresholds = before
    return Tuning(found, gains)


def measure(gpu: Gpu, trial: Trial, others: TileThresholds) -> dict[int, list[float]]:
    """Milliseconds of each product of a trial, by the value; equal dispatches are timed once."""
    times: dict[int, list[float]] = {value: [] for value in trial.values}
    for rows, outputs, depth in trial.products:
        nbytes = outputs * depth * np.dtype(trial.dtype).itemsize
        copies = 1 if rows > MAX_COLD_ROWS else ceil(COLD_BYTES / nbytes)
        on_matrix_units = trial.field == "matrix_workgroups"
        x = gpu.zeros((rows, depth), np.float16 if on_matrix_units else np.float32)
        weights = [gpu.zeros((outputs, depth), trial.dtype) for _ in range(copies)]
        known: dict[Any, float] = {}
        for value in trial.values:
            gpu.thresholds = replace(others, **{trial.field: value})
            plan = gpu.record(partial(multiply, gpu, x, weights))
            steps = frozenset(
                (step.kernel, step.grid, frozenset(step.parameters.items()))
                for step in plan.dispatches
            )
            if steps not in known:
                known[steps] = time_replay(gpu, plan)
            times[value].append(known[steps])
        gpu.release(x, *weights)
    return times


def multiply(gpu: Gpu, x: Tensor, weights: Sequence[Tensor]) -> None:
    """The product of x with each of the weights, one after another."""
    for weight in weights:
        gpu.linear(x, Linear(weight, None))


def choose(times: Mapping[int, Sequence[float]], default: int) -> tuple[int, float]:
    """The value with the least times, each product counting alike, and the share that it saves.

    It is the default with a gain of 0 where no value saves MIN_GAIN. Of equal values it is the one
    nearest to the default.
    """
    scores = {value: fmean(map(log, each)) for value, each in times.items()}
    best = min(scores, key=lambda value: (scores[value], abs(value - default)))
    gain = 1 - exp(scores[best] - scores[default])
    return (best, gain) if gain >= MIN_GAIN else (default, 0.0)


# -- the file -------------------------------------------------------------------------------------


def adapter_key(adapter: Adapter) -> str:
    """What a tuning is valid for: the GPU, its driver, and the versions of what compiles kernels
    and of the kernels."""
    names = PACKAGES[adapter.implementation], "oscine"
    versions = [f"{name} {version(name)}" for name in names]
    return " | ".join((adapter.name, adapter.backend_type, adapter.driver, *versions))


def tuning_file() -> Path:
    """The file of tunings, by adapter, in oscine's folder."""
    return home() / FILE


def read_tunings() -> dict[str, Any]:
    """The entries of the file. Raises OSError, and ValueError where it is damaged."""
    try:
        found = json.loads(read_bounded(tuning_file(), MAX_FILE_BYTES))
    except FileNotFoundError:
        return {}
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it has no entries")
    return found


def load_thresholds(adapter: Adapter) -> TileThresholds:
    """The thresholds that were measured for an adapter, else the default ones.

    A file that cannot be read, or has other values than such thresholds, costs a warning.
    """
    try:
        entry = read_tunings().get(adapter_key(adapter))
        return DEFAULT_THRESHOLDS if entry is None else parse_thresholds(entry)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        logger.warning("%s is not used (%s); remove it", tuning_file(), reason)
    return DEFAULT_THRESHOLDS


def parse_thresholds(entry: Any) -> TileThresholds:
    """Thresholds of a file's entry. Raises ValueError for other names and values."""
    names = {field.name for field in fields(TileThresholds)}
    if not isinstance(entry, dict) or set(entry) != names:
        raise ValueError("an entry has other fields than thresholds")
    if not all(type(value) is int and 0 <= value <= NEVER for value in entry.values()):
        raise ValueError(f"a threshold is not a whole number up to {NEVER}")
    return TileThresholds(**entry)


def save_thresholds(adapter: Adapter, thresholds: TileThresholds) -> None:
    """Add an adapter's thresholds to the file, or replace them; other entries stay.

    Raises OscineError where the file cannot be written.
    """
    try:
        tunings = read_tunings()
    except (OSError, ValueError):
        tunings = {}
    tunings[adapter_key(adapter)] = asdict(thresholds)
    path = tuning_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from error
    write_result(path, json.dumps(tunings, indent=2))
