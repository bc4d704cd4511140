"""The sizes of passes: recorded ones, with little padding."""

from __future__ import annotations

import pytest

from oscine.engine.passes import pass_size
from oscine.ops.reference import Reference
from tests.engine.counting import Device


def sizes(count: int, largest: int, backend: Device | Reference) -> list[int]:
    """Of all passes over `count` inputs."""
    found: list[int] = []
    while count > 0:
        found.append(pass_size(count, largest, backend.bucket_rows))
        count -= found[-1]
    return found


@pytest.mark.parametrize(
    ("count", "largest", "expected"),
    [
        (1, 8, [1]),
        (3, 8, [2, 1]),
        (5, 8, [4, 1]),
        (6, 8, [4, 2]),
        (7, 8, [7]),  # a pass of 8 with an eighth of padding
        (8, 8, [8]),
        (20, 8, [8, 8, 4]),
        (13, 16, [8, 4, 1]),
        (14, 16, [14]),
        (7, 4, [4, 2, 1]),
        (3, 1, [1, 1, 1]),
    ],
)
def test_passes_have_recorded_sizes(count: int, largest: int, expected: list[int]) -> None:
    assert sizes(count, largest, Device(is_async=True)) == expected


def test_where_recording_is_free_a_pass_has_any_size() -> None:
    assert sizes(11, 8, Reference()) == [8, 3]
