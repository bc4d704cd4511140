"""CTranslate2 files: every type of number, and variables that lie."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from oscine.errors import CheckpointError
from oscine.quantized import Q8, dequantize
from oscine.weights import read_checkpoint


def text(value: bytes) -> bytes:
    return struct.pack("<H", len(value) + 1) + value + b"\0"


def variable(name: bytes, dims: tuple[int, ...], code: int, data: bytes, size: int = -1) -> bytes:
    head = text(name) + struct.pack("<B", len(dims)) + struct.pack(f"<{len(dims)}I", *dims)
    return head + struct.pack("<BI", code, len(data) if size < 0 else size) + data


def write(
    path: Path,
    *variables: bytes,
    version: int = 6,
    spec: bytes = b"WhisperSpec",
    count: int = -1,
    aliases: bytes = struct.pack("<I", 0),
) -> Path:
    head = struct.pack("<I", version) + text(spec) + struct.pack("<I", 3)
    head += struct.pack("<I", len(variables) if count < 0 else count)
    path.write_bytes(head + b"".join(variables) + aliases)
    return path


QUANTISED = np.array([[1, -2], [3, 127]], "i1")


@pytest.mark.parametrize(
    ("code", "stored", "wanted"),
    [
        (0, np.array([1.5, -2], "<f4"), np.float32),
        (4, np.array([1.5, -2], "<f2"), np.float16),
        (5, np.array([0x3FC0, 0xC000], "<u2"), np.float32),
    ],
)
def test_float_types(tmp_path: Path, code: int, stored: np.ndarray, wanted: type) -> None:
    path = write(tmp_path / "model.bin", variable(b"w", (2,), code, stored.tobytes()))
    entry = read_checkpoint(path).tensors["w"]
    assert entry.dtype == entry.read().dtype == wanted
    np.testing.assert_array_equal(entry.read(), [1.5, -2])


@pytest.mark.parametrize(
    ("stored", "code", "scale", "dims"),
    [
        (QUANTISED, 1, np.array([2.0, 0.5], "<f4"), (2,)),
        (QUANTISED, 1, np.array([2.0, 0.5], "<f2"), (2,)),
        (QUANTISED.astype("<i2") * 100, 2, np.array([4.0], "<f4"), ()),
        (QUANTISED.astype("<i2") * 100, 2, np.array([4.0], "<f4"), (1,)),
    ],
)
def test_quantised_is_divided_by_its_scale(
    tmp_path: Path, stored: np.ndarray, code: int, scale: np.ndarray, dims: tuple[int, ...]
) -> None:
    kind = 4 if scale.dtype == np.float16 else 0
    path = write(
        tmp_path / "model.bin",
        variable(b"w", (2, 2), code, stored.tobytes()),
        variable(b"w_scale", dims, kind, scale.tobytes()),
        aliases=struct.pack("<I", 1) + text(b"also") + text(b"w"),
    )
    tensors = read_checkpoint(path).tensors
    assert set(tensors) == {"w", "also"}  # the alias takes the scale with it
    for entry in tensors.values():
        wanted = stored.astype(np.float32) / scale.astype(np.float32).reshape(-1, 1)
        np.testing.assert_array_equal(entry.read(), wanted)


def test_bytes_are_used_as_blocks_with_the_scale_of_their_row(tmp_path: Path) -> None:
    stored = np.random.default_rng(0).integers(-127, 128, (3, 64)).astype(np.int8)
    scale = np.array([250.0, 31.5, 4000.0], "<f4")
    path = write(
        tmp_path / "model.bin",
        variable(b"w", (3, 64), 1, stored.tobytes()),
        variable(b"w_scale", (3,), 0, scale.tobytes()),
    )
    entry = read_checkpoint(path).tensors["w"]
    assert entry.block_dtype == Q8
    blocks = entry.blocks()
    assert blocks.shape == (3, 2)
    np.testing.assert_array_equal(blocks["values"].reshape(3, 64), stored)
    np.testing.assert_allclose(dequantize(blocks), entry.read(), rtol=2.0**-11)


def test_numbers_of_no_dimension_stay_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "model.bin", variable(b"heads", (), 2, struct.pack("<h", 6)))
    assert int(read_checkpoint(path).tensors["heads"].read()) == 6


GOOD = variable(b"w", (2,), 0, bytes(8))


@pytest.mark.parametrize(
    ("variables", "lies", "names"),
    [
        ((), {"spec": b"TransformerSpec"}, ["TransformerSpec"]),
        ((), {"version": 5}, ["version 5", "convert"]),
        ((GOOD,), {"count": 2**31}, [str(2**31)]),
        ((GOOD,), {"count": 2}, ["variable's name"]),
        ((GOOD, GOOD), {}, ["'w'", "twice"]),
        ((variable(b"w", (2,), 6, bytes(8)),), {}, ["'w'", "type 6"]),
        ((variable(b"w", (2,), 0, bytes(8), 2**32 - 1),), {}, ["'w'", "need 8"]),
        ((variable(b"w", (2**31, 2**31), 0, b""),), {}, ["'w'", "impossible"]),
        ((variable(b"w", (1,) * 5, 0, bytes(4)),), {}, ["'w'", "5 dimensions"]),
        ((variable(b"w", (2,), 1, bytes(2)),), {}, ["'w'", "no scale"]),
        ((GOOD, variable(b"w_scale", (2,), 0, bytes(8))), {}, ["'w'", "not quantised"]),
        ((GOOD,), {"aliases": struct.pack("<I", 2**30)}, ["aliases"]),
        ((GOOD,), {"aliases": struct.pack("<I", 1) + text(b"a") + text(b"b")}, ["'a'", "'b'"]),
        ((GOOD,), {"aliases": struct.pack("<I", 0) + b"more"}, ["4 bytes follow"]),
        ((GOOD,), {"aliases": b""}, ["aliases", "needs bytes"]),
        ((variable(b"", (2,), 0, bytes(8)),), {}, ["name", "no string"]),
        ((variable(b"\xff", (2,), 0, bytes(8)),), {}, ["name", "no string"]),
        ((variable(b"x" * 2000, (2,), 0, bytes(8)),), {}, ["name", "no string"]),
    ],
)
def test_lies_are_named(tmp_path: Path, variables: tuple[bytes, ...], lies: dict, names) -> None:
    path = write(tmp_path / "model.bin", *variables, **lies)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert all(name in message for name in names), message


@pytest.mark.parametrize("scale", ([0.0, 1.0], [np.nan, 1.0], [np.inf, 1.0]))
def test_scales_that_cannot_be_divided_by(tmp_path: Path, scale: list[float]) -> None:
    quantised = variable(b"w", (2, 2), 1, QUANTISED.tobytes())
    bad = variable(b"w_scale", (2,), 0, np.array(scale, "<f4").tobytes())
    entry = read_checkpoint(write(tmp_path / "model.bin", quantised, bad)).tensors["w"]
    with pytest.raises(CheckpointError, match="'w' is zero or not finite"):
        entry.read()


def test_scale_of_other_shape(tmp_path: Path) -> None:
    quantised = variable(b"w", (2, 2), 1, QUANTISED.tobytes())
    path = write(tmp_path / "model.bin", quantised, variable(b"w_scale", (3,), 0, bytes(12)))
    with pytest.raises(CheckpointError, match=r"scale of 'w' has shape \[3\]"):
        read_checkpoint(path)
