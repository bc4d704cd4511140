"""Folders that may not be opened: one line for what is in them, whoever runs the tests."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oscine.cli import run
from oscine.errors import CheckpointError, UsageError
from oscine.models.qwen3_tts.voices import VoiceFolder
from oscine.weights import read_checkpoint

Close = Callable[[Path], Path]


@pytest.fixture
def close(monkeypatch: pytest.MonkeyPatch) -> Close:
    """Has the system refuse what is below a folder, as it does for all users but root."""

    def closed(folder: Path) -> Path:
        def refusing(call: Any, itself: bool) -> Any:
            def asked(path: Any = ".", *given: Any, **named: Any) -> Any:
                place = Path(os.fsdecode(path)) if not isinstance(path, int) else Path()
                if folder in place.parents or (itself and place == folder):
                    raise PermissionError(errno.EACCES, "Permission denied", str(place))
                return call(path, *given, **named)

            return asked

        for name in ("stat", "lstat", "open", "mkdir", "unlink", "readlink", "rename"):
            monkeypatch.setattr(os, name, refusing(getattr(os, name), itself=False))
        for name in ("listdir", "scandir"):
            monkeypatch.setattr(os, name, refusing(getattr(os, name), itself=True))
        monkeypatch.setattr(os, "access", lambda path, *_, **__: Path(path) != folder)
        return folder

    return closed


def test_a_closed_folder_of_a_model_is_told(tmp_path: Path, close: Close) -> None:
    folder = close(tmp_path / "model")
    folder.mkdir()
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    assert str(caught.value) == f"{folder}: may not be opened; check its permissions"
    with pytest.raises(CheckpointError, match="no such file or folder"):
        read_checkpoint(folder / "model.safetensors")


def test_a_folder_of_a_model_that_cannot_be_listed_is_told(
    tmp_path: Path, close: Close, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = close(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_, **__: True)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    said = f"{folder}: cannot be listed (Permission denied); check its permissions"
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["models", "list"], 0),
        (["models", "path", "tiny.en", "--offline"], 1),
        (["models", "pull", "tiny.en", "--check", "--offline"], 1),
        (["voices", "list"], 0),
        (["voices", "remove", "anna"], 1),
    ],
)
def test_a_closed_home_is_one_line(
    tmp_path: Path,
    close: Close,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
) -> None:
    monkeypatch.setenv("OSCINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    (tmp_path / "home").mkdir()
    close(tmp_path / "home")
    assert run(arguments) == code
    error = capsys.readouterr().err
    assert error.count("\n") == (error != "") and "Traceback" not in error


def test_a_closed_folder_of_voices_is_told(tmp_path: Path, close: Close) -> None:
    voices = VoiceFolder(close(tmp_path / "voices"))
    assert voices.names() == [] and not voices.has("anna")
    with pytest.raises(UsageError, match=r"no voice is saved as 'anna'; saved: none yet"):
        voices.load("anna")
    assert voices.path_to_write("anna") == tmp_path / "voices" / "anna.safetensors"
