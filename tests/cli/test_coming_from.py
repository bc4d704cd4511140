"""docs/coming-from.md is true: each of our commands runs, and what it takes of others is theirs."""

from __future__ import annotations

import re
import shlex
import shutil
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.cli import run
from oscine.options.aliases import ALIASES, HINTS
from oscine.options.command import LoadOptions

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "goldens"
WHISPER, PARAKEET = GOLDENS / "whisper_formats", GOLDENS / "parakeet_formats"
PAGE = (ROOT / "docs" / "coming-from.md").read_text("utf-8")
_CELL = r"\| `((?:[^`])+)` \| `([^`]+)`"
#: Programs by heading, and their commands with ours.
ROWS = {
    part.partition("\n")[0]: [
        (theirs, ours.replace("\\|", "|")) for theirs, ours in re.findall(_CELL, part)
    ]
    for part in PAGE.split("\n## ")[1:]
}
OURS = [(name, ours) for name, rows in ROWS.items() for _, ours in rows]


def arguments_of(command: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Our part of a line of shell, whose variables are set; what it is piped into is left out."""
    words = shlex.split(command.partition(" | ")[0])
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    assert words[0] == "oscine"
    return words[1:]


@pytest.fixture(scope="module")
def loaded() -> dict[tuple[str, str], Any]:
    return {}


@pytest.fixture
def workplace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded: dict[tuple[str, str], Any]
) -> Iterator[Path]:
    """The files that the page names, three seconds of speech each, and small random models."""
    monkeypatch.chdir(tmp_path)
    with wave.open(str(ROOT / "examples" / "spoken.wav")) as whole:
        parameters, frames = whole.getparams(), whole.readframes(3 * whole.getframerate())
    Path("recordings").mkdir()
    for name in ("talk.mp3", "talk.wav", "rede.wav", "film.mkv", "call.wav", "recordings/a.wav"):
        with wave.open(name, "wb") as short:
            short.setparams(parameters)
            short.writeframes(frames)
    Path("models").mkdir()
    shutil.copy(WHISPER / "ggml-f16.bin", "models/ggml-base.bin")
    shutil.copy(WHISPER / "ggml-f16.bin", "models/ggml-base.en.bin")
    shutil.copytree(WHISPER / "ct2_float16", "faster-small")
    shutil.copy(PARAKEET / "model.nemo", "parakeet.nemo")
    heard = np.frombuffer(frames, "<i2").astype(np.float32) / 32768
    monkeypatch.setattr("oscine.cli.live.read_microphone", lambda _: iter([heard]))

    def load(name: str, how: LoadOptions) -> Any:
        small = str(PARAKEET / "mlx") if "parakeet" in name else str(GOLDENS / "whisper_multi")
        # The small ggml file knows no German.
        path = name if Path(name).exists() and name != "models/ggml-base.bin" else small
        if (path, how.dtype) not in loaded:
            loaded[path, how.dtype] = oscine.load(path, device="cpu", dtype=how.dtype)
        return loaded[path, how.dtype]

    monkeypatch.setattr("oscine.cli.common.load_model", load)
    yield tmp_path


def test_the_page_has_five_programs() -> None:
    assert len(ROWS) == 5
    assert all(len(rows) >= 5 for rows in ROWS.values())
    assert PAGE.count("\n| `") == len(OURS)


@pytest.mark.parametrize(("program", "command"), OURS)
def test_each_of_our_commands_runs(
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    program: str,
    command: str,
) -> None:
    before = set(workplace.rglob("*"))
    arguments = arguments_of(command, monkeypatch)
    assert run(arguments) == 0
    out, error = capfdbinary.readouterr()
    made = [path for path in workplace.rglob("*") if path not in before and path.is_file()]
    results = [out, *(path.read_bytes() for path in made)]
    assert any(each.strip() for each in results), error
    assert b"Traceback" not in error


def test_an_option_in_both_columns_is_theirs_too() -> None:
    """What is taken stays in our command, what is only answered is not in it."""
    for rows in ROWS.values():
        for theirs, ours in rows:
            there, here = (
                {word.replace("_", "-") for word in each.split() if re.match("--?[a-z]", word)}
                for each in (theirs, ours)
            )
            taken = {name.split()[0] for name in ALIASES}
            assert not here & set(HINTS) - taken, ours
            assert there & taken - set(HINTS) - {"-m"} <= here, ours


@pytest.mark.weights
@pytest.mark.parametrize("program", [*ROWS][:4])
def test_the_first_commands_with_real_weights(
    weights: dict[str, Path],
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    program: str,
) -> None:
    model = oscine.load(str(weights["tiny.en"]), device="cpu")
    monkeypatch.setattr("oscine.cli.common.load_model", lambda *_, **options: model)
    assert run(arguments_of(ROWS[program][0][1], monkeypatch)) == 0
    out = capfdbinary.readouterr().out
    text = (workplace / "talk.txt").read_bytes() if not out else out
    assert b"This recording was made by a computer" in text
