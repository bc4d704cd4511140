"""Which file of a folder is read, NumPy archives, and what is said of files that are no weights."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.errors import CheckpointError
from oscine.weights import read_checkpoint


@pytest.mark.parametrize(
    ("name", "kind", "file"),
    [
        ("hf", "safetensors", "model.safetensors"),
        ("hf_bf16_sharded", "safetensors", "model.safetensors.index.json"),
        ("ct2_int8", "ctranslate2", "model.bin"),
        ("mlx_npz", "mlx", "weights.npz"),
        ("mlx_q4", "mlx", "weights.safetensors"),
    ],
)
def test_folders(formats: Path, name: str, kind: str, file: str) -> None:
    checkpoint = read_checkpoint(str(formats / name))
    assert checkpoint.format == kind
    assert checkpoint.path == formats / name / file
    assert checkpoint.folder == formats / name


@pytest.mark.parametrize("name", ("openai.pt", "ggml-q5_0.bin"))
def test_a_folder_with_one_file_of_weights(formats: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / f"my-{name}").write_bytes((formats / name).read_bytes())
    (tmp_path / "notes.txt").write_text("hello")
    assert read_checkpoint(tmp_path).path.name == f"my-{name}"


def test_a_folder_with_several_names_them(formats: Path) -> None:
    with pytest.raises(CheckpointError, match=r"several .*ggml-f16\.bin.*name one"):
        read_checkpoint(formats)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b"x", "no known format"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS"),
        (b"\xff" * 100, "no known format"),
        (b"\x06\0\0\0", "no known format"),
        (b"PK\x03\x04", "not a readable zip"),
        (b"lmgg", "sizes"),
    ],
)
def test_no_weights(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "weights"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=problem) as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        read_checkpoint(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="holds no weights; looked for"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "content", ("{", "[]", '{"a": 1, "a": 2}', "[" * 100_000, "\0", "9" * 9999)
)
def test_a_broken_configuration_is_named(copy_of: Any, content: str) -> None:
    folder = copy_of("ct2_int8")
    (folder / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        read_checkpoint(folder)


def npy(header: str, data: bytes = b"", magic: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    text = header.encode() + b"\n"
    return magic + len(text).to_bytes(2, "little") + text + data


def header(descr: str = "<f4", order: bool = False, shape: str = "(2,)") -> str:
    return f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (npy(header(), bytes(8), b"\x93NUMPZ\x01\x00"), "no .npy"),
        (npy(header(), bytes(8), b"\x93NUMPY\x09\x00"), "no .npy"),
        (b"", "no .npy"),
        (npy(header(), bytes(7)), "has not the bytes"),
        (npy(header(shape="(2, 99999999999999)"), bytes(8)), "impossible"),
        (npy(header(shape="(9999999999999999999,)"), bytes(8)), "impossible"),
        (npy(header(descr="|O"), bytes(8)), "cannot be read"),
        (npy(header(descr="<f3"), bytes(8)), "type"),
        (npy(header(order=True, shape="(2, 1)"), bytes(8)), "column by column"),
        (npy("__import__('os').system('true')"), "cannot be read"),
        (npy("{" * 5000), "cannot be read"),
        (b"\x93NUMPY\x01\x00\xff\xff{}", "header of"),
    ],
)
def test_arrays_that_are_none(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "weights.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("w.npy", content)
    with pytest.raises(CheckpointError, match=problem) as caught:
        read_checkpoint(path)
    assert "'w'" in str(caught.value)


def test_compressed_arrays_are_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "weights.npz", w=np.zeros(1000))
    with pytest.raises(CheckpointError, match=r"'w\.npy' is compressed.*save it uncompressed"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("quantization", "problem"),
    [
        (None, "names no affine"),
        ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, "names no affine"),
        ({"bits": 4}, "group_size"),
        ({"group_size": 32, "bits": "4"}, "group_size"),
        ({"group_size": 32, "bits": 9}, "9 bits"),
        ({"group_size": 0, "bits": 4}, "group_size"),
        ({"group_size": 64, "bits": 4}, "wrong shape"),
        ({"group_size": 32, "bits": 8}, "wrong shape"),
    ],
)
def test_quantisation_that_does_not_fit(copy_of: Any, quantization: Any, problem: str) -> None:
    folder = copy_of("mlx_q4")
    config = json.loads((folder / "config.json").read_text())
    config["quantization"] = quantization
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=problem):
        read_checkpoint(folder)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")
@pytest.mark.parametrize("place", ["device", "pipe"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_what_never_ends_is_not_read(formats: Path, tmp_path: Path, name: str, place: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(formats / "hf_bf16_sharded", folder)
    (folder / name).unlink()
    if place == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    with pytest.raises(CheckpointError) as refused:
        read_checkpoint(folder)
    if name == "config.json":
        assert str(refused.value) == (
            f"{folder / name}: cannot be read (it is a folder, a pipe or a device, not a file)"
        )
