"""Safetensors files that lie, and the index of shards."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.dtypes import BFLOAT16
from oscine.errors import CheckpointError
from oscine.weights import read_checkpoint
from oscine.weights.safetensors import MAX_HEADER_BYTES, read_metadata, serialize


def write(path: Path, header: dict[str, Any] | bytes, data: bytes = b"", length: int = -1) -> Path:
    """A file with this header; `length` is the length it claims."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length < 0 else length) + text + data)
    return path


def tensor(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def numbered(shape: str, begin: str, end: str) -> bytes:
    """A header of numbers that json.dumps may not write."""
    offsets = f"[{begin}, {end}]"
    return f'{{"a": {{"dtype": "F32", "shape": [{shape}], "data_offsets": {offsets}}}}}'.encode()


@pytest.mark.parametrize(
    ("dtype", "stored", "expected"),
    [
        ("F32", np.array([1.5, -2], "<f4"), np.float32),
        ("F16", np.array([1.5, -2], "<f2"), np.float16),
        ("F64", np.array([1.5, -2], "<f8"), np.float32),
        ("BF16", np.array([0x3FC0, 0xC000], "<u2"), np.float32),
        ("I8", np.array([1, -2], "i1"), np.int8),
        ("I64", np.array([1, -2], "<i8"), np.int64),
        ("U32", np.array([1, 2], "<u4"), np.uint32),
    ],
)
def test_types(tmp_path: Path, dtype: str, stored: np.ndarray, expected: type) -> None:
    data = stored.tobytes()
    header = {"__metadata__": {"format": "pt"}, "a": tensor(dtype, (2,), (0, len(data)))}
    entry = read_checkpoint(write(tmp_path / "m.safetensors", header, data)).tensors["a"]
    assert entry.shape == (2,)
    assert entry.dtype == entry.read().dtype == expected
    wanted = [1.5, -2] if np.dtype(expected).kind == "f" else stored
    np.testing.assert_array_equal(entry.read(), wanted)
    bits = entry.raw()
    assert bits.dtype == (BFLOAT16 if dtype == "BF16" else expected)
    if dtype != "F64":
        assert bits.tobytes() == data
        assert not bits.flags.owndata, "the file itself"


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ({"a": tensor("F8_E4M3", (8,))}, ["'a'", "F8_E4M3", "BF16"]),
        ({"a": tensor(offsets=(0, 4))}, ["'a'", "4 bytes", "needs 8"]),
        ({"a": tensor(offsets=(8, 0))}, ["'a'", "-8 bytes"]),
        ({"a": tensor(offsets=(12, 20))}, ["'a'", "file has"]),
        ({"a": tensor(offsets=(-8, 0))}, ["'a'", "before the data"]),
        ({"a": tensor(offsets=(0, True))}, ["'a'", "offsets"]),
        ({"a": tensor(offsets=(0.0, 8.0))}, ["'a'", "offsets"]),
        ({"a": tensor(), "b": tensor(offsets=(4, 12))}, ["'a'", "'b'", "overlap"]),
        ({"a": tensor(shape=(-2,))}, ["'a'", "-2"]),
        ({"a": tensor(shape=(2**40, 2**40), offsets=(0, 0))}, ["'a'", "impossible"]),
        ({"a": tensor(shape=(0, 2**60), offsets=(0, 0))}, ["'a'", "impossible"]),
        ({"a": tensor(shape=[1] * 9, offsets=(0, 4))}, ["'a'", "impossible"]),
        ({"a": tensor(shape=("2",))}, ["'a'", "impossible"]),
        ({"a": {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}}, ["'a'", "no shape"]),
        ({"a": [1]}, ["'a'", "description"]),
        (b'{"a": 1, "a": 2}', ["'a' occurs twice"]),
        (b'{"a": }', ["JSON"]),
        (b'{"\xff": 1}', ["JSON"]),
        (b'{"a":' + b"[" * 200_000, ["JSON"]),
        (numbered(shape="2", begin="-" + "9" * 4299, end="9" * 4300), ["JSON", "digits"]),
        (numbered(shape="0", begin="9" * 4300, end="9" * 4300), ["JSON", "digits"]),
        (numbered(shape="0", begin="9" * 300, end="9" * 300), ["'a'", "file has"]),
    ],
)
def test_lies_are_named(tmp_path: Path, header: Any, names: list[str]) -> None:
    path = write(tmp_path / "m.safetensors", header, b"\0" * 16)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert all(name in message for name in names), message


def test_an_empty_tensor_between_others_hides_no_overlap(tmp_path: Path) -> None:
    header = {
        "a": tensor(shape=(4,), offsets=(0, 16)),
        "b": tensor(shape=(0,), offsets=(8, 8)),
        "c": tensor(shape=(1,), offsets=(12, 16)),
    }
    with pytest.raises(CheckpointError, match="'a' and 'b' overlap"):
        read_checkpoint(write(tmp_path / "m.safetensors", header, b"\0" * 16))


@pytest.mark.parametrize(
    ("spans", "size", "problem"),
    [
        ([], 0, None),
        ([(0, 8), (8, 16)], 16, None),
        ([(8, 16), (0, 8)], 16, None),
        ([(0, 0), (0, 8), (8, 8)], 8, None),
        ([], 1, "1 bytes follow the last tensor"),
        ([(0, 8)], 9, "1 bytes follow the last tensor"),
        ([(4, 12)], 12, "4 bytes before tensor 't0' belong to none"),
        ([(0, 8), (12, 20)], 20, "4 bytes before tensor 't1' belong to none"),
        ([(12, 20), (0, 8)], 20, "4 bytes before tensor 't0' belong to none"),
        ([(0, 8), (8, 8), (9, 17)], 17, "1 bytes before tensor 't2' belong to none"),
        ([(0, 8), (4, 4)], 8, "tensors 't0' and 't1' overlap"),
        ([(0, 8), (0, 8)], 8, "tensors 't0' and 't1' overlap"),
    ],
)
def test_tensors_fill_the_file_as_hugging_faces_reader_asks(
    tmp_path: Path, spans: list[tuple[int, int]], size: int, problem: str | None
) -> None:
    header = {
        f"t{at}": tensor("U8", (end - begin,), (begin, end))
        for at, (begin, end) in enumerate(spans)
    }
    path = write(tmp_path / "m.safetensors", header, bytes(size))
    if problem is None:
        assert len(read_checkpoint(path).tensors) == len(spans)
    else:
        with pytest.raises(CheckpointError, match=problem):
            read_checkpoint(path)


@pytest.mark.parametrize("length", (MAX_HEADER_BYTES, MAX_HEADER_BYTES + 1, 2**63))
def test_a_huge_header_is_not_believed(tmp_path: Path, length: int) -> None:
    path = write(tmp_path / "m.safetensors", {"a": tensor()}, b"\0" * 8, length)
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


def test_index_names_a_missing_shard(copy_of: Any) -> None:
    folder = copy_of("hf_bf16_sharded")
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"shard model-00002-of.* is missing"):
        read_checkpoint(folder)


@pytest.mark.parametrize("shard", ["a" * 5000, "a\0b"], ids=["long", "nul"])
def test_a_shard_whose_name_cannot_be_is_missing(copy_of: Any, shard: str) -> None:
    index = copy_of("hf_bf16_sharded") / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(CheckpointError, match=r"shard .* is missing") as caught:
        read_checkpoint(index)
    assert len(str(caught.value)) < 1500


def test_index_names_a_missing_tensor(copy_of: Any) -> None:
    index = copy_of("hf_bf16_sharded") / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["nowhere"] = "model-00001-of-00003.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="missing nowhere"):
        read_checkpoint(index)


@pytest.mark.parametrize("shard", ("../secret.safetensors", "/etc/passwd", "a/b", 3))
def test_index_may_not_lead_elsewhere(copy_of: Any, shard: Any) -> None:
    index = copy_of("hf_bf16_sharded") / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(CheckpointError, match="outside its folder"):
        read_checkpoint(index.parent)


@pytest.mark.parametrize("content", ("[]", "{}", '{"weight_map": []}', "{", ""))
def test_index_that_is_none(copy_of: Any, content: str) -> None:
    index = copy_of("hf_bf16_sharded") / "model.safetensors.index.json"
    index.write_text(content)
    with pytest.raises(CheckpointError, match=r"index\.json"):
        read_checkpoint(index)


def test_what_is_written_is_read_and_lies_as_the_format_says(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(3, dtype="<i4"),
        "b": np.ones((2, 1, 2), "<f2")[:, :, ::-1],
        "ü": np.zeros((0, 4), "<f4"),
        "d": np.array([0x3F80, 0xC000], "<u2").view(BFLOAT16),
    }
    path = tmp_path / "m.safetensors"
    path.write_bytes(serialize(arrays, {"note": "said – 说"}))
    assert read_metadata(path) == {"note": "said – 说"}
    tensors = read_checkpoint(path).tensors
    assert list(tensors) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(tensors[name].raw(), array)
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    assert length % 8 == 0
    assert raw[8 + length :] == b"".join(array.tobytes() for array in arrays.values())
    path.write_bytes(serialize(arrays))
    assert read_metadata(path) == {}
