"""What scripts for PyTorch and CTranslate2 ask for, in oscine's words, or why it is refused."""

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
#: How numbers are computed there -> how the GPU holds them here.
DTYPES = {
    **{"default": "auto", "auto": "auto", "float32": "f32", "float16": "f16"},
    **dict.fromkeys(("int8", "int8_float32", "int8_float16", "int8_bfloat16"), "auto"),
    **dict.fromkeys(("int16", "bfloat16"), "auto"),
}
_warned: set[str] = set()


def warn_once(message: str) -> None:
    """Warn, once in a process, that something is done in another way."""
    if message not in _warned:
        _warned.add(message)
        log.warning("%s", message)


def to_device(device: Any, index: Any = 0) -> str:
    """`cuda` is the GPU, `cuda:1` or an index of 1 adapter number 1, `cpu` NumPy; None is auto.

    `device` may be a torch.device. Any other text is oscine's. Raises UsageError.
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
    """A type of CTranslate2's as oscine's dtype; a warning where no such arithmetic is done here.

    Raises UsageError for what is no such type.
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
    """A Whisper, opened by oscine.load; UsageError for another model. Raises what that raises."""
    model: Any = load(name, device, dtype, offline=offline)
    if not hasattr(model, "decode_window"):
        raise UsageError(f"{model.name} is not a Whisper; use oscine.load({str(name)!r})")
    return model


def available_models() -> list[str]:
    """Names that load_whisper takes, besides paths and org/name."""
    whisper = next(family for family in registry.families() if family.name == "whisper")
    return [*whisper.models, *whisper.aliases]


def reject_unsupported(call: str, given: Mapping[str, Any], refused: Mapping[str, str]) -> None:
    """Raise UsageError for an option that oscine lacks; None and False ask for nothing."""
    for name, value in given.items():
        if name in refused and value is not None and value is not False:
            raise UsageError(f"{call} cannot do {name}={value!r}: {refused[name]}")


def reject_unknown(call: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise UsageError for options that the other program does not have either."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{call} has no option {name}{hint}")


def missing_attribute(owner: str, name: str, refused: Mapping[str, str]) -> AttributeError:
    """For an attribute that is not there: why, where the other program has it."""
    if name in refused:
        return OtherModelError(f"{owner} has no {name} here: {refused[name]}")
    return AttributeError(f"{owner} has no attribute {name}")


def to_array(audio: Any) -> Any:
    """A tensor as an array, anything else as it is."""
    is_array = isinstance(audio, np.ndarray) or not hasattr(audio, "__array__")
    return audio if is_array else np.asarray(audio)


def without_unused_search(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those of a search that no temperature makes, which both programs pass over.

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
