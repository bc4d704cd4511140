"""Memory budgets: the forms that state one, what a backend counts, and what goes beyond it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oscine.budget import UNITS, Budget, MemoryLimit, free_memory, size_text
from oscine.errors import MemoryBudgetError, UsageError
from oscine.ops import check_free_memory
from oscine.ops.reference import Reference

GIB = 1 << 30


@given(
    st.integers(1, 10**6),
    st.integers(0, 999),
    st.sampled_from(sorted(UNITS)),
    st.sampled_from([str, str.lower, str.upper]),
    st.sampled_from(["", " ", "  "]),
)
def test_a_number_and_a_unit_are_bytes(
    whole: int, thousandths: int, unit: str, case: Any, space: str
) -> None:
    text = case(f"{whole}.{thousandths:03}{space}{unit}")
    expected = int(Fraction(whole * 1000 + thousandths, 1000) * UNITS[unit])
    assert MemoryLimit.of(text) == MemoryLimit(expected)


@given(st.integers(1, 10**18 - 1))
def test_bytes_are_taken_as_a_number_and_as_text(nbytes: int) -> None:
    assert MemoryLimit.of(nbytes) == MemoryLimit.of(f" {nbytes} ") == MemoryLimit(nbytes)
    assert MemoryLimit.of(np.int64(nbytes)) == MemoryLimit(nbytes)


@given(st.integers(1, 10**15 - 1))
def test_a_size_that_a_message_names_is_enough(nbytes: int) -> None:
    named = MemoryLimit.of(size_text(nbytes)).nbytes
    assert nbytes <= named <= math.ceil(nbytes * 1.001)


@given(st.one_of(st.text(max_size=12), st.from_regex(r"[0-9.]{0,4} ?[kmgti%b]{0,3}")))
@example("4G")
@example("1.5")
@example("٣GB")
@example("0.1B")
@example("101%")
def test_any_text_is_a_size_or_a_mistake_of_one_line(text: str) -> None:
    try:
        limit = MemoryLimit.of(text)
    except UsageError as error:
        assert "\n" not in str(error) and "4GB, 800MB, 1.5GiB or 50%" in str(error)
    else:
        assert limit.nbytes >= 1 if limit.percent is None else 0 < limit.percent <= 100


@pytest.mark.parametrize(
    "value",
    ["", "GB", "4G", "1.5", "-1", "-1GB", "1e9", "0", "0GB", "0%", "0.000000001%", "100.1%", "nan",
     "inf", "4 G B",
     "50 % free", 0, -1, True, 1.5, None, b"4GB", ["4GB"]],
)  # fmt: skip
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="memory must be a size such as 4GB"):
        MemoryLimit.of(value)


def test_a_share_is_of_the_memory_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oscine.budget.free_memory", lambda: 8 * GIB)
    budget = Budget("NumPy", in_host_memory=True)
    for text, expected in (("50%", 4 * GIB), ("12.5%", GIB), ("100%", 8 * GIB)):
        budget.set_limit(MemoryLimit.of(text))
        assert budget.limit == expected
    with pytest.raises(UsageError, match="a card does not tell how much of its memory is free"):
        Budget("a card", in_host_memory=False).set_limit(MemoryLimit.of("50%"))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 400)), max_size=30))
def test_what_is_alive_is_counted_and_never_goes_beyond_the_limit(
    events: list[tuple[bool, int]],
) -> None:
    backend, alive = Reference(), list[np.ndarray]()
    backend.budget.set_limit(MemoryLimit(4000))
    for makes, size in events:
        if not makes:
            alive[: size // 100] = []
        elif 4 * size + sum(array.nbytes for array in alive) > 4000:
            with pytest.raises(MemoryBudgetError):
                backend.zeros((size,))
        else:
            alive.append(backend.zeros((size,)))
        assert backend.budget.used == sum(array.nbytes for array in alive) <= 4000
        assert backend.memory_limits()[1] == backend.budget.free == 4000 - backend.budget.used


def test_weights_count_as_a_backend_holds_them_and_once() -> None:
    backend = Reference()
    half, whole = np.zeros((4, 8), np.float16), np.zeros((4, 8), np.float32)
    held = [backend.upload(half), backend.upload(whole), backend.upload(whole)]
    assert backend.budget.used == 2 * whole.nbytes
    view = backend.view(held[0], (2, 2))
    del held, whole
    assert backend.budget.used == 128 and view.shape == (2, 2)  # of what is seen all is there
    del view
    assert backend.budget.used == 0


def test_of_a_budget_all_may_be_used_and_of_free_memory_a_share() -> None:
    backend, free = Reference(), free_memory()
    if free is not None:
        with pytest.raises(Exception, match="50% of the memory that is free"):
            check_free_memory(backend, 10 * free, share=0.5)
    backend.budget.set_limit(MemoryLimit(1000))
    check_free_memory(backend, 1000, share=0.5)
    with pytest.raises(MemoryBudgetError, match=r"at least 1\.001KB .* budget is 1KB; use a la"):
        check_free_memory(backend, 1001)


@pytest.mark.gpu
def test_a_gpu_counts_every_buffer_that_is_there(device: Any) -> None:
    from oscine.ops.webgpu import Gpu

    gpu = Gpu(device)
    gpu.memory.staging.clear()
    before = gpu.budget.used
    gpu.budget.set_limit(MemoryLimit(before + 4096))
    one, two = gpu.zeros((256,)), gpu.upload(np.ones((512,), np.float32))
    assert gpu.budget.used == before + 3072 and gpu.memory_limits()[1] == 1024
    with pytest.raises(MemoryBudgetError):
        gpu.zeros((257,))
    gpu.release(two)
    assert gpu.budget.used == before + 1024
    assert gpu.read(one).tolist() == [0] * 256  # whose copy for the host is counted too
    assert gpu.budget.used == before + 2048
    large = gpu.zeros((768,))  # spare copies for the host make room
    assert gpu.budget.used == before + 4096
    del one, large
    assert gpu.budget.used == before
