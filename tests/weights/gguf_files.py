"""Writes GGUF files as transcribe.cpp, CrispASR and parakeet.cpp do, with the `gguf` package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Arrays = Mapping[str, np.ndarray]


def write_gguf(
    path: Path,
    architecture: str,
    metadata: Mapping[str, Any],
    arrays: Arrays,
    quantization: Callable[[str, np.ndarray], gguf.GGMLQuantizationType | None] = (
        lambda name, array: None
    ),
) -> Path:
    """Write metadata and tensors; `quantization` gives the type of a tensor, None: as it is."""
    writer = gguf.GGUFWriter(str(path), architecture)
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, list(value))
    for name, array in arrays.items():
        kind = quantization(name, array)
        data = np.ascontiguousarray(array)
        if kind is None:
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, gguf.quantize(data.astype(np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
