"""Batches of windows: each is computed as if it were alone, and nothing else is taken for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oscine import ops
from oscine.ops import ConvParams
from oscine.ops.reference import Reference

OPS = Reference()


def noise(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("stride", [1, 2])
def test_each_is_padded_and_added_to_by_itself(stride: int) -> None:
    x = noise(1, 3 * 9, 5)
    conv, add = ops.Linear(noise(2, 4, 3, 5), noise(3, 4)), noise(4, -(-9 // stride), 4)
    found = OPS.conv1d(x, conv, ConvParams.same(3, stride), activation="gelu", add=add, batch=3)
    for window, y in zip(np.split(x, 3), np.split(found, 3), strict=True):
        alone = OPS.conv1d(window, conv, ConvParams.same(3, stride), activation="gelu", add=add)
        np.testing.assert_array_equal(y, alone)


def test_each_attends_to_itself() -> None:
    qkv = noise(1, 4 * 7, 3 * 2 * 5)
    found = OPS.attention(qkv, 2, batch=4)
    for window, y in zip(np.split(qkv, 4), np.split(found, 4), strict=True):
        np.testing.assert_array_equal(y, OPS.attention(window, 2))


@pytest.mark.parametrize("name", ["numpy", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_what_is_no_batch_of_windows_is_refused(request: pytest.FixtureRequest, name: str) -> None:
    backend: Any = OPS if name == "numpy" else request.getfixturevalue("gpu")
    x, qkv, y = backend.zeros((8, 4)), backend.zeros((8, 24)), backend.zeros((8, 8))
    conv = ops.Linear(backend.zeros((8, 3, 4)), backend.zeros((8,)))
    refused: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("8 rows are not 3 windows", lambda: backend.attention(qkv, 2, batch=3)),
        (
            "8 rows do not divide",
            lambda: backend.conv1d(x, conv, ConvParams.same(3), batch=3),
        ),
        (
            "cannot be added to windows",
            lambda: backend.conv1d(x, conv, ConvParams(0), add=y, batch=2),
        ),
        (
            "cannot be added to windows",
            lambda: backend.conv1d(x, conv, ConvParams.same(3, 2), add=y),
        ),
    )
    for message, call in refused:
        with pytest.raises(ValueError, match=message):
            backend.record(call).run()
