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
    from typing import Any, Never

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
    **unknown: "Never",
) -> "Model[Any]":
    """Load a model by name, which is downloaded if necessary, or from a file or folder.

    Args:
        model: A name of `oscine models list`, `org/name` on Hugging Face, or a path; None: base.
        device: auto (a hardware GPU, else NumPy), cpu, gpu, gpu:N, part of an adapter's name, or
            all: one process for each GPU, among which calls are distributed.
        dtype: Type of the matrices on the GPU: f32, f16, q8 and q4 (8 and 4 bits, in blocks), or
            auto (that of the checkpoint).
        offline: Download nothing.
        progress: Show a progress bar for each file that is downloaded.
        deterministic: Fix the size of batches, so that a result on a device is the same under any
            load, bit for bit. A GPU then computes 16 sequences at each step, however few run;
            NumPy computes sequences one after another.
        memory: The most that the model may allocate on its device for weights, sequences and
            results: bytes, or text such as "4GB", "1.5GiB" or "50%" of what is free. With less
            memory fewer sequences run at once; results stay the same. None: as much as the device
            has. See docs/devices.md.
        unknown: Refused with the method that takes such an option.

    Raises:
        UsageError, HubError, CheckpointError, DeviceError.
    """
    # Imported here, so that a bare `import oscine` stays quick.
    if unknown:
        from oscine.options.calls import unknown_argument

        raise unknown_argument(next(iter(unknown)))
    from oscine.loading import load as load_model

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
    """Convert Markdown to text that can be spoken: without markup, link targets, emoji and code.

    `oscine speak --plain` does the same. Raises UsageError if `text` is not a str.
    """
    from oscine.text.plain_text import plain_text as plain

    return plain(text)


def register(family: "Family") -> None:
    """Add a family of models for this process; an installed package does so by an entry point.

    Raises UsageError if it is not a Family, or has the name of another family.
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
    """Load a model and transcribe one recording; for several, keep the model that `load` returns.

    Args:
        audio: A path, "-", bytes, a binary file, an array at 16 kHz, or (array, rate).
        model: As in `load`.
        device: As in `load`.
        dtype: As in `load`.
        options: Fields of oscine.options.transcribe.TranscribeOptions; the model refuses those
            that its family does not support.

    Raises:
        The errors of `load` and of the model's `transcribe`.
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
    """Load a model and speak one text; for several, keep the model that `load` returns.

    Args:
        text: The text, or its parts in order.
        model: As in `load`; None: qwen3-tts-0.6b-custom-voice.
        device: As in `load`.
        dtype: As in `load`.
        options: Arguments of the model's `speak`, such as `voice`, and fields of
            oscine.options.speak.SpeakOptions.

    Raises:
        The errors of `load` and of the model's `speak`.
    """
    if model is None:
        from oscine.registry import default_model

        model = default_model("speak")
    loaded: Any = load(model, device, dtype)
    speech: Speech = loaded.speak(text, **options)
    return speech
