"""Shadow mode: silent where both sides agree, and at a wrong kernel a stop that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.errors import DeviceError
from oscine.models.whisper.decode import Decoder
from oscine.models.whisper.request import Request
from oscine.models.whisper.weights import load_weights
from oscine.ops import Linear
from oscine.ops.gpu import Gpu
from oscine.ops.reference import Reference
from oscine.ops.shadow import Shadow

pytestmark = pytest.mark.gpu

GOLDEN = Path(__file__).resolve().parent.parent / "goldens" / "whisper_multi"
REQUEST = Request(
    prompt=(312, 315, 318),
    sot=0,
    suppress=(),
    suppress_first=(),
    end=311,
    timestamp_begin=323,
    no_timestamps=322,
    no_speech=321,
    timestamps=True,
    max_initial_timestamp=None,
    limit=3,
)


def decode(backend: Any) -> Any:
    """A window of noise through the golden model."""
    decoder = Decoder(load_weights(GOLDEN), backend)
    mel = np.random.default_rng(7).standard_normal((220, 24)).astype(np.float32)
    decoder.encode([mel])
    return decoder.decode([REQUEST])


def test_a_right_gpu_passes_with_numpys_result(gpu: Gpu) -> None:
    shadow = Shadow(gpu)
    assert decode(shadow) == decode(Reference())
    assert shadow.calls > 50
    assert shadow.name == f"{gpu.name}, checked op by op"


@pytest.mark.parametrize("op", ["conv1d", "attend_cross", "pick"])
def test_a_wrong_kernel_is_named(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    right = getattr(Gpu, op)

    def conv1d(self: Gpu, x: Any, conv: Linear, **options: Any) -> Any:
        return right(self, x, Linear(conv.weight, None), **options)

    def attend_cross(self: Gpu, q: Any, kv: Any, heads: int) -> Any:
        return right(self, q, kv, 1)

    def pick(self: Gpu, logits: Any, mask: Any, rules: Any, state: Any) -> None:
        pass

    monkeypatch.setattr(Gpu, op, locals()[op])
    with pytest.raises(
        DeviceError, match=rf"{op} \(call \d+, operands \(.*\)\) differs from NumPy"
    ):
        decode(Shadow(gpu))


def test_what_is_no_op_is_no_attribute(gpu: Gpu) -> None:
    with pytest.raises(AttributeError):
        _ = Shadow(gpu).softmax
    assert Shadow(gpu).trace() == {}


def test_oscine_check_asks_for_it(monkeypatch: pytest.MonkeyPatch, gpu: Gpu, adapter: Any) -> None:
    from oscine.loading import choose_backend

    monkeypatch.setattr("oscine.ops.check.SELF_CHECK", ())
    monkeypatch.setenv("OSCINE_CHECK", "1")
    assert isinstance(choose_backend("gpu"), Shadow)
    monkeypatch.setenv("OSCINE_CHECK", "0")
    assert isinstance(choose_backend("gpu"), Gpu)
