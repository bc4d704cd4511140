"""GGUF files: what the `gguf` package writes is read, K-quants included; damage is one line."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oscine.errors import CheckpointError
from oscine.quantized import dequantize
from oscine.weights import read_checkpoint
from oscine.weights.ggml_blocks import BLOCK_TYPES
from tests.weights.gguf_files import write_gguf

TYPES = {code: gguf.GGMLQuantizationType(code) for code in BLOCK_TYPES}
METADATA: dict[str, Any] = {
    "a.flag": True, "a.count": 7, "a.share": 0.5, "a.text": "grün", "a.list": [1, 2, 3],
    "tokenizer.ggml.tokens": ["a", "\u2581b", ""],
}  # fmt: skip


def small(folder: Path) -> Path:
    """A file with each kind of metadata, and three tensors of types with and without blocks."""
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.standard_normal((3, 64)).astype(np.float32),
        "h": rng.standard_normal((2, 3, 5)).astype(np.float16),
        "b": rng.standard_normal(4).astype(np.float32),
    }
    return write_gguf(
        folder / "m.gguf", "toy", METADATA, arrays,
        lambda name, array: gguf.GGMLQuantizationType.Q8_0 if name == "w" else None,
    )  # fmt: skip


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        for entry in read_checkpoint(path).tensors.values():
            entry.read()
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    return message


def test_metadata_and_tensors(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(small(tmp_path))
    assert checkpoint.format == "gguf"
    assert checkpoint.config == {"general.architecture": "toy"} | METADATA
    assert {name: entry.shape for name, entry in checkpoint.tensors.items()} == {
        "w": (3, 64), "h": (2, 3, 5), "b": (4,)
    }  # fmt: skip
    assert checkpoint.tensors["h"].dtype == np.float16
    reader = {tensor.name: tensor for tensor in gguf.GGUFReader(checkpoint.path).tensors}
    for name in ("h", "b"):
        np.testing.assert_array_equal(
            checkpoint.tensors[name].read().reshape(-1), reader[name].data.reshape(-1)
        )


@pytest.mark.parametrize("code", TYPES, ids=lambda code: BLOCK_TYPES[code].name)
@given(data=st.data())
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
def test_blocks_of_any_bytes_mean_what_gguf_says(
    tmp_path: Path, code: int, data: st.DataObject
) -> None:
    kind = BLOCK_TYPES[code]
    count = 2 * data.draw(st.integers(1, 3))
    packed = np.frombuffer(
        data.draw(
            st.binary(min_size=count * kind.layout.itemsize, max_size=count * kind.layout.itemsize)
        ),
        np.uint8,
    ).copy()
    fields = packed.view(kind.layout)
    for name in {"scale", "low"} & set(kind.layout.names or ()):  # finite numbers
        fields[name] = np.clip(np.nan_to_num(fields[name], nan=1.0), -4096, 4096)
    rows = packed.reshape(2, -1)
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "toy")
    writer.add_tensor("w", rows, raw_dtype=TYPES[code])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    entry = read_checkpoint(tmp_path / "m.gguf").tensors["w"]
    wanted = gguf.dequantize(rows, TYPES[code])
    assert entry.shape == wanted.shape
    np.testing.assert_allclose(entry.read(), wanted, rtol=2e-6, atol=2e-6 * np.abs(wanted).max())
    if entry.block_dtype is not None:
        top = np.abs(wanted).max()
        np.testing.assert_allclose(dequantize(entry.blocks()), wanted, rtol=2e-6, atol=2e-6 * top)


def test_every_cut_is_one_line(tmp_path: Path) -> None:
    whole = small(tmp_path).read_bytes()
    path = tmp_path / "cut.gguf"
    for length in range(4, len(whole)):
        path.write_bytes(whole[:length])
        tensors_end = len(whole) - 16  # of the last one; zeros follow up to the alignment
        if length < tensors_end:
            refused(path)


@given(data=st.data())
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
def test_any_changed_bytes_are_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(small(tmp_path).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "changed.gguf"
    path.write_bytes(content)
    try:
        for entry in read_checkpoint(path).tensors.values():
            entry.read()
    except CheckpointError as problem:
        assert "\n" not in str(problem)


def head(tensors: int, keys: int, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<I2Q", version, tensors, keys) + rest


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (head(0, 0, version=1), "version 1"),
        (head(0, 0, version=3 << 24), "little-endian"),
        (head(1 << 60, 0), "tensors"),
        (head(0, 1 << 60), "keys"),
        (head(0, 1, struct.pack("<Q", 1 << 62)), "a key"),
        (head(0, 1, text(b"k") + struct.pack("<I", 13)), "unknown type 13"),
        (head(0, 1, text(b"k") + struct.pack("<IIQ", 9, 9, 1)), "items of type 9"),
        (head(0, 1, text(b"k") + struct.pack("<IIQ", 9, 8, 1 << 21)), "'k'"),
        (head(0, 1, text(b"k") + struct.pack("<IIQ", 9, 10, 1 << 61)), "'k'"),
        (head(0, 2, 2 * (text(b"k") + struct.pack("<IB", 0, 1))), "occurs twice"),
        (head(1, 0, text(b"w") + struct.pack("<I", 9)), "9 dimensions"),
        (head(1, 0, text(b"w") + struct.pack("<IQIQ", 1, 32, 10, 0)), "q2_K"),
        (head(1, 0, text(b"w") + struct.pack("<IQIQ", 1, 32, 8, 1 << 60)), "'w'"),
        (head(1, 0, text(b"w") + struct.pack("<IQIQ", 1, 1 << 63, 0, 0)), "impossible"),
        (
            head(0, 1, text(b"general.alignment") + struct.pack("<II", 4, 0)),
            "general.alignment is 0",
        ),
    ],
)
def test_lies_are_named(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content + bytes(8))
    assert part in refused(path)
