"""Runs the cases whose kernels depend on the size of subgroups, and prints how they went as JSON.

For test_parity.py, in a process of its own: the software GPU reads once how wide it is to be.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from oscine.gpu.device import open_device, select_adapter
from oscine.gpu.plan import Plan
from oscine.ops.check import CASES, run_case
from oscine.ops.webgpu import Gpu

#: In subgroups of eight and more their lanes exchange values directly, else by shared memory.
EXCHANGING = {"gemm_skinny", "conv1d_skinny"}
#: The ops that are made of them; others call these.
OPS = ("linear ", "swiglu_linear ", "conv1d ")


class NotConcernedError(Exception):
    """The plan of a case has none of these kernels."""


class Exchanging(Gpu):
    """A GPU that takes only plans with these kernels."""

    def record(self, trace: Callable[[], None], until: Any = None, name: str = "") -> Plan:
        plan = super().record(trace, until, name)
        if name == "check" and EXCHANGING.isdisjoint(step.kernel for step in plan.dispatches):
            raise NotConcernedError
        return plan


def main() -> None:
    gpu, passed = Exchanging(open_device(select_adapter("gpu"))), {}
    for case in (case for case in CASES if case.name.startswith(OPS)):
        try:
            passed[case.name] = run_case(gpu, case, seed=len(case.name)).passed
        except NotConcernedError:
            continue
    ways = {
        f"{name} {dict(parameters)['WORKGROUP_REDUCE']}"
        for name, parameters in gpu.pipelines.compiled
        if name in EXCHANGING
    }
    print(json.dumps({"lanes": gpu.lanes, "ways": sorted(ways), "passed": passed}))


if __name__ == "__main__":
    main()
