"""Every op on the GPU against its NumPy meaning; the table is oscine.ops.check.CASES."""

from __future__ import annotations

import pytest

from oscine.ops.check import CASES, Case, differences
from oscine.ops.gpu import Gpu


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_op_equals_its_meaning(gpu: Gpu, case: Case) -> None:
    error = differences(gpu, case, seed=len(case.name))
    print(f"{case.name}: largest difference {error:.2e} of the largest value")
    assert error < case.limit
