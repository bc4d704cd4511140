"""Which backend loading ends up with."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from oscine import loading
from oscine.errors import DeviceError


@dataclass(frozen=True)
class FakeAdapter:
    implementation: str
    name: str = "a card"


def test_the_other_implementation_is_tried_where_the_first_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def checked(adapter: FakeAdapter) -> str:
        tried.append(adapter.implementation)
        if adapter.implementation == "dawn":
            raise DeviceError("fails its check")
        return "the backend"

    both = [FakeAdapter("dawn"), FakeAdapter("wgpu")]
    monkeypatch.setattr("oscine.gpu.device.candidates", lambda choice: both)
    monkeypatch.setattr(loading, "checked", checked)
    assert loading.open_gpu("gpu") == "the backend"
    assert tried == ["dawn", "wgpu"]


def test_the_first_problem_is_told_where_all_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(adapter: FakeAdapter) -> str:
        raise DeviceError(f"{adapter.implementation} fails its check")

    both = [FakeAdapter("dawn"), FakeAdapter("wgpu")]
    monkeypatch.setattr("oscine.gpu.device.candidates", lambda choice: both)
    monkeypatch.setattr(loading, "checked", checked)
    with pytest.raises(DeviceError, match="dawn fails"):
        loading.open_gpu("gpu")
