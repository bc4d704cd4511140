"""--dtype q8 and q4 from a checkpoint to text or sound: a GPU agrees with NumPy, which says that it
widens the blocks. Whisper's small checkpoints have no rows of whole blocks; tiny.en has."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
WIDENS = "NumPy widens 8-bit and 4-bit weights to float32, 4 bytes each"


def block_kernels(model: Any) -> set[str]:
    """The kernels of a model's GPU that read weights in blocks."""
    compiled = model.runner.backend.pipelines.compiled
    return {name for name, given in compiled if dict(given).get("WEIGHTS") in ("q8", "q4")}


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checks of ops that loading makes: test_parity has them all."""
    monkeypatch.delenv("OSCINE_CHECK", raising=False)
    monkeypatch.setattr("oscine.ops.check.SELF_CHECK", ())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["q8", "q4"])
def test_parakeet(dtype: str, caplog: pytest.LogCaptureFixture) -> None:
    clip = GOLDENS / "audio" / "parakeet_tdt.wav"
    with caplog.at_level(logging.WARNING, "oscine"):
        expected, found = (
            oscine.load(GOLDENS / "parakeet_tdt", device, dtype) for device in ("cpu", "gpu")
        )
    assert [record.getMessage() for record in caplog.records].count(WIDENS) == 1
    assert found.transcribe(clip).text == expected.transcribe(clip).text != ""
    assert block_kernels(found)


@pytest.mark.gpu
def test_qwen3_tts() -> None:
    folder = GOLDENS / "qwen3_tts" / "custom_voice" / "ckpt"
    expected, found = (oscine.load(folder, device, "q8") for device in ("cpu", "gpu"))
    sound, heard = (
        model.speak("Hello there.", voice="ryan", seed=3, max_frames=4).samples
        for model in (expected, found)
    )
    np.testing.assert_allclose(heard, sound, atol=1e-4 * np.abs(sound).max())
    assert block_kernels(found)


@pytest.mark.gpu
@pytest.mark.weights
def test_whisper(weights: dict[str, Path], example: Path) -> None:
    expected, found = (
        oscine.load(weights["tiny.en"], device, "q8").transcribe(example, temperature=0)
        for device in ("cpu", "gpu")
    )
    assert [segment.tokens for segment in found.segments] == [
        segment.tokens for segment in expected.segments
    ]
    assert found.text.strip() == example.with_suffix(".txt").read_text("utf-8").strip()
