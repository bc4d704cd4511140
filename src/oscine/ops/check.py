"""Every kernel compared with its NumPy definition, for tests, `oscine doctor` and loading.

One row of CASES an op and shape: ragged sizes, spiked inputs. A case runs three times through one
plan, on fresh numbers: a buffer reused too early or a state not advanced shows on a replay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.errors import DeviceError, DeviceLostError
from oscine.ops.cases import (
    Case,
    Values,
    attention,
    channels,
    conv,
    embedding,
    linear,
    mel,
    sampling,
    transducer,
)
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu

log = logging.getLogger(__name__)

Array = NDArray[Any]

CASES: tuple[Case, ...] = (
    *linear.CASES,
    *attention.CASES,
    *conv.CASES,
    *embedding.CASES,
    *mel.CASES,
    *sampling.CASES,
    *transducer.CASES,
    *channels.CASES,
)

#: The cases that run while a model loads, within a second: the ops whose failures users of other
#: engines saw as "!!!!!" (peers' issues), in the sizes of tiny.
SELF_CHECK = tuple(
    case
    for case in CASES
    if case.name.startswith(
        (
            "linear 1x384x1153",
            "projected attention 150",
            "attention 64",
            "cross_attention 4 sequences",
            "sample_token 4",
        )
    )
)


#: The difference that float16 factors of 11 bits may cause, as a share of the largest value. A
#: wrong index differs by far more.
MATRIX_LIMIT = 3e-3


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a case: the largest difference in three runs, as a share of the largest
    value."""

    case: Case
    error: float  # infinite where a value is not finite, or an integer differs
    kernels: tuple[str, ...]

    @property
    def limit(self) -> float:
        """The limit of the case, or that of matrix units where one was used."""
        matrix = any(kernel.endswith("_matrix") for kernel in self.kernels)
        return max(self.case.limit, MATRIX_LIMIT) if matrix else self.case.limit

    @property
    def passed(self) -> bool:
        """Whether the difference is within the limit."""
        return self.error <= self.limit


def run_case(gpu: ops.Backend, case: Case, seed: int = 0) -> Result:
    """Run a case three times through one plan, each time on fresh numbers."""
    return record_case(gpu, case, seed)()


def record_case(gpu: ops.Backend, case: Case, seed: int = 0) -> Callable[[], Result]:
    """Record the plan of a case, whose kernels begin to compile; the returned function runs it."""
    rng = np.random.default_rng(seed)
    reference = Reference()
    weights = case.weights(rng)
    theirs = {name: ops.upload(gpu, value) for name, value in weights.items()}
    ours = {name: ops.upload(reference, value) for name, value in weights.items()}
    first = case.inputs(rng)
    buffers = {name: gpu.zeros(value.shape, value.dtype) for name, value in first.items()}
    expected = case.call(reference, {name: v.copy() for name, v in first.items()}, ours)
    out = None if expected is None else gpu.zeros(expected.shape)

    def trace() -> None:
        result = case.call(gpu, buffers, theirs)
        if out is not None:
            gpu.store(result, out)

    plan = gpu.record(trace, name="check")

    def run() -> Result:
        worst = 0.0
        for inputs in (first, case.inputs(rng), case.inputs(rng)):
            for name, value in inputs.items():
                gpu.write(buffers[name], value)
            plan.run()
            given = {name: value.copy() for name, value in inputs.items()}
            expected = case.call(reference, inputs, ours)  # writes to `inputs`, as the plan does
            worst = max([worst, *differences(given, inputs, gpu, buffers)])
            if out is not None:
                worst = max(worst, difference(*valid(case, inputs, expected, gpu.read(out))))
        dispatches = getattr(plan, "dispatches", ())  # a GPU's alone
        kernels = dict.fromkeys(dispatch.kernel for dispatch in dispatches)
        return Result(case, worst, tuple(kernels))

    return run


def differences(given: Values, ours: Values, gpu: ops.Backend, buffers: Values) -> Iterator[float]:
    """The difference of every buffer after a run; one that NumPy left unchanged must be equal in
    bits."""
    for name, value in ours.items():
        found = gpu.read(buffers[name])
        if value.tobytes() == given[name].tobytes():
            yield 0.0 if found.tobytes() == value.tobytes() else np.inf
        else:
            yield difference(value, found)


def valid(case: Case, inputs: Values, expected: Array, found: Array) -> tuple[Array, Array]:
    """Both results without the rows of finished sequences, where those are undefined."""
    if not case.row_mask:
        return expected, found
    running = inputs[case.row_mask]["done"] == 0
    batch = len(running)
    return expected.reshape(batch, -1)[running], found.reshape(batch, -1)[running]


def difference(expected: Array, found: Array) -> float:
    """Largest difference as a share of the largest value; integers, and NEG_INF, must be equal."""
    if not expected.size:
        return 0.0
    if expected.dtype.names is not None:
        return max(difference(expected[name], found[name]) for name in expected.dtype.names)
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(expected, found) else np.inf
    expected, found = (x.astype(np.float32, copy=False) for x in (expected, found))
    if not np.isfinite(found).all():
        return np.inf
    never = expected <= ops.NEG_INF
    if not np.array_equal(never, found <= ops.NEG_INF):
        return np.inf
    top = np.abs(expected, where=~never, out=np.zeros(expected.shape)).max()
    return float(np.abs(found - expected).max() / max(top, 1e-6))


def self_check(gpu: Gpu) -> None:
    """Run SELF_CHECK, without matrix units where they fail it, which a warning says.

    Raises DeviceError where a kernel differs from its definition.
    """
    if gpu.matrix is not None:
        try:
            failed = failed_self_check(gpu)
            problem = f"{failed.case.name} differs by {failed.error:.1e}" if failed else ""
        except DeviceLostError:
            raise
        except DeviceError as refusal:
            problem = str(refusal)
        if not problem:
            return
        log.warning("%s: its %s matrix units are not used (%s)", gpu.name, gpu.matrix, problem)
        gpu.matrix = None
    failed = failed_self_check(gpu)
    if failed:
        raise DeviceError(
            f"{gpu.name} fails its check against NumPy ({failed.case.name}: "
            f"{failed.error:.1e}); "
            'see `oscine doctor`, or use device="cpu"'
        )


def failed_self_check(gpu: Gpu) -> Result | None:
    """The first case of SELF_CHECK that differs from its definition. Raises DeviceError."""
    results = (run() for run in [record_case(gpu, case) for case in SELF_CHECK])
    return next((result for result in results if not result.passed), None)
