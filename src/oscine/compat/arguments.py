"""Translates arguments of scripts for PyTorch and CTranslate2 to oscine's, or refuses them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from oscine import registry
from oscine.errors import OtherModelError, UsageError
from oscine.loading import load

log = logging.getLogger(__name__)

GPUS = ("cuda", "gpu", "mps", "xpu")
#: CTranslate2's compute_type -> oscine's dtype.
DTYPES = {
    **{"default": "auto", "auto": "auto", "float32": "f32", "float16": "f16"},
    **dict.fromkeys(("int8", "int8_float32", "int8_float16", "int8_bfloat16"), "auto"),
    **dict.fromkeys(("int16", "bfloat16"), "auto"),
}
_warned: set[str] = set()


def warn_once(message: str) -> None:
    """Log a warning only once in a process."""
    if message not in _warned:
        _warned.add(message)
        log.warning("%s", message)


def to_device(device: Any, index: Any = 0) -> str:
    """Translate a device: `cuda` is the GPU, `cuda:1` or index 1 GPU 1, `cpu` NumPy, None auto.

    `device` may be a torch.device; other text is passed to oscine. Raises UsageError.
    """
    if isinstance(index, list | tuple) and len(index) == 1:
        (index,) = index
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise UsageError(
            f"device_index={index!r} is not one number from 0; oscine runs a model on one device"
        )
    name, _, number = ("auto" if device is None else str(device)).partition(":")
    if name.lower() not in GPUS:
        if index and name.lower() != "auto":
            raise UsageError(f"device_index={index} goes with device='cuda', not {device!r}")
        if not index:
            return name + (f":{number}" if number else "")
    number = number or (str(index) if index else "")
    return f"gpu:{number}" if number not in ("", "0") else "gpu"


def to_dtype(compute_type: Any) -> str:
    """Translate CTranslate2's compute_type to a dtype, with a warning if it is not supported.

    Raises UsageError for an unknown type.
    """
    if isinstance(compute_type, Mapping):
        raise UsageError("compute_type must be one name, as oscine runs a model on one device")
    if compute_type not in DTYPES:
        raise UsageError(f"compute_type={compute_type!r} is unknown; valid are {', '.join(DTYPES)}")
    if compute_type not in ("default", "auto") and DTYPES[compute_type] == "auto":
        warn_once(
            f"compute_type={compute_type}: oscine computes in float32 and float16, with the "
            "weights as they are stored"
        )
    return DTYPES[compute_type]


def load_whisper(name: Any, device: str, dtype: str = "auto", *, offline: bool = False) -> Any:
    """Load a Whisper model. Raises UsageError for another model, and the errors of oscine.load."""
    model: Any = load(name, device, dtype, offline=offline)
    if not hasattr(model, "decode_window"):
        raise UsageError(f"{model.name} is not a Whisper; use oscine.load({str(name)!r})")
    return model


def available_models() -> list[str]:
    """Names of the Whisper models and their aliases."""
    whisper = next(family for family in registry.families() if family.name == "whisper")
    return [*whisper.models, *whisper.aliases]


def reject_unsupported(call: str, given: Mapping[str, Any], refused: Mapping[str, str]) -> None:
    """Raise UsageError for an unsupported option, unless its value is None or False."""
    for name, value in given.items():
        if name in refused and value is not None and value is not False:
            raise UsageError(f"{call} cannot do {name}={value!r}: {refused[name]}")


def reject_unknown(call: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise UsageError for options that the other program does not have."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{call} has no option {name}{hint}")


def missing_attribute(owner: str, name: str, refused: Mapping[str, str]) -> AttributeError:
    """The error for a missing attribute; gives the reason if the other program has it."""
    if name in refused:
        return OtherModelError(f"{owner} has no {name} here: {refused[name]}")
    return AttributeError(f"{owner} has no attribute {name}")


def to_array(audio: Any) -> Any:
    """Convert a tensor to an array; other values are unchanged."""
    is_array = isinstance(audio, np.ndarray) or not hasattr(audio, "__array__")
    return audio if is_array else np.asarray(audio)


def without_unused_search(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those of searches that no temperature uses, which both programs ignore.

    Source: whisper/transcribe.py, decode_with_fallback.
    """
    kept = dict(options)
    temperature = kept["temperature"]
    several = isinstance(temperature, list | tuple)
    temperatures = tuple(temperature) if several else (temperature,)
    if not any(temperatures):
        kept.pop("best_of", None)
    if all(temperatures):
        kept.pop("beam_size", None)
    if (kept.get("beam_size") or 1) == 1 and kept.get("patience") == 1:
        del kept["patience"]
    if all(temperatures):
        kept.pop("patience", None)
    return kept
