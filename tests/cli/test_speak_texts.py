"""What the speak command takes texts from: Markdown, many lines, marks in them."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from oscine.audio.io import decode
from oscine.audio.write import FORMATS, save
from oscine.errors import UsageError
from oscine.models.qwen3_tts.capabilities import Capabilities
from oscine.types import Audio

from ..audio.comments import comment_of
from .speaking import RATE, Speaker, speak, tone

Capture = pytest.CaptureFixture[str]


def stdin(monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data.encode())))


def test_markdown_is_spoken_plainly(
    speaker: Speaker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an argument, from a file, and from standard input as it comes."""
    Path("a.md").write_text("# News\n\n- **one** 🎉\n\n```\ncode\n```\n", "utf-8")
    assert speak("a.md", "--plain", "-o", "a.wav") == 0
    assert "skipped a code block" in caplog.text
    assert speak("see [it](http://x.org)", "--plain", "-o", "b.wav") == 0
    stdin(monkeypatch, "# One\n\n**Two**\n")
    assert speak("-", "--plain", "-o", "c.wav") == 0
    texts = [text for text, _ in speaker.asked]
    assert texts[:2] == ["News.\n\none.", "see it."]
    assert not isinstance(texts[2], str)  # parts, which the stream has taken
    assert speak("**raw**", "-o", "d.wav") == 0
    assert speaker.asked[-1][0] == "**raw**"


@pytest.mark.parametrize("text", ["![](a.png)", "```\ncode\n```", "🎉"])
def test_markdown_that_says_nothing_is_refused(
    speaker: Speaker, capsys: Capture, text: str
) -> None:
    assert speak(text, "--plain", "-o", "a.wav") == 2
    assert "there is nothing to say" in capsys.readouterr().err
    assert not os.path.exists("a.wav") and not speaker.loaded


LINES = "one two\n\n  three \n*\nfour BREAK five\nsix\n"


def test_each_line_has_a_file_and_one_that_fails_stops_no_other(
    speaker: Speaker, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("lines.txt").write_text(LINES, "utf-8")
    refuse(speaker, monkeypatch, "*")
    assert speak("lines.txt", "--lines", "-o", "a.wav", "--seed", "3") == 1
    told = capsys.readouterr().err
    assert "line 4, a-003.wav: there is nothing to say" in told
    assert "line 5, a-004.wav: the device was lost" in told
    assert told.endswith("2 of 5 lines could not be spoken\n")
    assert "a-004.wav: written as far as 00:00.100" in told
    assert [text for text, _ in speaker.asked] == ["one two", "three", "four BREAK five", "six"]
    assert all(options["seed"] == 3 for _, options in speaker.asked)
    assert len(speaker.loaded) == 1
    lengths = {name: round(decode(name, RATE).duration, 1) for name in sorted(os.listdir())
               if name.startswith("a-")}  # fmt: skip
    assert lengths == {"a-001.wav": 0.2, "a-002.wav": 0.1, "a-004.wav": 0.1, "a-005.wav": 0.1}


def refuse(speaker: Speaker, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Have the model refuse a text, as it does without letters."""
    real = speaker.stream

    def stream(said: str, **options: object) -> object:
        if said == text:
            raise UsageError("there is nothing to say in the text: no letter and no digit")
        return real(said, **options)

    monkeypatch.setattr(speaker, "stream", stream)


def test_lines_of_standard_input_as_markdown(
    speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin(monkeypatch, "# One\n- **two**\n")
    assert speak("-", "--lines", "--plain", "-o", "a.flac") == 0
    assert [text for text, _ in speaker.asked] == ["One.", "two."]
    assert sorted(os.listdir()) == ["a-001.flac", "a-002.flac", "weights"]


@pytest.mark.parametrize("folder", ["there", "there/"])
def test_a_folder_takes_the_lines_by_number(speaker: Speaker, folder: str) -> None:
    os.mkdir("there")
    assert speak("one\ntwo", "--lines", "-o", folder) == 0
    assert speak("one", "--lines", "-o", folder, "-f", "mp3") == 0
    assert sorted(os.listdir("there")) == ["001.mp3", "001.wav", "002.wav"]


@pytest.mark.parametrize("output", [[], ["-o", "-"]])
def test_lines_need_a_file(speaker: Speaker, capsys: Capture, output: list[str]) -> None:
    assert speak("one\ntwo", "--lines", *output) == 2
    assert "--lines writes a file for each line" in capsys.readouterr().err
    assert not speaker.loaded


def test_no_line_takes_the_place_of_what_is_read(speaker: Speaker, capsys: Capture) -> None:
    Path("a-001.wav").write_text("one\ntwo\n", "utf-8")
    assert speak("a-001.wav", "--lines", "-o", "a.wav") == 2
    assert "a-001.wav would be overwritten by the speech" in capsys.readouterr().err
    assert Path("a-001.wav").read_text("utf-8") == "one\ntwo\n"


def test_a_reference_is_heard_once_for_all_lines(
    speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(Audio(tone("x"), RATE), "ref.wav")
    heard: list[object] = []
    capabilities = Capabilities("weights", "base", "1b7", {}, ("english",))
    monkeypatch.setattr(Speaker, "capabilities", capabilities)
    monkeypatch.setattr(
        Speaker, "voice_of", lambda self, *given, **more: heard.append((given, more)) or "voice",
        raising=False,
    )  # fmt: skip
    words = ["--reference", "ref.wav", "--reference-text", "x", "--reference-silence", "1"]
    assert speak("one\ntwo", "--lines", "-o", "a.wav", *words) == 0
    assert heard == [(("ref.wav", "x"), {"silence": 1.0})]
    assert [options for _, options in speaker.asked] == [{"voice": "voice"}] * 2


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "raw"])
def test_a_file_says_that_it_is_synthetic(
    speaker: Speaker, capfdbinary: pytest.CaptureFixture[bytes], name: str
) -> None:
    """Unless that is not wanted; also through a pipe, which cannot be gone back in."""
    assert speak("one", "-o", f"a.{name}") == 0
    assert json.loads(comment_of(f"a.{name}")) == {"synthetic": True, "model": "weights"}
    assert speak("one", "-o", f"b.{name}", "--no-mark") == 0
    assert comment_of(f"b.{name}") == ""
    capfdbinary.readouterr()
    assert speak("one", "-f", name) == 0
    Path("c").write_bytes(capfdbinary.readouterr().out)
    assert json.loads(comment_of("c"))["synthetic"] is True


def test_silence_is_trimmed_by_an_option(speaker: Speaker) -> None:
    assert speak("one", "-o", "a.wav", "--trim-silence") == 0
    assert speak("one [pause 1s]", "-o", "a.wav") == 0
    assert [options.get("trim_silence") for _, options in speaker.asked] == [True, None]
    assert speaker.asked[1][0] == "one [pause 1s]"  # the model makes the pause
