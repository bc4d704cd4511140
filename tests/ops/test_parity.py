"""Every op on the GPU against its NumPy meaning; the table is oscine.ops.check.CASES."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.gpu.device import Device
from oscine.gpu.kernels import kernel_files
from oscine.ops.cases import Case, Values, noise
from oscine.ops.cases.conv import conv_subsampling_case
from oscine.ops.check import CASES, run_case
from oscine.ops.webgpu import Gpu, conv

pytestmark = pytest.mark.gpu

#: Asked of the device when it is opened, and of no model.
AT_OPENING = {"subgroup_size_probe"}
#: Run where there are matrix units; elsewhere tests/ops/test_matrix_units.py does what it can.
ON_MATRIX_UNITS = {
    "attention_matrix", "gemm_matrix", "pad_positions", "rel_pos_attention_matrix",
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_op_equals_its_meaning(gpu: Gpu, case: Case) -> None:
    result = run_case(gpu, case, seed=len(case.name))
    print(f"{case.name}: largest difference {result.error:.2e} of the largest value")
    assert result.passed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_op_equals_its_meaning_without_subgroups(plain_gpu: Gpu, case: Case) -> None:
    assert run_case(plain_gpu, case, seed=len(case.name)).passed


@pytest.mark.parametrize(
    "case", [case for case in CASES if "x1280" in case.name], ids=lambda case: case.name
)
def test_op_equals_its_meaning_in_blocks(device: Device, case: Case) -> None:
    blocks = Gpu(device)
    blocks.workgroup_rows = True  # as on hardware; software is spared the barriers
    assert run_case(blocks, case, seed=1).passed
    used = [dict(parameters).get("ROW_REDUCE") for _, parameters in blocks.pipelines.compiled]
    assert "workgroup" in used


def test_op_equals_its_meaning_in_subgroups_of_eight(device: Device) -> None:
    """tools/software_gpu.sh asks for subgroups of four, in which two kernels go another way."""
    if not device.adapter.software or "subgroups" not in device.features:
        pytest.skip("the size of this device's subgroups cannot be set")
    program = Path(__file__).with_name("in_eights.py")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True,
        env=os.environ | {"LP_NATIVE_VECTOR_WIDTH": "256"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["lanes"] == 8
    assert found["ways"] == ["conv1d_skinny subgroup", "gemm_skinny subgroup"]
    assert len(found["passed"]) > 20 and all(found["passed"].values()), found["passed"]


def test_a_slot_that_only_the_gpu_writes_is_a_difference(gpu: Gpu) -> None:
    def call(backend: Any, x: Values, w: Values) -> None:
        if backend is gpu:
            backend.store(backend.activate(x["x"], "relu"), x["other"])

    def values(rng: np.random.Generator) -> Values:
        return {"x": noise(rng, 4, 8), "other": noise(rng, 4, 8)}

    assert not run_case(gpu, Case("one side alone", values, call)).passed


@pytest.mark.parametrize(
    ("tile_bytes", "tile"), [(1, (1, 1)), (9 * 4 * 2 * 20 * 8, (8, 1)), (1 << 26, (21, 2))]
)
def test_subsampling_in_tiles_equals_its_meaning(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tile_bytes: int, tile: tuple[int, int]
) -> None:
    """Of a frame, of eight (the last of an utterance is not full), of everything."""
    monkeypatch.setattr(conv, "TILE_BYTES", tile_bytes)
    case = conv_subsampling_case(2, 163, 80, 8)
    result = run_case(gpu, case, seed=1)
    print(f"largest difference {result.error:.2e} of the largest value")
    assert result.passed
    assert conv.tile_shape(2, 21, [80, 40, 20, 10], 8) == tile


def test_the_table_has_every_kernel(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded and not run: the cases above run them."""

    class RecordedError(Exception):
        """The kernels of a plan that is about to be made."""

    record = Gpu.record

    def only_recorded(self: Gpu, trace: Any, until: Any = None, name: str = "") -> Any:
        plan = record(self, trace, until, name)
        if name == "check":
            raise RecordedError({step.kernel for step in plan.dispatches})
        return plan

    monkeypatch.setattr(Gpu, "record", only_recorded)
    kernels: set[str] = set()
    for case in CASES:
        with pytest.raises(RecordedError) as recorded:
            run_case(gpu, case)
        kernels |= recorded.value.args[0]
    names = set(kernel_files())
    needless = AT_OPENING if gpu.matrix else AT_OPENING | ON_MATRIX_UNITS
    assert kernels == {name for name in names if not name.startswith("_")} - needless
