"""`oscine models`, run in this process on an empty model folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oscine import hub, registry
from oscine.cli import run
from oscine.models.parakeet import released as parakeet
from oscine.models.qwen3_tts import released as qwen3_tts
from oscine.models.whisper import released as whisper


def made_up_model(home: Path, name: str) -> Path:
    folder = home / "models" / name
    folder.mkdir(parents=True)
    for file in ("config.json", "tokenizer.json", "model.bin"):
        (folder / file).write_bytes(b"{}")
    return folder


def test_list_names_every_model_the_default_and_what_is_here(
    empty_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made_up_model(empty_home, "tiny.en")
    assert run(["models", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        *whisper.MODELS,
        *parakeet.MODELS,
        *qwen3_tts.MODELS,
    ]
    cells = {line.split()[0]: re.split("  +", line.strip())[1:4] for line in lines[1:]}
    assert cells["parakeet-tdt-0.6b-v3"] == ["speech to text", "25", "2.5 GB"]
    assert cells["parakeet-tdt-0.6b-v2"][1] == "English"
    assert cells["distil-large-v3"][1] == "English"  # of 100 languages, by its vocabulary
    assert cells["qwen3-tts-0.6b-base"] == ["text to speech", "10", "2.5 GB"]
    assert cells["tiny"][2] == "154 MB"
    marked = {name: does for name, (does, *_) in cells.items() if "(default)" in does}
    assert marked == {
        registry.default_model("transcribe"): "speech to text (default)",
        registry.default_model("speak"): "text to speech (default)",
    }
    assert [line for line in lines if str(folder) in line] == [lines[2]]


@pytest.mark.parametrize("command", ["path", "pull"])
def test_a_model_that_is_here_is_one_line_on_stdout(
    empty_home: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    folder = made_up_model(empty_home, "tiny.en")
    assert run(["models", command, "tiny.en", "--offline"]) == 0
    assert capsys.readouterr().out == f"{folder}\n"


@pytest.mark.parametrize(
    "command",
    [
        ["models", "pull", "{}"],
        ["models", "pull", "{}", "--check"],
        ["models", "path", "{}"],
        ["transcribe", "{sound}", "--model", "{}"],
        ["transcribe", "--live", "-", "--model", "{}"],
        ["speak", "Hello.", "-o", "out.wav", "--model", "{}"],
        ["voices", "list", "--model", "{}"],
        ["voices", "save", "anna", "--audio", "{sound}", "--model", "{}"],
    ],
)
def test_a_name_that_no_table_has_is_a_wrong_call_of_every_command(
    empty_home: Path, example: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    for name, meant in (("qwen3-tts-1.7-base", "'qwen3-tts-1.7b-base'?"), ("nosuch", "nown: ")):
        assert run([part.format(name, sound=example) for part in command]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith(f"oscine: no model is called '{name}'; ") and meant in err
        assert err.endswith(", or a path, or org/name\n")


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("base", 1, "fetching is switched off"),
        ("bse", 2, "did you mean 'base'"),
        ("x" * 5000, 2, "no model is called"),
        ("org/" + "x" * 5000, 1, "no such file or folder"),
        ("~nobody-of-that-name/x", 1, "no such file or folder"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_line_on_stderr(
    empty_home: Path, capsys: pytest.CaptureFixture[str], name: str, code: int, words: str
) -> None:
    assert run(["models", "pull", name, "--offline"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"{err.strip()}\n"
    assert words in err


def test_an_empty_name_is_misuse(empty_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "pull", "", "--offline"]) == 2
    assert capsys.readouterr() == ("", "oscine: the name of a model is empty\n")


def test_a_home_of_nobody_is_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OSCINE_HOME", "~nobody-of-that-name/x")
    assert hub.home() == Path("~nobody-of-that-name/x")
