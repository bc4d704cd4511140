"""`oscine voices`: with a model that takes a voice of anything, and a small checkpoint's names."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import registry
from oscine.cli import run
from oscine.errors import UsageError
from oscine.models.qwen3_tts.released import LANGUAGES, SPEAKERS
from oscine.models.qwen3_tts.voices import Voice, read_voice

from .conftest import SOUND

Capture = pytest.CaptureFixture[str]

GOLDENS = Path(__file__).resolve().parents[1] / "goldens" / "qwen3_tts"


class Cloner:
    """Of a model what `voices save` uses."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def load(
        self,
        name: str,
        *,
        device: str,
        dtype: str,
        offline: bool,
        deterministic: bool,
        memory: str | None,
    ) -> Cloner:
        self.asked.append((name, device, dtype, offline, *[memory] * (memory is not None)))
        return self

    def speak(self) -> None:
        raise NotImplementedError

    def voice_of(self, reference: str, text: str | None = None, **_: Any) -> Voice:
        self.asked.append((reference, text))
        if "custom" in self.asked[0][0]:
            raise UsageError("speak(reference=...): it is a custom_voice model")
        codes = None if text is None else np.ones((3, 4), np.uint32)
        return Voice("", np.arange(8, dtype=np.float32), codes, text, "0b6")


@pytest.fixture
def cloner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_home: Path) -> Cloner:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights-custom").mkdir()
    (tmp_path / "ref.wav").write_bytes(SOUND)
    made = Cloner()
    monkeypatch.setattr("oscine.load", made.load)
    return made


def save(*arguments: str, model: str = "weights") -> int:
    return run(["voices", "save", *arguments, "--model", model])


def listed(capsys: Capture) -> list[str]:
    assert run(["voices", "list"]) == 0
    return [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]


def test_a_voice_is_saved_listed_and_removed(
    cloner: Cloner, empty_home: Path, capsys: Capture
) -> None:
    assert listed(capsys) == []
    assert save("anna", "--audio", "ref.wav", "--text", "What she says.", "--device", "cpu") == 0
    file = empty_home / "voices" / "anna.safetensors"
    out, error = capsys.readouterr()
    assert out == f"{file}\n"
    assert error == "oscine: voice 'anna' saved; speak with it: --model weights --voice 'anna'\n"
    assert cloner.asked == [("weights", "cpu", "auto", False), ("ref.wav", "What she says.")]
    voice = read_voice(file)
    assert (voice.text, voice.size) == ("What she says.", "0b6")
    assert save("bert", "--audio", "ref.wav") == 0
    capsys.readouterr()
    assert listed(capsys) == ["anna", "bert"]
    assert run(["voices", "remove", "anna"]) == 0
    assert capsys.readouterr() == ("", "oscine: voice 'anna' removed\n")
    assert listed(capsys) == ["bert"]


def test_a_folder_called_like_the_default_model_is_not_in_the_way(
    cloner: Cloner, empty_home: Path
) -> None:
    Path(registry.default_model("speak")).mkdir()
    assert save("anna", "--audio", "ref.wav") == 0
    assert (empty_home / "voices" / "anna.safetensors").is_file()


def test_a_voice_is_taken_of_standard_input_and_found_in_any_case(
    cloner: Cloner, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(SOUND)))
    assert save("Anna", "--audio", "-") == 0
    assert cloner.asked[1][0].name == "standard input"
    assert save("anna", "--audio", "ref.wav") == 2
    assert "voice 'Anna' exists already; --force" in capsys.readouterr().err
    assert run(["voices", "remove", "ANNA"]) == 0
    assert listed(capsys) == []


def test_the_words_of_a_voice_may_lie_in_a_file(cloner: Cloner, empty_home: Path) -> None:
    Path("said.txt").write_bytes(b"\xef\xbb\xbfWhat she\r\nsays.\r\n")
    assert save("anna", "--audio", "ref.wav", "--text", "said.txt") == 0
    assert read_voice(empty_home / "voices" / "anna.safetensors").text == "What she\nsays."
    Path("said.txt").write_bytes(b"\xff")
    assert save("bert", "--audio", "ref.wav", "--text", "said.txt") == 1


def test_no_voices_are_told(cloner: Cloner, capsys: Capture) -> None:
    for more in ([], ["--model", "qwen3-tts-1.7b-base"]):
        assert run(["voices", "list", *more]) == 0
        out, error = capsys.readouterr()
        assert out == "" and error.startswith("oscine: no voices are saved; oscine voices save")


def test_a_voice_is_replaced_only_by_force(
    cloner: Cloner, empty_home: Path, capsys: Capture
) -> None:
    assert save("anna", "--audio", "ref.wav") == 0
    file = empty_home / "voices" / "anna.safetensors"
    first = file.read_bytes()
    capsys.readouterr()
    assert save("anna", "--audio", "ref.wav", "--text", "More.") == 2
    assert "voice 'anna' exists already; --force" in capsys.readouterr().err
    assert file.read_bytes() == first and len(cloner.asked) == 2  # loaded once, asked once
    assert save("anna", "--audio", "ref.wav", "--text", "More.", "--force") == 0
    assert "voice 'anna' replaced" in capsys.readouterr().err
    assert read_voice(file).text == "More."


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["../x", "--audio", "ref.wav"], 2, "'../x' is not a valid name of a voice"),
        (["", "--audio", "ref.wav"], 2, "'' is not a valid name of a voice"),
        (["help", "--audio", "ref.wav"], 2, "'help' as a voice lists the saved voices; give anoth"),
        (["anna", "--audio", "none.wav"], 1, "none.wav: no such file"),
        (["anna", "--audio", "ref.wav", "--text", " "], 2, "text is empty"),
        (
            ["anna", "--audio", "ref.wav", "--text", "said.txt"],
            2,
            "said.txt: no such file; give the",
        ),
        (
            ["anna", "--audio", "ref.wav", "--text", "weights"],
            2,
            "weights is a folder; name a file",
        ),
        (["anna", "--audio", "ref.wav", "--text", "-"], 2, "standard input cannot be the words"),
        (["anna", "--audio", "ref.wav", "--device", "cuda"], 2, "oscine needs no CUDA"),
        (["anna"], 2, "Missing option '--audio'"),
    ],
)
def test_a_voice_that_cannot_be_saved_is_told_before_the_model_loads(
    cloner: Cloner, capsys: Capture, arguments: list[str], code: int, problem: str
) -> None:
    assert save(*arguments) == code
    out, error = capsys.readouterr()
    assert out == ""
    assert problem in error and error.count("\n") == 1
    assert cloner.asked == []
    assert listed(capsys) == []


def test_a_model_that_clones_nobody(cloner: Cloner, capsys: Capture) -> None:
    assert save("anna", "--audio", "ref.wav", model="weights-custom") == 2
    assert "it is a custom_voice model" in capsys.readouterr().err
    assert listed(capsys) == []


def test_to_remove_a_voice_that_is_not_there(cloner: Cloner, capsys: Capture) -> None:
    assert run(["voices", "remove", "anna"]) == 2
    assert capsys.readouterr().err == "oscine: no voice is saved as 'anna'; saved: none\n"


def test_speakers_of_a_model_without_its_weights(
    cloner: Cloner, empty_home: Path, capsys: Capture
) -> None:
    assert save("anna", "--audio", "ref.wav") == 0
    capsys.readouterr()
    assert run(["voices", "list", "--model", str(GOLDENS / "base" / "ckpt")]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["anna"]
    checkpoint = str(GOLDENS / "custom_voice" / "ckpt")
    for arguments in (["voices", "list"], ["speak", "--voice", "help"]):
        assert run([*arguments, "--model", checkpoint]) == 0
        out, error = capsys.readouterr()
        assert [line.split()[0] for line in out.splitlines()[1:]] == [
            "dylan", "eric", "ryan", "serena", "vivian",
        ]  # fmt: skip
        assert "dylan   beijing_dialect" in out
    assert error.startswith("languages: auto, chinese, english, ")
    assert "dialect" not in error


def test_damaged_voices_and_those_of_another_size_are_no_models(
    cloner: Cloner, empty_home: Path, capsys: Capture
) -> None:
    for name in ("anna", "bert"):
        assert save(name, "--audio", "ref.wav") == 0
    file = empty_home / "voices" / "bert.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    capsys.readouterr()
    for arguments, names in [
        ([], ["anna", "bert"]),  # so that it is known what can be removed
        (["--model", "qwen3-tts-0.6b-base"], ["anna"]),
        (["--model", "qwen3-tts-1.7b-base"], []),
    ]:
        assert run(["voices", "list", *arguments]) == 0
        out, error = capsys.readouterr()
        assert [line.split()[0] for line in out.splitlines()[1:]] == names
        told = error.splitlines()
        assert told[0].startswith(f"oscine: {file}: ")
        assert told[0].endswith("; save the voice again")
        assert told[1:] == (
            [] if names else ["oscine: qwen3-tts-1.7b-base can speak with none of the saved voices"]
        )


def test_what_released_models_take_is_told_without_them(
    cloner: Cloner, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oscine.hub.resolve", None)  # nothing is fetched
    for model in ("qwen3-tts-1.7b-custom-voice", "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"):
        assert run(["speak", "--voice", "help", "--model", model]) == 0
        out, error = capsys.readouterr()
        assert [line.split()[0] for line in out.splitlines()[1:]] == list(SPEAKERS)
        assert error == f"languages: auto, {', '.join(LANGUAGES)}\n"
    assert run(["speak", "--voice", "help"]) == 0
    assert "ryan" in capsys.readouterr().out
    assert run(["speak", "--voice", "help", "--model", "qwen3-tts-1.7b-voice-design"]) == 0
    out, error = capsys.readouterr()
    assert out == "" and "has no voices: describe one with --instruct" in error
    assert run(["voices", "list", "--model", "qwen3-tts-0.6b-custom-voice"]) == 0
    assert "vivian" in capsys.readouterr().out
    assert run(["voices", "list", "--model", "base"]) == 2
    assert "base writes down and does not speak" in capsys.readouterr().err


def test_a_released_model_that_clones_nobody_is_not_fetched(
    cloner: Cloner, capsys: Capture
) -> None:
    assert save("anna", "--audio", "ref.wav", model="qwen3-tts-0.6b-custom-voice") == 2
    assert "cannot clone others; use a base model, such as" in capsys.readouterr().err
    assert cloner.asked == []


@pytest.mark.parametrize(
    ("model", "code", "problem"),
    [
        ("some/speaker", 1, "is not on this machine; oscine models pull some/speaker"),
        ("qwen3", 2, "no model is called 'qwen3'"),
        (str(GOLDENS.parent / "whisper_formats"), 1, ""),
    ],
)
def test_speakers_of_what_is_no_such_model(
    empty_home: Path, capsys: Capture, model: str, code: int, problem: str
) -> None:
    assert run(["voices", "list", "--model", model]) == code
    out, error = capsys.readouterr()
    assert out == ""
    assert problem in error and error.startswith("oscine: ") and error.count("\n") == 1
