"""Real weights on a GPU: the tokens of NumPy. One window, as a software GPU takes its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from oscine.loading import load

pytestmark = [pytest.mark.gpu, pytest.mark.weights]


def test_our_own_recording(
    weights: dict[str, Path], example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OSCINE_CHECK", raising=False)
    monkeypatch.setattr("oscine.ops.check.SELF_CHECK", ())  # test_parity has them all
    expected, found = (
        load(weights["tiny.en"], device).transcribe(example, temperature=0)
        for device in ("cpu", "gpu")
    )
    assert [segment.tokens for segment in found.segments] == [
        segment.tokens for segment in expected.segments
    ]
    assert found.text.strip() == example.with_suffix(".txt").read_text("utf-8").strip()
    assert found.device != expected.device == "NumPy"
    for a, b in zip(expected.segments, found.segments, strict=True):
        assert b.avg_logprob == pytest.approx(a.avg_logprob, abs=2e-3)
        assert b.no_speech_prob == pytest.approx(a.no_speech_prob, abs=2e-3)
