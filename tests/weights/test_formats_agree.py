"""The same weights give the same tensors, whatever file they come from."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from oscine.models.whisper.weights import load_weights
from oscine.tree import tree_paths
from oscine.weights import read_checkpoint

HALF = ("hf", "openai.pt", "ggml-f16.bin", "ct2_float16", "mlx_npz")
SINGLE = ("ct2_float32", "ggml-f32.bin")
#: Steps between representable values of a block, as a part of its range.
STEPS = {
    "ggml-q4_0.bin": 1 / 15,
    "ggml-q4_1.bin": 1 / 15,
    "ggml-q5_0.bin": 1 / 31,
    "ggml-q5_1.bin": 1 / 31,
    "ggml-q8_0.bin": 1 / 254,
    "ct2_int8": 1 / 254,
    "ct2_int8_float16": 1 / 254,
    "mlx_q4": 1 / 15,
    "mlx_q3": 1 / 7,
}


def arrays(path: Path) -> dict[str, np.ndarray]:
    weights = load_weights(path)
    return tree_paths((weights.encoder, weights.decoder))


@pytest.fixture(scope="module")
def exact(formats: Path) -> dict[str, np.ndarray]:
    """The float32 weights that all files were made from."""
    return arrays(formats / "ct2_float32")


def is_matrix(name: str, value: np.ndarray) -> bool:
    return value.ndim > 1 and "positional_embedding" not in name


def test_goldens_name_every_file(formats: Path) -> None:
    files = json.loads((formats / "golden.json").read_text())["files"].values()
    assert {name.rstrip("/") for name in files} == {*HALF, *SINGLE, *STEPS, "hf_bf16_sharded"}


@pytest.mark.parametrize("name", SINGLE)
def test_float32_is_kept(formats: Path, exact: dict[str, np.ndarray], name: str) -> None:
    found = arrays(formats / name)
    assert found.keys() == exact.keys()
    for key, value in found.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, exact[key], err_msg=key)


@pytest.mark.parametrize("name", HALF)
def test_float16_matrices_stay_float16(
    formats: Path, exact: dict[str, np.ndarray], name: str
) -> None:
    found = arrays(formats / name)
    assert found.keys() == exact.keys()
    for key, value in found.items():
        assert value.dtype == (np.float16 if is_matrix(key, value) else np.float32), key
        rounded = exact[key].astype(np.float16).astype(np.float32)
        # What a file keeps in float32, or leaves out to be computed, may be nearer the truth.
        unrounded = np.array_equal(value, exact[key]) or "positional_embedding" in key
        if not unrounded:
            np.testing.assert_array_equal(value.astype(np.float32), rounded, err_msg=key)
        np.testing.assert_allclose(value.astype(np.float32), exact[key], atol=4e-3, err_msg=key)
    assert load_weights(formats / name).stored_dtype == "f16"


def test_bfloat16_shards_become_float32(formats: Path, exact: dict[str, np.ndarray]) -> None:
    found = arrays(formats / "hf_bf16_sharded")
    assert found.keys() == exact.keys()
    for key, value in found.items():
        bits = exact[key].view(np.uint32).astype(np.uint64)
        even = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000  # round half to even
        np.testing.assert_array_equal(value, even.astype(np.uint32).view(np.float32), err_msg=key)
    assert load_weights(formats / "hf_bf16_sharded").stored_dtype == "f32"


@pytest.mark.parametrize("name", STEPS)
def test_quantised_matrices_are_within_a_step(
    formats: Path, exact: dict[str, np.ndarray], name: str
) -> None:
    found = arrays(formats / name)
    assert found.keys() == exact.keys()
    coarse = 0
    for key, value in found.items():
        spread = exact[key].max() - exact[key].min()
        largest = np.abs(exact[key]).max()
        # Symmetric kinds span twice the largest value; nothing may be off by a whole step of that.
        limit = STEPS[name] * max(spread, 2 * largest) if is_matrix(key, value) else 4e-3
        np.testing.assert_allclose(value, exact[key], atol=limit, rtol=0, err_msg=key)
        coarse += not np.allclose(value, exact[key], atol=1e-3)
    assert coarse, "nothing was quantised"


def test_the_configuration_is_the_same_everywhere(formats: Path) -> None:
    sizes = set()
    for name in (*HALF, *SINGLE, *STEPS, "hf_bf16_sharded"):
        config = load_weights(formats / name).config
        sizes.add(tuple(getattr(config, f.name) for f in fields(config) if f.name[:2] == "n_"))
    assert len(sizes) == 1


def test_ggml_brings_its_vocabulary(formats: Path) -> None:
    vocabulary = load_weights(formats / "ggml-f16.bin").vocabulary
    assert vocabulary is not None
    assert vocabulary[:3] == (b"!", b'"', b"#")
    assert b" " in vocabulary and bytes([255]) in vocabulary
    assert load_weights(formats / "hf").vocabulary is None


def test_content_decides_not_the_name(formats: Path, tmp_path: Path) -> None:
    for name, kind in (
        ("openai.pt", "torch"),
        ("ggml-q4_0.bin", "ggml"),
        ("ct2_int8/model.bin", "ctranslate2"),
        ("mlx_npz/weights.npz", "mlx"),
        ("hf/model.safetensors", "safetensors"),
    ):
        misnamed = tmp_path / "weights.data"
        misnamed.write_bytes((formats / name).read_bytes())
        assert read_checkpoint(misnamed).format == kind


@pytest.mark.parametrize("name", ("hf/model.safetensors", "openai.pt"))
def test_what_is_stored_plainly_is_not_copied(formats: Path, name: str) -> None:
    views = [entry.read() for entry in read_checkpoint(formats / name).tensors.values()]
    mapped = [view for view in views if view.dtype == np.float16]
    assert mapped and not any(view.flags.writeable or view.flags.owndata for view in mapped)


@pytest.mark.parametrize("bits", (2, 3, 4, 5, 6, 8))
def test_mlx_words_are_one_stream_of_bits(formats: Path, tmp_path: Path, bits: int) -> None:
    """Element e of a row has bits e * b to e * b + b - 1, whatever words they fall into."""
    rng = np.random.default_rng(bits)
    q = rng.integers(0, 2**bits, (5, 64))
    scales, biases = rng.normal(size=(2, 5, 2)).astype(np.float16)
    words = np.zeros((5, 2 * bits), np.uint32)
    for row in range(5):
        stream = sum(int(value) << (bits * e) for e, value in enumerate(q[row]))
        for word in range(2 * bits):
            words[row, word] = (stream >> (32 * word)) & 0xFFFFFFFF
    arrays_in = {"a.weight": words, "a.scales": scales, "a.biases": biases}
    np.savez(tmp_path / "weights.npz", **arrays_in)
    config = {"quantization": {"group_size": 32, "bits": bits}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = read_checkpoint(tmp_path).tensors
    assert list(tensors) == ["a.weight"]
    steps = np.repeat(scales.astype(np.float32), 32, axis=1)
    zero = np.repeat(biases.astype(np.float32), 32, axis=1)
    np.testing.assert_array_equal(tensors["a.weight"].read(), q.astype(np.float32) * steps + zero)
