"""Runs kernels in a process with OSCINE_ROBUST=1; prints JSON.

Whether the implementation says that it checks (null where it does not tell), the worst difference
from NumPy, what a code beside its table gives, and what is in the table.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np

from oscine import ops
from oscine.gpu.device import open_device, select_adapter
from oscine.ops.check import CASES, run_case
from oscine.ops.webgpu import Gpu

READING = ("embed", "transducer_step", "joint_network", "sum_embeddings", "codebook_lookup")


def worst(gpu: Gpu) -> float:
    """Of one case of some ops that read an index: those that are quick to compile."""
    cases = [next(c for c in CASES if c.name.split()[0] == name) for name in READING]
    return max(run_case(gpu, case).error / case.limit for case in cases)


def beside(gpu: Gpu) -> tuple[list[float], list[float]]:
    """What `code_embedding`, which trusts its codes, reads for one that is none; and its table."""
    table = (1 + np.arange(20, dtype=np.float32)).reshape(5, 4)
    rows = np.zeros(1, ops.TALKER_STATE)
    rows["token"] = 5_000_000
    told = ops.TalkerState(
        gpu.upload(rows), gpu.zeros((1, 1, 1), np.uint32), gpu.zeros((1, 1), np.uint32)
    )
    held, total, out = gpu.upload(table), gpu.zeros((1, 4)), gpu.zeros((1, 4))
    gpu.record(lambda: gpu.store(gpu.code_embedding(held, told, total, overwrite=True), out)).run()
    return gpu.read(out).reshape(-1).tolist(), table.reshape(-1).tolist()


def says(gpu: Gpu) -> bool | None:
    """What Dawn's device says of its toggles."""
    if gpu.device.adapter.implementation != "dawn":
        return None
    extras: Any = importlib.import_module("wgpudawn.backends.dawn.extras")
    return "disable_robustness" not in extras.get_toggles(gpu.device.handle)


if __name__ == "__main__":
    gpu = Gpu(open_device(select_adapter("gpu")))
    checked = says(gpu)
    error = worst(gpu)
    found, table = beside(gpu)
    print(json.dumps({"checked": checked, "error": error, "found": found, "table": table}))
