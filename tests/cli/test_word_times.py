"""`oscine speak --word-times`: made speech and its text aligned by a model of recordings."""

from __future__ import annotations

import json
import re
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.audio.io import decode
from oscine.cli import run, word_times
from oscine.models.speech import SpokenPiece
from oscine.options.command import SpeakCommand
from oscine.types import Audio

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
SPEAKER = GOLDENS / "qwen3_tts" / "custom_voice" / "ckpt"
TEXT = "Hello there. How are you?\n\nI am fine [pause 500ms] today."
ENGLISH = str(GOLDENS / "whisper_en"), "--language", "german"
SAID = ["Hello there. How are you?", "I am fine", "today."]


@dataclass
class Stream:
    """What is used of a SpeechStream where its words have times."""

    rate: int
    blocks: list[Audio]
    spoken: tuple[SpokenPiece, ...]

    def __iter__(self) -> Iterator[Audio]:
        return iter(self.blocks)


def speak(*arguments: Any, text: str = TEXT) -> int:
    """A small random checkpoint, whose sound is noise."""
    own = ["--model", SPEAKER, "--device", "cpu", "--seed", 4, "--no-guard", "-o", "a.wav"]
    return run(["speak", text, *map(str, [*own, *arguments])])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.weights
@pytest.mark.parametrize("name", ["tiny.en", "base"])
def test_the_words_of_the_speech_have_their_times(
    name: str, weights: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    aligner = "--aligner", weights[name]
    assert speak("--word-times", "a.json", *aligner) == 0
    found = json.loads(Path("a.json").read_text("utf-8"))
    with wave.open("a.wav") as file:
        duration = file.getnframes() / file.getframerate()
    assert found["duration"] == duration
    assert name in found["model"] and found["text"] == " ".join(SAID)
    segments = found["segments"]
    assert [segment["text"] for segment in segments] == SAID
    assert any(segment["words"] for segment in segments)
    times: list[float] = []
    messages = capsys.readouterr().err
    for segment in segments:
        told = f"no times for the words of {segment['text']!r}: its sound: 0.0"
        words = "".join(word["word"] for word in segment["words"]).strip()
        if not words:  # random checkpoints end some pieces after a hundredth of a second
            assert told in messages and segment["end"] - segment["start"] < 0.02
            continue
        assert words == segment["text"]
        own = [time for word in segment["words"] for time in (word["start"], word["end"])]
        assert segment["start"] <= own[0] and own[-1] <= segment["end"]
        times += own
    assert times == sorted(times) and times[-1] <= duration
    for form, mark in (("srt", ","), ("vtt", ".")):
        assert speak("--word-times", f"a.{form}", *aligner) == 0
        lines = Path(f"a.{form}").read_text("utf-8").splitlines()
        cues = [
            lines[at + 1] for at, line in enumerate(lines) if re.search(rf"\{mark}\d* -->", line)
        ]
        assert len(cues) == sum(max(1, len(segment["words"])) for segment in segments)
        assert " ".join(cues) == " ".join(SAID)


@pytest.mark.weights
def test_real_words_have_their_times_in_each_piece(weights: dict[str, Path], example: Path) -> None:
    """Speech of two pieces with silence around them: one recording twice."""
    rate, text = 24_000, example.with_suffix(".txt").read_text("utf-8").strip()
    sound = decode(example, rate=rate).samples
    silence, long = np.zeros(rate // 2, np.float32), len(sound) / rate
    places = (0.5, 0.5 + long), (1.0 + long, 1.0 + 2 * long)
    blocks = [Audio(block, rate) for block in (silence, sound, silence, sound)]
    stream = Stream(rate, blocks, tuple(SpokenPiece(text, *place) for place in places))
    kept = word_times.BufferedStream(stream)
    assert [len(audio.samples) for audio in kept] == [len(audio.samples) for audio in blocks]
    own = SpeakCommand(word_times="a.json", aligner=str(weights["tiny.en"]), device="cpu")
    times = word_times.plan_word_times(own, ())
    assert times is not None
    times.load("auto")
    times.write(kept)
    segments = json.loads(Path("a.json").read_text("utf-8"))["segments"]
    heard = times.aligner.transcribe(example, word_timestamps=True)
    expected = [word for segment in heard.segments for word in segment.words]
    assert len(segments) == 2
    for segment, (start, _) in zip(segments, places, strict=True):
        for ours, theirs in zip(segment["words"], expected, strict=True):
            assert ours["word"] == theirs.word
            assert abs(ours["start"] - start - theirs.start) <= 0.3
            assert abs(ours["end"] - start - theirs.end) <= 0.3


def test_no_aligner_is_loaded_unless_times_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    load = oscine.load

    def noted(name: str, **how: Any) -> Any:
        loaded.append(name)
        return load(name, **how)

    monkeypatch.setattr(oscine, "load", noted)
    assert speak() == 0
    assert loaded == [str(SPEAKER)]


def test_a_piece_that_is_cut_short_has_no_times_and_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    aligner = GOLDENS / "whisper_multi"
    assert speak("--word-times", "a.json", "--aligner", aligner, "--max-frames", 2, text="Hi.") == 0
    assert "a.json: no times for the words of 'Hi.': it is not spoken to its end" in (
        capsys.readouterr().err
    )
    (segment,) = json.loads(Path("a.json").read_text("utf-8"))["segments"]
    assert segment["words"] == [] and segment["end"] > 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--word-times", "a.txt"], "name a file that ends in .json, .srt or .vtt"),
        (["--word-times", "folder.json"], "name a file that ends in"),
        (["--word-times", "a.json", "--lines"], "is for one text; leave out --lines"),
        (["--word-times", "text.srt"], "text.srt would be overwritten by the times"),
        (["--aligner", "base"], "add --word-times FILE"),
        (["--word-times", "a.json", "--aligner", str(SPEAKER)], "does not write down"),
        (["--word-times", "a.json", "--aligner", "qwen3-tts-0.6b-base"], "does not write down"),
        (["--word-times", "a.json", "--aligner", "nothing"], "nothing"),
        (["--word-times", "a.json", "--aligner", str(GOLDENS / "parakeet_tdt")], "cannot align"),
        (
            ["--word-times", "a.json", "--aligner", *ENGLISH],
            "does not know language de; choose another --aligner",
        ),
    ],
)
def test_what_cannot_be_timed_is_refused_before_any_speech(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("folder.json").mkdir()
    Path("text.srt").write_text("Hello.")
    assert speak(*arguments, text="text.srt") == 2
    assert told in capsys.readouterr().err
    assert not Path("a.wav").exists() and not Path("a.json").exists()
    assert Path("text.srt").read_text() == "Hello."


def test_speech_and_times_are_two_files(capsys: pytest.CaptureFixture[str]) -> None:
    speech = ["-o", "a.srt", "-f", "wav", "--word-times", "./a.srt"]
    assert run(["speak", "Hi.", "--model", str(SPEAKER), *speech]) == 2
    assert "a.srt would be overwritten by the times" in capsys.readouterr().err
