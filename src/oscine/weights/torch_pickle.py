"""OpenAI's `.pt` and other files of torch.save: a zip of raw storages and one pickle.

Nothing in the pickle is executed or imported: safe_unpickler. Layout: pytorch
torch/serialization.py (`_save`), openai/whisper whisper/__init__.py (`load_model`).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from oscine.dtypes import BFLOAT16
from oscine.errors import CheckpointError
from oscine.model_files import read_json
from oscine.weights.archive import ZipArchive
from oscine.weights.checkpoint import Checkpoint, LazyTensor, lazy_tensor
from oscine.weights.mapped_file import MAX_TENSORS, Array, checked_shape
from oscine.weights.safe_unpickler import SafeUnpickler, StridedTensor, UnsafePickleError

_DTYPES: dict[str, np.dtype[Any]] = {
    "HalfStorage": np.dtype("<f2"),
    "FloatStorage": np.dtype("<f4"),
    "BFloat16Storage": BFLOAT16,
    "DoubleStorage": np.dtype("<f8"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}
_MAX_PICKLE_BYTES = 16 << 20  # bytes; Whisper large's has 200 KB


def is_torch(archive: ZipArchive) -> bool:
    """Whether a zip archive is one of torch.save."""
    return any(name.endswith("/data.pkl") for name in archive.members)


def read_torch(archive: ZipArchive) -> Checkpoint:
    """Read the state dict and, where the file has them, OpenAI's `dims`.

    Raises:
        CheckpointError: the pickle asks for anything but tensors, or they do not fit the storages.
    """
    path = archive.path
    tensors, dims = read_state(archive)
    config = read_json(path.parent / "config.json") if dims is None else _read_dims(path, dims)
    return Checkpoint("torch", path, path.parent, tensors, config)


def read_state(archive: ZipArchive) -> tuple[dict[str, LazyTensor], object]:
    """The tensors of a state dict, and whatever is called `dims` beside it.

    Raises CheckpointError as `read_torch`.
    """
    path = archive.path
    roots = [n.removesuffix("data.pkl") for n in archive.members if n.endswith("/data.pkl")]
    if len(roots) != 1:
        raise archive.damaged("holds several data.pkl")
    root = roots[0]
    if f"{root}byteorder" in archive.members:
        order = archive.read(f"{root}byteorder", 16).strip()
        if order != b"little":
            raise CheckpointError(path, f"has byte order {order!r}, not little")
    try:
        value = SafeUnpickler(archive.read(f"{root}data.pkl", _MAX_PICKLE_BYTES)).run()
    except UnsafePickleError as refused:
        raise CheckpointError(
            path, str(refused), "nothing of it was executed; get the weights as safetensors"
        ) from None
    if type(value) is not dict:
        raise CheckpointError(path, "holds no dictionary of tensors")
    state = value.get("model_state_dict", value)
    if type(state) is not dict:
        raise CheckpointError(path, "its model_state_dict is no dictionary")
    found = {str(name): one for name, one in state.items() if type(one) is StridedTensor}
    if len(found) > MAX_TENSORS:
        raise archive.damaged(f"holds {len(found)} tensors, more than {MAX_TENSORS}")
    tensors = {name: _tensor_entry(archive, root, name, tensor) for name, tensor in found.items()}
    return tensors, value.get("dims")


def _read_dims(path: Path, dims: object) -> dict[str, Any]:
    if type(dims) is not dict or any(type(size) is not int for size in dims.values()):
        raise CheckpointError(path, "its dims are no dictionary of numbers")
    return {str(name): size for name, size in dims.items()}


def _tensor_entry(archive: ZipArchive, root: str, name: str, tensor: StridedTensor) -> LazyTensor:
    storage = tensor.storage
    kind = _DTYPES[storage.kind]
    width = kind.itemsize
    shape = checked_shape(archive, name, tensor.shape)
    member = archive.members.get(f"{root}data/{storage.key}")
    if member is None or member.size != storage.count * width:
        found = "no" if member is None else str(member.size)
        raise archive.damaged(
            f"tensor {name!r} needs a storage of {storage.count * width} bytes, there are {found}"
        )
    if min(tensor.strides, default=0) < 0 or tensor.offset < 0:
        raise archive.damaged(f"tensor {name!r} has negative strides or offset")
    count = math.prod(shape)
    # The stride of an axis of size 1 is irrelevant, and may have any value.
    own = _row_major(shape)
    strides = tuple(
        mine if size == 1 else stride
        for size, stride, mine in zip(shape, tensor.strides, own, strict=True)
    )
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if count and (tensor.offset + last >= storage.count or count > storage.count):
        raise archive.damaged(f"tensor {name!r} reaches beyond its storage")
    start = member.offset + tensor.offset * width

    def raw(dtype: np.dtype[Any]) -> Array:
        what = f"tensor {name!r}"
        if count == 0 or strides == own:
            return archive.array(start if count else 0, dtype, shape, what)
        span = archive.array(start, dtype, (last + 1,), what)
        steps = tuple(stride * dtype.itemsize for stride in strides)
        view = np.lib.stride_tricks.as_strided(span, shape, steps, writeable=False)
        return np.ascontiguousarray(view)

    return lazy_tensor(shape, kind, raw)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
