"""whisper.cpp files: blocks by hand, other types by name, and headers that lie."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.errors import CheckpointError
from oscine.weights import read_checkpoint

HEAD = struct.pack("<i11i", 0x67676D6C, 3, 4, 32, 1, 1, 4, 32, 1, 1, 2, 1)
BANK = struct.pack("<2i", 2, 201) + bytes(2 * 201 * 4)
WORDS = struct.pack("<i", 2) + struct.pack("<i", 1) + b"a" + struct.pack("<i", 2) + b"\xff "


def tensor(name: bytes, dims: tuple[int, ...], code: int, data: bytes, **lies: Any) -> bytes:
    rank, length = lies.get("rank", len(dims)), lies.get("length", len(name))
    head = struct.pack("<3i", rank, length, code) + struct.pack(f"<{len(dims)}i", *dims)
    return head + name + data


def write(path: Path, *tensors: bytes, bank: bytes = BANK, words: bytes = WORDS) -> Path:
    path.write_bytes(HEAD + bank + words + b"".join(tensors))
    return path


NIBBLES = bytes(range(0x10, 0x20))  # low halves 0 to 15, high halves 1
HALF = struct.pack("<e", 0.5)
MINUS = struct.pack("<e", -3.0)
RISING = np.arange(16.0)


@pytest.mark.parametrize(
    ("code", "block", "wanted"),
    [
        (2, HALF + NIBBLES, [*(RISING - 8) * 0.5, *[(1 - 8) * 0.5] * 16]),
        (3, HALF + MINUS + NIBBLES, [*RISING * 0.5 - 3, *[0.5 - 3] * 16]),
        # The fifth bits of elements 1 and 31.
        (
            6,
            HALF + struct.pack("<I", 1 << 1 | 1 << 31) + NIBBLES,
            [*(RISING - 16 + 16 * (RISING == 1)) * 0.5, *[(1 - 16) * 0.5] * 15, (17 - 16) * 0.5],
        ),
        (
            7,
            HALF + MINUS + struct.pack("<I", 1 << 1 | 1 << 31) + NIBBLES,
            [*(RISING + 16 * (RISING == 1)) * 0.5 - 3, *[0.5 - 3] * 15, 17 * 0.5 - 3],
        ),
        (8, HALF + bytes(range(240, 256)) + bytes(16), [*(RISING - 16) * 0.5, *[0.0] * 16]),
        (8, struct.pack("<H", 1) + bytes([1] * 32), [2.0**-24] * 32),  # a subnormal scale
    ],
)
def test_blocks(tmp_path: Path, code: int, block: bytes, wanted: list[float]) -> None:
    path = write(tmp_path / "m.bin", tensor(b"w", (32, 2), code, block * 2))
    entry = read_checkpoint(path).tensors["w"]
    assert entry.shape == (2, 32)  # stored fastest first
    np.testing.assert_array_equal(entry.read(), np.float32([wanted, wanted]))


def test_more_blocks_than_are_widened_at_a_time(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    count = (1 << 15) + 3
    packed = np.zeros(count, [("scale", "<f2"), ("values", "i1", 32)])
    packed["scale"] = rng.normal(size=count)
    packed["values"] = rng.integers(-127, 128, (count, 32))
    path = write(tmp_path / "m.bin", tensor(b"w", (32, count), 8, packed.tobytes()))
    wanted = packed["values"] * packed["scale"].astype(np.float32)[:, None]
    np.testing.assert_array_equal(read_checkpoint(path).tensors["w"].read(), wanted)


def test_header(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write(tmp_path / "m.bin"))
    assert checkpoint.vocabulary == (b"a", b"\xff ")
    assert checkpoint.config["n_vocab"] == 3 and checkpoint.config["n_mels"] == 2
    assert checkpoint.tensors == {}


@pytest.mark.parametrize(
    ("bytes_of", "names"),
    [
        (tensor(b"w", (256, 2), 10, bytes(500)), ["'w'", "q2_K", "q5_0", "q4_K"]),
        (tensor(b"w", (128, 2), 14, bytes(500)), ["'w'", "q6_K needs a multiple of 256"]),
        (tensor(b"w", (256, 2), 14, bytes(419)), ["'w'", "the file has"]),
        (tensor(b"w", (256, 2), 77, bytes(500)), ["'w'", "77"]),
        (tensor(b"w", (256, 2), -1, bytes(500)), ["'w'", "-1"]),
        (tensor(b"w", (33, 2), 2, bytes(500)), ["'w'", "multiple of 32"]),
        (tensor(b"w", (-32, 2), 0, bytes(500)), ["'w'", "-32"]),
        (tensor(b"w", (2**31 - 1, 2**31 - 1), 0, b""), ["'w'", "impossible"]),
        (tensor(b"w", (2**20, 2**19), 0, bytes(500)), ["'w'", "the file has"]),
        (tensor(b"w", (2**20, 2**19), 2, bytes(500)), ["'w'", "the file has"]),
        (tensor(b"w", (2, 2), 0, bytes(16), rank=5), ["5 dimensions"]),
        (tensor(b"w", (2, 2), 0, bytes(16), rank=0), ["0 dimensions"]),
        (tensor(b"w", (2, 2), 0, bytes(16), length=2**30), [str(2**30)]),
        (tensor(b"w", (2, 2), 0, bytes(16), length=-1), ["-1 bytes"]),
        (tensor(b"\xff", (2, 2), 0, bytes(16)), ["UTF-8"]),
        (tensor(b"w", (2, 2), 0, bytes(16)) * 2, ["'w'", "twice"]),
        (tensor(b"w", (2, 2), 0, bytes(15)), ["'w'", "the file has"]),
        (b"\0", ["header"]),
    ],
)
def test_lies_are_named(tmp_path: Path, bytes_of: bytes, names: list[str]) -> None:
    refused(write(tmp_path / "m.bin", bytes_of), names)


@pytest.mark.parametrize(
    ("part", "content", "names"),
    [
        ("bank", struct.pack("<2i", 2**31 - 1, 2**31 - 1), ["mel bank"]),
        ("bank", struct.pack("<2i", -1, 201), ["mel bank", "-1"]),
        ("words", struct.pack("<i", 2**31 - 1), ["tokens"]),
        ("words", struct.pack("<i", -5), ["-5 tokens"]),
        ("words", struct.pack("<2i", 1, -1), ["token 0"]),
        ("words", struct.pack("<2i", 1, 2**31 - 1), ["token 0"]),
    ],
)
def test_lies_of_the_header(tmp_path: Path, part: str, content: bytes, names: list[str]) -> None:
    refused(write(tmp_path / "m.bin", bytes(9), **{part: content}), names)


def refused(path: Path, names: list[str]) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert all(name in message for name in names), message


def test_a_parakeet_of_whisper_cpp_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    sizes = (8192, 5000, 1024, 8, 24, 128, 1, 512, 8, 256, 640, 2, 5, 10)
    path.write_bytes(struct.pack("<i14i", 0x67676D6C, *sizes) + bytes(64))
    refused(path, ["Parakeet", "GGUF"])
