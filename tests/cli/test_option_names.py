"""Messages of the library name options as Python does, and those of the command as flags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oscine import backends
from oscine.cli import run
from oscine.cli.option_names import use_flags
from oscine.errors import DeviceLostError, MemoryBudgetError, NonFiniteError
from oscine.gpu import device as gpu_device

Recordings = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("message", "flags"),
    [
        ('use device="cpu", or dtype="f16"', "use --device cpu, or --dtype f16"),
        ('device="nvidia h200": no such', '--device "nvidia h200": no such'),
        ("use a larger memory=, or less", "use a larger --memory, or less"),
        ("patience=2.5 is for beam_size=1.", "--patience 2.5 is for --beam-size 1."),
        ("vad_filter=False", "--no-vad-filter"),
        ("it needs word_timestamps=True", "it needs --word-timestamps"),
        ("patience needs beam_size above 1", "--patience needs --beam-size above 1"),
        ("Parakeet does not support prefix: leave", "Parakeet does not support --prefix: leave"),
    ],
)
def test_options_become_flags(message: str, flags: str) -> None:
    assert use_flags(message) == flags
    assert use_flags(flags) == flags


@pytest.mark.parametrize(
    "message",
    [
        "beam_size.wav: no such file",
        "in/initial_prompt/a.wav: no such file",
        "OSCINE_DEVICE=cuda: use OSCINE_DEVICE=gpu",
        "a.wav: the language is detected; its device and model are known",
        "speak(reference=...): it has no voice",
        "n_mels=80 is no option",
    ],
)
def test_other_text_stays(message: str) -> None:
    assert use_flags(message) == message


def test_the_library_names_no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OSCINE_DEVICE", raising=False)
    errors: list[Exception] = [
        DeviceLostError("GPU", "reset"),
        MemoryBudgetError("GPU", 7, "7B", "5B"),
        NonFiniteError.of_network("logits", "GPU"),
        gpu_device.no_adapter_error("auto", {}, {}),
        gpu_device.no_adapter_error("gpu", {"wgpu": []}, {}),
    ]
    with pytest.raises(ValueError, match='device="cuda": oscine needs no CUDA') as wrong:
        backends.parse_device("cuda")
    for error in [*errors, wrong.value]:
        assert "--" not in str(error)
        assert '="' in str(error)
        assert '="' not in use_flags(str(error))


def test_the_command_names_flags(
    model: Any, recordings: Recordings, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    recordings("a.wav")
    for arguments, problem in [
        (
            ["--device", "cuda"],
            b"oscine: --device cuda: oscine needs no CUDA, ROCm or MPS;",
        ),
        (["--memory", "much"], b"oscine: --memory must be a size such as 4GB"),
        (["--clause-breaks"], b"oscine: --clause-breaks needs --max-line-width\n"),
    ]:
        assert run(["transcribe", "a.wav", "--model", "weights", *arguments]) == 2
        assert capsysbinary.readouterr().err.startswith(problem)
