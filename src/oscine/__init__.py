"""Speech to text on any GPU through WebGPU, and in NumPy where there is none.

import oscine
model = oscine.load("tiny.en")
print(model.transcribe("talk.mp3").text)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oscine.loading import Model
    from oscine.types import Transcript

__all__ = ["load", "transcribe"]


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # 30 ms that only who asks should wait for

    return version("oscine")


def load(
    model: str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
    *,
    offline: bool = False,
) -> Model:
    """Load a model by name, fetching it if need be, or from a file or folder.

    `device`: auto (a hardware GPU, else NumPy), cpu, gpu, gpu:N, or part of an adapter's name.
    `dtype`: how the GPU holds matrices: f32, f16, or auto (as the checkpoint stores them).
    Raises UsageError, HubError, CheckpointError, DeviceError.
    """
    from oscine.loading import load as load_model  # a bare `import oscine` stays quick

    return load_model(model, device, dtype, offline=offline)


def transcribe(
    audio: Any,
    model: str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
    **options: Any,
) -> Transcript:
    """Load a model and transcribe one recording; for more than one, keep what `load` gives.

    `options`: fields of models.whisper.options.TranscribeOptions, or what
    models.parakeet.options.ParakeetOptions.of takes. Raises what `load` and the model's
    `transcribe` raise.
    """
    return load(model, device, dtype).transcribe(audio, **options)
