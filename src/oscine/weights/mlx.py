"""MLX checkpoints (mlx-examples/whisper): `.npz` or safetensors, plain or affine-quantised.

Formats: NumPy's NEP 1 for `.npy`; ml-explore/mlx mlx/ops.cpp (`affine_quantize`) for the weights:
w = q * scale + bias, one scale and bias a group of columns, q packed into little-endian words.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Final

import numpy as np

from oscine.errors import CheckpointError
from oscine.model_files import read_json
from oscine.weights.archive import Member, ZipArchive
from oscine.weights.checkpoint import FLOAT32, Checkpoint, LazyTensor, mapped_tensor
from oscine.weights.mapped_file import Array, checked_shape

_HEADER_PATTERN: Final = re.compile(
    rb"\{'descr': '([<|][fiub]\d)', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,20}, ?)*\d{0,20})\), \} *\n"
)
_CHUNK_ROWS: Final = 512  # dequantised at a time


def read_npz(archive: ZipArchive) -> Checkpoint:
    """Open `weights.npz`, with config.json beside it.

    Raises:
        CheckpointError: members that are compressed, damaged or no plain arrays.
    """
    path = archive.path
    tensors = {
        name.removesuffix(".npy"): _npy_tensor(archive, name.removesuffix(".npy"), member)
        for name, member in archive.members.items()
    }
    config = read_json(path.parent / "config.json")
    return dequantize(Checkpoint("mlx", path, path.parent, tensors, config))


def is_mlx(tensors: dict[str, LazyTensor]) -> bool:
    """Whether tensors of a safetensors file are named or quantised as MLX does it."""
    return any(".mlp1." in name or name.endswith(".scales") for name in tensors)


def dequantize(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as format "mlx", each `weight`, `scales`, `biases` as one float32 tensor.

    Raises:
        CheckpointError: config.json does not say how they are quantised, or they do not fit it.
    """
    tensors: dict[str, LazyTensor] = {}
    for name, entry in checkpoint.tensors.items():
        stem, _, last = name.rpartition(".")
        scales = checkpoint.tensors.get(f"{stem}.scales")
        if scales is None:
            tensors[name] = entry
        elif last == "weight":
            tensors[name] = _dequantized_tensor(checkpoint, name, entry, scales)
        elif last not in ("scales", "biases"):
            tensors[name] = entry
    return replace(checkpoint, format="mlx", tensors=tensors)


def _npy_tensor(archive: ZipArchive, name: str, member: Member) -> LazyTensor:
    what = f"array {name!r}"
    start = archive.bytes(member.offset, min(member.size, 12), what)
    if start[:6] != b"\x93NUMPY" or len(start) < 12 or start[6] not in (1, 2):
        raise archive.damaged(f"{what} is no .npy file")
    prefix = 10 if start[6] == 1 else 12
    length = int.from_bytes(start[8:prefix], "little")
    if prefix + length > member.size or length > 10_000:
        raise archive.damaged(f"{what} has a header of {length} bytes")
    header = archive.bytes(member.offset + prefix, length, what)
    found = _HEADER_PATTERN.fullmatch(header)
    if found is None:
        problem = f"{what} has a header that cannot be read: {header[:80]!r}"
        raise CheckpointError(archive.path, problem)
    try:
        kind = np.dtype(found[1].decode())
    except TypeError:
        raise archive.damaged(f"{what} has type {found[1]!r}") from None
    dims = [int(size) for size in found[3].split(b",") if size.strip()]
    if found[2] == b"True" and len(dims) > 1:
        raise CheckpointError(archive.path, f"{what} is stored column by column")
    shape = checked_shape(archive, name, dims)
    offset = member.offset + prefix + length
    if math.prod(shape) * kind.itemsize != member.size - prefix - length:
        raise archive.damaged(f"{what} has not the bytes that its shape {list(shape)} needs")
    return mapped_tensor(archive, offset, kind, shape, name)


def _dequantized_tensor(
    checkpoint: Checkpoint, name: str, words: LazyTensor, scales: LazyTensor
) -> LazyTensor:
    path = checkpoint.path
    biases = checkpoint.tensors.get(name.removesuffix("weight") + "biases")
    quantisation = checkpoint.config.get("quantization")
    if not isinstance(quantisation, dict) or quantisation.get("mode", "affine") != "affine":
        raise CheckpointError(
            path, f"{name} is quantised, and config.json names no affine quantization"
        )
    group, bits = quantisation.get("group_size"), quantisation.get("bits")
    if type(group) is not int or not 1 <= group <= 4096 or type(bits) is not int:
        raise CheckpointError(path, "config.json gives no group_size and bits of its quantization")
    if not 2 <= bits <= 8:
        raise CheckpointError(path, f"config.json has a quantization of {bits} bits, not 2 to 8")
    if (
        biases is None
        or len(words.shape) != 2
        or words.dtype != np.dtype("<u4")
        or scales.shape != biases.shape
        or {scales.dtype.kind, biases.dtype.kind} != {"f"}
        or len(scales.shape) != 2
        or scales.shape[0] != words.shape[0]
        or words.shape[1] * 32 != scales.shape[1] * group * bits
    ):
        raise CheckpointError.tensors(
            path,
            misshapen=[f"{name} {list(words.shape)} with scales {list(scales.shape)}"],
        )
    zero = biases  # for the type checker: not None from here on
    shape = (words.shape[0], scales.shape[1] * group)

    def read() -> Array:
        packed = words.read()
        scale, bias = scales.read().astype(FLOAT32), zero.read().astype(FLOAT32)
        values = np.empty(shape, FLOAT32)
        for first in range(0, shape[0], _CHUNK_ROWS):
            rows = slice(first, first + _CHUNK_ROWS)
            grouped = values[rows].reshape(-1, scales.shape[1], group)
            grouped[:] = _unpack_bits(packed[rows], shape[1], bits).reshape(grouped.shape)
            grouped *= scale[rows, :, None]
            grouped += bias[rows, :, None]
        return values

    return LazyTensor(shape, FLOAT32, read)


def _unpack_bits(words: Array, columns: int, bits: int) -> Array:
    """Each row's words are one stream of bits; element e has bits e * b to e * b + b - 1."""
    stream = np.ascontiguousarray(words).view(np.uint8)
    stream = np.pad(stream, ((0, 0), (0, 1)))  # the last element looks one byte further
    position = np.arange(columns) * bits
    byte, shift = position // 8, (position % 8).astype(np.uint16)
    pair = stream[:, byte] | stream[:, byte + 1].astype(np.uint16) << np.uint16(8)
    found: Array = (pair >> shift) & np.uint16((1 << bits) - 1)
    return found
