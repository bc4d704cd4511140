"""The speak command: wrong calls, models that cannot, and files that speech may not replace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.cli import run
from oscine.models.qwen3_tts.capabilities import Capabilities
from oscine.models.qwen3_tts.voices import Voice, VoiceFolder

from .conftest import SOUND
from .speaking import Speaker, files, speak

Capture = pytest.CaptureFixture[bytes]


def test_a_reference_is_told_before_the_model_loads(
    speaker: Speaker, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert speak("Hello", "-o", "a.wav", "--reference", "ref.wav") == 1
    assert capsysbinary.readouterr().err == b"oscine: ref.wav: no such file; check the path\n"
    assert speaker.loaded == []
    cloner = Capabilities("weights", "base", "1b7", {}, ("english",))
    monkeypatch.setattr(speaker, "capabilities", cloner, raising=False)
    Path("ref.wav").write_bytes(SOUND)
    arguments = ["--reference", "ref.wav", "--reference-text", "hi", "--reference-silence", "0.5"]
    assert speak("Hello", "-o", "a.wav", *arguments, "--x-vector-only") == 0
    assert speaker.asked[0][1] == {
        "reference": "ref.wav", "reference_text": "hi", "reference_silence": 0.5,
        "x_vector_only": True,
    }  # fmt: skip
    Path("said.txt").write_text("The words.\n")
    for value, words in [("said.txt", "The words."), ("said.", "said.")]:
        arguments = ["--reference", "ref.wav", "--reference-text", value]
        assert speak("Hello", "-o", "a.wav", *arguments) == 0
        assert speaker.asked[-1][1] == {"reference": "ref.wav", "reference_text": words}
    assert speak("Hello", *arguments[:3], "said.txt", "-o", "said.txt", "-f", "wav") == 2
    assert b"said.txt would be overwritten by the speech" in capsysbinary.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["-o", "a.wav"],
            'standard input, as in oscine speak "Hello there." -o hello.wav',
        ),
        (["", "-o", "a.wav"], "there is no text to speak"),
        (["missing.txt", "-o", "a.wav"], "missing.txt: no such file"),
        (["Hello", "-o", "a.doc"], "a.doc: .doc is not an audio format; supported: wav, raw, mp3"),
        (["Hello", "-o", "a"], "a: no suffix names a format"),
        (["Hello", "-o", "a.wav", "-f", "doc"], "unknown audio format 'doc'"),
        (["Hello", "-o", ""], "the name of the output file is empty"),
        (["Hello", "-o", "weights"], "weights is a folder; name a file in it"),
        (["Hello", "-o", "a.wav", "--temperature", "0"], "--temperature must be a number above 0"),
        (["Hello", "-o", "a.wav", "--temperature", "nan"], "--temperature must be a number"),
        (["Hello", "-o", "a.wav", "--top-p", "1.5"], "--top-p must be above 0 and at most 1"),
        (["Hello", "-o", "a.wav", "--top-k", "-1"], "--top-k must be a whole number"),
        (["Hello", "-o", "a.wav", "--top-k", "x"], "'x' is not a whole number"),
        (["Hello", "-o", "a.wav", "--seed", "-1"], "--seed must be a whole number from 0"),
        (["Hello", "-o", "a.wav", "--max-seconds", "0"], "--max-seconds must be a number above 0"),
        (["Hello", "-o", "a.wav", "--repetition-penalty", "0"], "--repetition-penalty must be"),
        (["Hello", "-o", "a.wav", "--no-such-option", "3"], "No such option: --no-such-option"),
        (["Hello", "-o", "a.wav", "--device", "cuda"], "oscine needs no CUDA"),
        (["Hello", "-o", "a.wav", "--threads", "-1"], "--threads must be a whole number"),
        (["Hello", "-o", "a.wav", "--dtype", "f8"], "Invalid value for '--dtype'"),
        (["Hello", "-o", "a.wav", "--dtype"], "Option '--dtype' requires an argument"),
        (["Hello", "world", "-o", "a.wav"], 'put the text in quotes, as in oscine speak "Hello'),
        (["Hello", "-o", "a.wav", "--speed", "2"], "no option speed: the model sets its own pace"),
        (["Hello", "--ref_text=x"], "no option ref_text: it is called --reference-text here"),
        (["Hello", "--reference-text", "said.txt"], "said.txt: no such file; give the words that"),
        (["-5 degrees", "-o", "a.wav"], "No such option: -5; a text that begins with a dash comes"),
        (["-x", "-o", "a.wav"], 'comes after --, as in oscine speak -o cold.wav -- "-5 degrees"'),
        (["--5 degrees", "-o", "a.wav"], "a text that begins with a dash comes after --"),
        (["weights", "-o", "a.wav"], "weights is a folder; name a file in it"),
        (["-", "-o", "a.wav", "--reference", "-"], "cannot be both the text and the reference"),
    ],
)
def test_a_wrong_call_is_one_line_and_nothing_is_loaded_to_speak(
    speaker: Speaker, capsysbinary: Capture, arguments: list[str], problem: str
) -> None:
    assert speak(*arguments) == 2
    out, error = capsysbinary.readouterr()
    assert out == b""
    assert error.startswith(b"oscine: ") and error.count(b"\n") == 1
    assert problem in error.decode()
    assert speaker.loaded == []
    assert files() == []


@pytest.mark.parametrize(
    ("model", "arguments", "problem"),
    [
        ("0.6b-custom-voice", "--voice nobody", "there is no voice 'nobody'; qwen3-tts-0.6b-cu"),
        ("0.6b-custom-voice", "--voice anna", "'anna' is a saved voice, which needs a base model"),
        (
            "0.6b-custom-voice",
            "--language klingon",
            "does not speak 'klingon'; it speaks chinese",
        ),
        ("0.6b-custom-voice", "--reference said.txt", "takes no reference; leave that out, or use"),
        ("0.6b-custom-voice", "--x-vector-only", "takes no --x-vector-only"),
        ("1.7b-voice-design", "--voice ryan", "takes no voice; leave that out, or use a custom"),
        ("0.6b-base", "", "give a reference, which is a recording, or a voice that was saved"),
        ("0.6b-base", "--voice bert", "no voice is saved as 'bert'; saved: anna"),
        ("1.7b-base", "--voice anna", "made with a 0.6B model; qwen3-tts-1.7b-base is of another"),
        ("0.6b-base", "--voice anna --instruct slowly", "takes no instruct"),
        ("0.6b-base", "--voice anna --reference said.txt", "a reference or a voice, not both"),
        ("0.6b-base", "--reference said.txt --reference-text=", "--reference-text is empty"),
        ("0.6b-base", "--reference-text hello", "--reference-text needs a reference"),
    ],
)
def test_what_a_released_model_cannot_do_is_told_before_it_is_fetched(
    speaker: Speaker, empty_home: Path, capsysbinary: Capture,
    model: str, arguments: str, problem: str,
) -> None:  # fmt: skip
    VoiceFolder(empty_home / "voices").save("anna", Voice("", np.ones(4, np.float32), size="0b6"))
    Path("said.txt").write_text("sound")
    name = f"qwen3-tts-{model}"
    assert run(["speak", "Hi.", "-o", "a.wav", "--model", name, *arguments.split()]) == 2
    error = capsysbinary.readouterr().err.decode()
    assert problem in error and error.count("\n") == 1
    assert "=" not in error  # in words of the command, not of Python
    assert speaker.loaded == []


def test_names_of_models_that_speak_are_suggested_where_one_is_needed(
    speaker: Speaker, capsysbinary: Capture
) -> None:
    assert run(["speak", "Hi.", "-o", "a.wav", "--model", "qwen3-tts"]) == 2
    error = capsysbinary.readouterr().err.decode()
    assert "did you mean 'qwen3-tts-0.6b-custom-voice'?" in error
    assert "tiny" not in error and "parakeet" not in error


def test_a_folder_that_takes_no_sound_is_told_before_the_model_loads(
    speaker: Speaker, capsysbinary: Capture
) -> None:
    assert speak("Hello", "-o", "none/a.wav") == 1
    assert capsysbinary.readouterr().err == (
        b"oscine: none: cannot write there: No such file or directory; make this folder first\n"
    )
    assert speaker.loaded == []
    assert speak("Hello", "-o", "/dev/null", "-f", "wav") == 0
    assert not Path("/dev/null").is_file()


def test_what_the_model_refuses_is_one_line(speaker: Speaker, capsysbinary: Capture) -> None:
    assert speak("Hello", "-o", "a.wav", "--voice", "nobody") == 2
    assert capsysbinary.readouterr().err == (
        b"oscine: there is no voice 'nobody'; there are ryan, vivian\n"
    )
    assert files() == []


def test_a_format_that_the_suffix_contradicts(speaker: Speaker, capsysbinary: Capture) -> None:
    assert speak("Hello", "-o", "a.wav", "-f", "mp3") == 2
    assert capsysbinary.readouterr().err == (
        b"oscine: a.wav does not fit --format mp3: leave it out, or end in .mp3\n"
    )
    for name, form in (("a.opus", "ogg"), ("a.flac", "FLAC"), ("a.2", "wav")):
        assert speak("Hello", "-o", name, "-f", form) == 0


def test_models_that_do_not_speak_and_those_that_do_nothing_else(
    speaker: Speaker, model: Any, capsysbinary: Capture
) -> None:
    assert speak("Hello", "-o", "a.wav") == 2  # `model` of conftest stands in for Whisper
    assert capsysbinary.readouterr().err == (
        b"oscine: weights writes down and does not speak; oscine transcribe is its command\n"
    )
    assert run(["speak", "Hello", "-o", "a.wav", "--model", "tiny.en"]) == 2
    assert b"tiny.en writes down and does not speak" in capsysbinary.readouterr().err
    assert run(["transcribe", "a.wav", "--model", "qwen3-tts-0.6b-base"]) == 1  # no such recording
    Path("a.wav").write_bytes(SOUND)
    assert run(["transcribe", "a.wav", "--model", "qwen3-tts-0.6b-base"]) == 2
    assert b"qwen3-tts-0.6b-base speaks and does not" in capsysbinary.readouterr().err
    assert len(model.loaded) == 1
    model.speak = None
    for arguments in (["a.wav"], ["--live", "-"]):
        assert run(["transcribe", *arguments, "--model", "weights"]) == 2
        assert capsysbinary.readouterr().err == (
            b"oscine: weights speaks and does not write down; oscine speak is its command\n"
        )


@pytest.mark.parametrize("way", ["itself", "path", "link", "hard link"])
def test_what_is_read_is_not_written_over(
    speaker: Speaker, capsysbinary: Capture, way: str
) -> None:
    voice = VoiceFolder(Path("voices")).save("anna", Voice("", np.ones(4, np.float32)))
    for name, arguments in [
        ("ref.wav", ["Hello", "--reference", "ref.wav"]),
        ("said.txt", ["said.txt", "-f", "wav"]),
        (str(voice), ["Hello", "--voice", str(voice), "-f", "wav"]),
    ]:
        if name != str(voice):
            Path(name).write_bytes(b"precious")
        before = Path(name).read_bytes()
        target = Path("other.wav")
        target.unlink(missing_ok=True)
        if way == "link":
            target.symlink_to(name)
        elif way == "hard link":
            target.hardlink_to(name)
        else:
            target = Path(name) if way == "itself" else Path("weights", "..", name)
        assert speak(*arguments, "-o", str(target)) == 2
        error = capsysbinary.readouterr().err.decode()
        assert error.startswith(f"oscine: {name} would be overwritten by the speech")
        assert error.count("\n") == 1
        assert Path(name).read_bytes() == before
    assert speaker.loaded == []


@pytest.mark.parametrize("way", ["itself", "link"])
def test_a_voice_by_name_and_a_model_are_not_written_over(
    speaker: Speaker, capsysbinary: Capture, empty_home: Path, way: str
) -> None:
    voice = VoiceFolder(empty_home / "voices").save("anna", Voice("", np.ones(4, np.float32)))
    Path("weights", "speech_tokenizer").mkdir()
    names = ("model.safetensors", "config.json", "speech_tokenizer/model.safetensors")
    for file in (voice, *(Path("weights", name) for name in names)):
        if file is not voice:
            file.write_bytes(b"precious")
        before = file.read_bytes()
        target = file
        if way == "link":
            target = Path("other.wav")
            target.unlink(missing_ok=True)
            target.symlink_to(file)
        arguments = ("--voice", "anna") if file is voice else ()
        assert speak("Hello", *arguments, "-o", str(target), "-f", "wav") == 2
        error = capsysbinary.readouterr().err.decode()
        assert error.startswith(f"oscine: {file} would be overwritten by the speech")
        assert error.count("\n") == 1 and file.read_bytes() == before
    assert speaker.loaded == []
    for _ in range(2):  # sound that lies beside a model is no part of it
        assert speak("Hello", "-o", "weights/hello.wav") == 0


@pytest.mark.skipif(os.name != "posix", reason="Windows has other names and links")
@pytest.mark.parametrize(
    ("name", "code", "problem"),
    [
        ("none.wav/", 2, "none.wav/ is a folder; name a file in it"),
        ("weights/", 2, "weights/ is a folder"),
        ("x" * 300 + ".wav", 1, "cannot write: File name too long"),
        ("weights/../" * 500 + "a.wav", 1, "cannot write: File name too long"),
        ("lost.wav", 1, "none: cannot write there: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_is_told_before_the_model_loads(
    speaker: Speaker, capsysbinary: Capture, name: str, code: int, problem: str
) -> None:
    Path("lost.wav").symlink_to("none/a.wav")
    Path("found.wav").symlink_to("new.wav")
    assert speak("Hello", "-o", name) == code
    error = capsysbinary.readouterr().err.decode()
    assert problem in error and error.count("\n") == 1
    assert speaker.loaded == []
    assert speak("Hello", "-o", "found.wav") == 0
    assert Path("found.wav").is_symlink() and Path("new.wav").stat().st_size > 44


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there are no such devices here")
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom", "/dev/null", "link"])
def test_a_device_is_neither_text_nor_reference(
    speaker: Speaker, capsysbinary: Capture, device: str
) -> None:
    Path("link").symlink_to("/dev/zero")
    for arguments, code in [([device], 2), (["Hello", "--reference", device], 1)]:
        assert speak(*arguments, "-o", "a.wav") == code
        error = capsysbinary.readouterr().err.decode()
        assert "is a device" in error and error.count("\n") == 1
    assert speaker.loaded == []
