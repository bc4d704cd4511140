"""Real recordings and reference features, where a checkout has them beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from oscine.audio.features import WhisperFeatures
from oscine.audio.io import decode, open_source
from oscine.audio.mel import log_mel

SHARED = Path(__file__).resolve().parents[3] / "shared"
AUDIO = SHARED / "audio"
ORACLES = SHARED / "oracles" / "asr-seed0"

_manifest = AUDIO / "manifest.jsonl"
_lines = _manifest.read_text(encoding="utf-8").splitlines() if _manifest.exists() else []
_rows = [json.loads(line) for line in _lines]

here = pytest.mark.skipif(not _rows, reason="no shared recordings beside this checkout")


@here
@pytest.mark.parametrize("row", _rows, ids=[row["file"] for row in _rows])
def test_durations(row):
    blocks = open_source(AUDIO / row["file"]).blocks()
    seconds = sum(len(block) for block in blocks) / 16_000
    assert seconds == pytest.approx(row["seconds"], abs=0.05)


@here
@pytest.mark.parametrize("n_mels", [80, 128])
@pytest.mark.parametrize("cached_seconds", [0, 600])
def test_windows_of_a_recording_equal_the_whole(n_mels, cached_seconds):
    path = AUDIO / "fw_multilingual.mp3"
    samples = decode(path).samples
    whole = log_mel(np.pad(samples, (0, 480_000)), n_mels)
    features = WhisperFeatures(open_source(path), n_mels, 3000, cached_seconds=cached_seconds)
    for seek in (0, 1234, 2999, 5000, features.frames):
        window = features.window(seek, min(3000, features.frames - seek))
        assert np.abs(window - whole[seek : seek + 3000]).max() < 1e-6


@pytest.mark.skipif(not ORACLES.exists(), reason="no shared oracles beside this checkout")
@pytest.mark.parametrize("case", ["whisper_multi", "whisper_en"])
def test_features_equal_the_reference(case):
    expected = np.load(ORACLES / case / "golden.npz")["mel"].T
    samples = decode(ORACLES / "audio" / f"{case}.wav").samples
    wanted = len(expected) * 160
    samples = np.pad(samples, (0, max(0, wanted - len(samples))))[:wanted]
    assert np.abs(log_mel(samples, expected.shape[1]) - expected).max() < 5e-5
