"""Speech to text and text to speech on any GPU through WebGPU, and in NumPy where there is none.

import oscine
model = oscine.load("tiny.en")
print(model.transcribe("talk.mp3").text)
model = oscine.load("qwen3-tts-0.6b-custom-voice")
model.speak("Hello there.", voice="ryan").save("hello.wav")
"""

# Nothing is imported here, so that `python -m oscine` takes no module from the current folder:
# oscine/__main__.py. Type checkers take this name to be true.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Any

    from oscine.family import Family
    from oscine.models.base_model import Model
    from oscine.models.speech import Speech
    from oscine.types import Transcript

__all__ = ["load", "plain_text", "register", "speak", "transcribe"]


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # 30 ms that only who asks should wait for

    return version("oscine")


def load(
    model: "str | Path | None" = None,
    device: str = "auto",
    dtype: str = "auto",
    *,
    offline: bool = False,
    progress: bool = False,
    deterministic: bool = False,
    memory: "str | int | None" = None,
) -> "Model[Any]":
    """Load a model by name, fetching it if need be, or from a file or folder.

    `device`: auto (a hardware GPU, else NumPy), cpu, gpu, gpu:N, part of an adapter's name, or all:
    a process for each GPU, which share what the model is asked for.
    `dtype`: how the GPU holds matrices: f32, f16, or auto (as the checkpoint stores them).
    `progress`: whether to show a bar for each file that is fetched.
    `deterministic`: batches of one size, so that a result on a device is the same under any load,
    bit for bit. On a GPU they are of 16 sequences, which costs time where fewer run; NumPy computes
    one after another.
    `memory`: the most that the model may allocate on its device for weights, sequences and what it
    computes: bytes, or text such as "4GB", "1.5GiB" or "50%" of what is free. With less memory
    fewer sequences run at once; results stay the same. None: as much as the device has. See
    docs/devices.md.
    Raises UsageError, HubError, CheckpointError, DeviceError.
    """
    from oscine.loading import load as load_model  # a bare `import oscine` stays quick

    return load_model(
        model,
        device,
        dtype,
        offline=offline,
        progress=progress,
        deterministic=deterministic,
        memory=memory,
    )


def plain_text(text: str) -> str:
    """Markdown as text that can be spoken: without markup, targets of links, emoji and code.

    `oscine speak --plain` does the same. Raises UsageError for what is no text.
    """
    from oscine.text.plain import plain_text as plain

    return plain(text)


def register(family: "Family") -> None:
    """Add a family of models for this process; an installed package does so by an entry point.

    Raises UsageError for what is not a Family, or has a name that another family has.
    """
    from oscine.registry import register as add

    add(family)


def transcribe(
    audio: "Any",
    model: "str | Path | None" = None,
    device: str = "auto",
    dtype: str = "auto",
    **options: "Any",
) -> "Transcript":
    """Load a model and transcribe one recording; for more than one, keep what `load` gives.

    `options`: fields of oscine.options.transcribe.TranscribeOptions; the model refuses those that
    its family lacks. Raises what `load` and the model's `transcribe` raise.
    """
    loaded: Any = load(model, device, dtype)
    transcript: Transcript = loaded.transcribe(audio, **options)
    return transcript


def speak(
    text: "str | Iterable[str]",
    model: "str | Path | None" = None,
    device: str = "auto",
    dtype: str = "auto",
    **options: "Any",
) -> "Speech":
    """Load a model and have it say one text; for more than one, keep what `load` gives.

    `options`: what models.qwen3_tts.pipeline.Qwen3Tts.speak takes, and the fields of
    oscine.options.speak.SpeakOptions. Raises what `load` and the model's `speak` raise.
    """
    if model is None:
        from oscine.registry import default_model

        model = default_model("speak")
    loaded: Any = load(model, device, dtype)
    speech: Speech = loaded.speak(text, **options)
    return speech
