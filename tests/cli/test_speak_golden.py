"""The speak command with small random checkpoints: its sound is the official package's."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest

from oscine.cli import run

GOLDENS = Path(__file__).resolve().parents[1] / "goldens" / "qwen3_tts"
RUNS = json.loads((GOLDENS / "custom_voice" / "meta.json").read_text("utf-8"))["runs"]


def arguments(asked: dict[str, object]) -> list[str]:
    """A golden's greedy run as a command line."""
    said = ["speak", str(asked["text"]), "--voice", str(asked["speaker"])]
    for name in ("language", "instruct"):
        if asked.get(name):
            said += [f"--{name}", str(asked[name])]
    if asked.get("non_streaming_mode") is False:
        said.append("--streamed-text")
    # Upstream's last token is never sounded.
    said += ["--max-frames", str(int(str(asked["max_new_tokens"])) - 1)]
    said += ["--repetition-penalty", str(asked["repetition_penalty"])]
    said += ["--no-do-sample", "--no-subtalker-do-sample", "--no-guard", "--device", "cpu"]
    return [*said, "--model", str(GOLDENS / "custom_voice" / "ckpt")]


@pytest.mark.parametrize("asked", RUNS, ids=lambda asked: asked["run"])
def test_a_file_and_a_pipe_have_the_golden_samples(
    asked: dict[str, object], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    expected = np.load(GOLDENS / "custom_voice" / "expected.npz")[f"{asked['run']}/wav"]
    assert run([*arguments(asked), "-o", str(tmp_path / "a.wav")]) == 0
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert file.getframerate() == 24_000
        data = file.readframes(file.getnframes())
    whole = np.frombuffer(data, "<i2")
    assert len(whole) == len(expected)
    assert np.abs(whole / 32767 - expected).max() <= 0.5 / 32767 + 1e-5
    capsysbinary.readouterr()
    assert run([*arguments(asked), "-f", "raw"]) == 0  # as it is made
    assert capsysbinary.readouterr().out == data
