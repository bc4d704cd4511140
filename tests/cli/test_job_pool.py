"""Several recordings at once: results in order, errors apart, and what Ctrl-C keeps."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.audio.write import save
from oscine.cli import run, watch
from oscine.formats import FORMATS
from oscine.types import Audio

Recordings = Callable[..., list[str]]
Capture = pytest.CaptureFixture[bytes]
GOLDENS = Path(__file__).resolve().parent.parent / "goldens"


def transcribe(*arguments: str) -> int:
    return run(["transcribe", "--model", "weights", *arguments])


class Together:
    """Has recordings wait for each other: each stream waits in its second segment for the streams
    whose recordings `after` names."""

    def __init__(self, model: Any, after: dict[str, list[str]]) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.open = self.most_open = 0
        self.ended = {name: threading.Event() for names in after.values() for name in names}
        self._after, self._stream, self._lock = after, model.stream, threading.Lock()
        model.recordings_at_once = 3
        model.stream = self.stream

    def stream(self, source: str, **given: Any) -> Any:
        cancel = given.pop("cancel")
        stream = self._stream(source, **given)
        segments, name = iter(stream), os.path.basename(source)

        def waiting() -> Any:
            with self._lock:
                self.begun.append(name)
                self.open += 1
                self.most_open = max(self.most_open, self.open)
            try:
                yield next(segments)
                for other in self._after.get(name, ()):
                    until = time.monotonic() + 30
                    while not self.ended[other].wait(0.01):
                        assert time.monotonic() < until
                        if cancel():
                            raise oscine.errors.Cancelled(f"{source}: cancelled")
                yield from segments
            finally:
                with self._lock:
                    self.open -= 1
                    self.done.append(name)
                self.ended.setdefault(name, threading.Event()).set()

        return Waiting(stream, waiting())


class Waiting:
    """A stream whose segments come from elsewhere."""

    def __init__(self, stream: Any, segments: Any) -> None:
        self._stream, self._segments = stream, segments

    def __iter__(self) -> Any:
        return self._segments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def test_results_are_told_in_order_whichever_is_done_first(
    model: Any, recordings: Recordings, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = recordings("a.wav", "b_gaps.wav", "c.wav", "d_broken.wav", "e.wav", "f_gaps.wav")
    together = Together(model, {"a.wav": ["c.wav", "e.wav"]})
    assert transcribe(*names, "-o", "out") == 1
    assert together.done.index("e.wav") < together.done.index("a.wav")
    assert together.most_open <= 3
    error = capsysbinary.readouterr().err.decode().splitlines()
    assert error == [
        "oscine: b_gaps.wav: 2.5 of 10.0 s of speech have no text",
        "oscine: d_broken.wav: is damaged after 1 s",
        "oscine: d_broken.wav: written as far as 00:00.500",
        "oscine: f_gaps.wav: 2.5 of 10.0 s of speech have no text",
    ]
    whole = Path("out/a.txt").read_text("utf-8")
    assert {name: Path(f"out/{name[:-4]}.txt").read_text("utf-8") for name in names} == {
        name: "Olá,\n" if "broken" in name else whole for name in names
    }


def test_all_formats_of_several_are_those_of_one_at_a_time(
    model: Any, recordings: Recordings
) -> None:
    names = recordings(*(f"{letter}.wav" for letter in "abcdefg"))
    words = ["--word-timestamps", "-f", "all"]
    assert transcribe(*names, *words, "-o", "one") == 0
    assert all("cancel" not in asked for asked in model.asked)  # in the main thread, as ever
    model.recordings_at_once = 3
    assert transcribe(*names, *words, "-o", "several") == 0
    for letter in "abcdefg":
        for name in FORMATS:
            file = f"{letter}.{name}"
            assert Path("several", file).read_bytes() == Path("one", file).read_bytes() != b""


def test_verbose_shows_one_recording_after_another(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    names = recordings("a_gaps.wav", "b_gaps.wav", "c_gaps.wav")
    Together(model, {"a_gaps.wav": ["b_gaps.wav", "c_gaps.wav"]})
    assert transcribe(*names, "--verbose") == 0
    lines = capsysbinary.readouterr().err.decode().splitlines()
    assert [line[:9] for line in lines] == [
        start for name in "abc" for start in ("[00:00.00", "[00:01.00", f"oscine: {name}")
    ]


def test_standard_input_and_a_single_recording_are_alone(
    model: Any, recordings: Recordings
) -> None:
    model.recordings_at_once = 3
    assert transcribe(*recordings("a.wav"), "-o", "out") == 0
    assert transcribe("-", *recordings("b.wav", "c.wav"), "-o", "out") == 0
    assert len(model.asked) == 4 and all("cancel" not in asked for asked in model.asked)


@pytest.mark.parametrize("stop", ["interrupt", "exhaust"])
def test_what_stops_one_keeps_what_is_done_of_all(
    model: Any, recordings: Recordings, capsysbinary: Capture, stop: str
) -> None:
    """a and c are done, b stops all, d and e are under way, f may be; g is not begun."""
    last = f"b_{stop}.wav"
    names = recordings("a.wav", last, "c.wav", "d.wav", "e.wav", "f.wav", "g.wav")
    after = {name: ["never"] for name in ("d.wav", "e.wav", "f.wav")}
    together = Together(model, after | {last: ["c.wav", "e begins"]})
    stream = model.stream

    def begin(source: str, **given: Any) -> Any:
        if source == "e.wav":  # a and c have made place for d and e
            together.ended["e begins"].set()
        return stream(source, **given)

    model.stream = begin
    assert transcribe(*names, "-o", "out") == (130 if stop == "interrupt" else 1)
    assert "g.wav" not in together.begun and together.open == 0
    whole = Path("out/a.txt").read_text("utf-8")
    assert Path("out/c.txt").read_text("utf-8") == whole != "Olá,\n"
    for name in (last[:-4], "d"):
        assert Path(f"out/{name}.txt").read_text("utf-8") == "Olá,\n"
    error = capsysbinary.readouterr().err.decode()
    assert f"oscine: {last}: written as far as 00:00.500\n" in error
    assert "oscine: d.wav: written as far as 00:00.500\n" in error
    assert "cancelled" not in error
    assert error.endswith("interrupted\n" if stop == "interrupt" else "--best-of\n")


def test_ctrl_c_while_a_result_is_written(
    model: Any, recordings: Recordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its recording is done, so it is written all the same."""
    from oscine.cli import run_job

    names = recordings("a.wav", "b.wav", "c.wav")
    model.recordings_at_once = 3
    write, interrupted = run_job.write_results, []

    def interrupt(*given: Any, **more: Any) -> bool:
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return write(*given, **more)

    monkeypatch.setattr(run_job, "write_results", interrupt)
    assert transcribe(*names, "-o", "out") == 130
    assert Path("out/a.txt").read_text("utf-8").endswith("世界 --> x.\n")


def test_a_wrong_option_is_one_line(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    model.recordings_at_once = 3

    def refuse(source: str, **given: Any) -> Any:
        raise oscine.errors.UsageError("this model does not support hotwords")

    model.stream = refuse
    assert transcribe(*recordings("a.wav", "b.wav", "c.wav", "d.wav")) == 2
    assert capsysbinary.readouterr().err == b"oscine: this model does not support --hotwords\n"


def test_our_own_mistake_is_not_hidden(model: Any, recordings: Recordings) -> None:
    model.recordings_at_once = 3
    stream = model.stream

    def fail(source: str, **given: Any) -> Any:
        if source == "b.wav":
            raise ZeroDivisionError
        return stream(source, **given)

    model.stream = fail
    with pytest.raises(ZeroDivisionError):
        transcribe(*recordings("a.wav", "b.wav", "c.wav"))
    assert Path("a.txt").exists()


def test_bars_are_below_messages(
    model: Any, recordings: Recordings, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = recordings("a_gaps.wav", "b.wav", "[red]c.wav")
    Together(model, {"a_gaps.wav": ["b.wav"]})
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert transcribe(*names, "-o", "out", "-f", "srt") == 0
    error = capsysbinary.readouterr().err.decode()
    plain = [line.strip() for line in re.sub(r"\x1b\[[0-9;?]*\w|\r", "\n", error).splitlines()]
    told = [line for line in plain if "->" in line or line.startswith("oscine:")]
    assert told == [
        "oscine: a_gaps.wav: 2.5 of 10.0 s of speech have no text",
        "a_gaps.wav -> out/a_gaps.srt",
        "b.wav -> out/b.srt",
        "[red]c.wav -> out/[red]c.srt",
    ]


# -- a folder that is watched -----------------------------------------------------------------


def test_what_arrives_is_worked_on_together(
    model: Any, recordings: Recordings, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    """A long recording keeps no other waiting, and Ctrl-C keeps what is done of it."""
    monkeypatch.setattr(watch, "SETTLE_TIME_S", 0.0)
    together = Together(model, {"a.wav": ["never"]})
    recordings("in/a.wav", "in/b.wav")
    looks = 0

    def pause(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            assert together.ended.setdefault("b.wav", threading.Event()).wait(30)
            recordings("in/c_broken.wav", "in/d.wav")
        if looks == 6:
            assert together.ended.setdefault("d.wav", threading.Event()).wait(30)
            raise KeyboardInterrupt

    monkeypatch.setattr(watch, "pause", pause)
    assert run(["transcribe", "--watch", "in", "-o", "out"]) == 130
    assert sorted(os.listdir("out")) == ["a.txt", "b.txt", "c_broken.txt", "d.txt"]
    assert Path("out/a.txt").read_text("utf-8") == "Olá,\n"
    assert Path("out/d.txt").read_text("utf-8") == Path("out/b.txt").read_text("utf-8") != "Olá,\n"
    error = capsysbinary.readouterr().err.decode()
    assert "in/c_broken.wav: is damaged after 1 s" in error
    assert error.endswith("oscine: interrupted\n")


# -- with a model -----------------------------------------------------------------------------


@pytest.fixture
def several_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from oscine.models.transcription import Transcriber

    monkeypatch.setattr(Transcriber, "recordings_at_once", 3)


@pytest.mark.usefixtures("several_at_once")
def test_warnings_and_times_are_each_recordings_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: Capture,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The same oddity of two recordings is said of both, once each, and stages add up."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OSCINE_TRACE", "1")
    for name, seconds in {"a": 0.4, "b": 1.0, "c": 0.6}.items():
        ramp = np.linspace(0, 200 * seconds, int(16_000 * seconds), dtype=np.float32)
        save(Audio(0.3 * np.sin(ramp), 16_000), f"{name}.wav")
    for name in "bc":  # breaks off
        data = Path(f"{name}.wav").read_bytes()
        Path(f"{name}.wav").write_bytes(data[: len(data) // 2])
    shutil.copy("b.wav", "d.wav")
    usual = ["--model", str(GOLDENS / "parakeet_tdt"), "--device", "cpu", "--no-vad"]
    names = [f"{name}.wav" for name in "abcd"]
    assert run(["transcribe", *names, *usual, "-f", "json", "-o", "out"]) == 0
    told = sorted(each.message for each in caplog.records if each.levelname == "WARNING")
    assert [line.partition(": ")[0] for line in told] == ["b.wav", "c.wav", "d.wav"], told
    assert told[0][5:] == told[2][5:]
    error = capsysbinary.readouterr().err.decode()
    stages = dict(re.findall(r"oscine: (\w+): (\d+\.\d) ms", error))
    assert stages
    results = [json.loads(Path(f"out/{name}.json").read_text("utf-8")) for name in "abcd"]
    for stage, spent in stages.items():
        booked = sum(result["timings"].get(stage, 0.0) for result in results)
        assert 0 <= booked <= float(spent) + 0.2, stage
    assert results[1]["segments"] == results[3]["segments"]
