"""`oscine transcribe --live`, with a model that says what it is told."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.cli import run
from oscine.cli.live import MAX_CUE_S, MAX_PAUSE_S, read_stdin, words_to_segments
from oscine.types import Update, Word

Capture = pytest.CaptureFixture[bytes]

GOLDEN = Path(__file__).resolve().parents[1] / "goldens" / "parakeet_formats" / "mlx"


class Listening:
    """Says a word for every piece it hears, the last with a full stop."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.heard = 0
        self.pieces: list[Any] = []

    def load(self, *_: Any, **options: Any) -> Listening:
        return self

    def listen(self, pieces: Any, *, cancel: Any, **options: Any) -> Iterator[Update]:
        self.options = options
        for number, piece in enumerate(pieces):
            if cancel.is_set():
                break
            self.pieces.append(piece)
            self.heard += len(piece)
            text = f" w{number}." if number % 2 else f" w{number}"
            yield Update((Word(0, 1, text, 1.0),), (Word(1, 2, " guess", 1.0),), 1.0)
        yield Update((Word(2, 3, " end", 1.0),), (), 2.0)


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Listening:
    (tmp_path / "weights").mkdir()
    monkeypatch.chdir(tmp_path)
    fake = Listening()
    monkeypatch.setattr("oscine.load", fake.load)
    return fake


def live(*arguments: str) -> int:
    return run(["transcribe", "--live", "--model", "weights", *arguments])


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_words_come_as_they_are_said(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    samples = np.arange(4_000, dtype="<i2")
    stdin(monkeypatch, samples.tobytes() + b"x")  # half a sample is none
    assert live("-", "--latency", "1.5", "--hotwords", "oscine", "--language", "en") == 0
    out, error = capsysbinary.readouterr()
    assert out == b"w0 w1.\nw2 end\n"
    assert error == b""
    assert listening.options == {"latency": 1.5, "hotwords": "oscine", "language": "en"}
    np.testing.assert_array_equal(np.concatenate(listening.pieces), samples)


def test_the_guess_is_shown_to_people(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    stdin(monkeypatch, bytes(3_200))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert live("-") == 0
    assert listening.options == {}
    assert capsysbinary.readouterr().err.count(b"guess") == 1


CUES = [
    Update((Word(0.5, 0.9, " One", 1.0),), (Word(1, 2, " guess", 1.0),), 1.0),
    Update((Word(0.9, 1.4, " two.", 1.0), Word(1.5, 1.9, " Three", 1.0)), (), 2.0),
    Update((), (), 3.5),
    Update((), (), 4.0),
    Update((Word(5.0, 5.4, " four,", 1.0),), (), 5.5),
    Update((Word(8.0, 13.0, " five", 1.0), Word(13.0, 15.5, " six", 1.0)), (), 15.5),
]


@pytest.mark.parametrize(
    ("format", "cues"),
    [
        (
            "srt",
            [
                "1\n00:00:00,500 --> 00:00:01,400\nOne two.\n\n",
                "2\n00:00:01,500 --> 00:00:01,900\nThree\n\n",
                "3\n00:00:05,000 --> 00:00:05,400\nfour,\n\n",
                "4\n00:00:08,000 --> 00:00:13,000\nfive\n\n",
                "5\n00:00:13,000 --> 00:00:15,500\nsix\n\n",
            ],
        ),
        (
            "vtt",
            [
                "WEBVTT\n\n",
                "00:00.500 --> 00:01.400\nOne two.\n\n",
                "00:01.500 --> 00:01.900\nThree\n\n",
                "00:05.000 --> 00:05.400\nfour,\n\n",
                "00:08.000 --> 00:13.000\nfive\n\n",
                "00:13.000 --> 00:15.500\nsix\n\n",
            ],
        ),
    ],
)
def test_live_cues_come_as_they_are_final(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture,
    format: str, cues: list[str],
) -> None:  # fmt: skip
    """With how many updates each is written; a pause ends a cue while nothing more is said."""
    written: list[str] = []
    seen: list[int] = []

    def heard(pieces: Any, *, cancel: Any, **options: Any) -> Iterator[Update]:
        for number, update in enumerate(CUES):
            seen.append(number)
            yield update

    def emit(text: str) -> None:
        written.append(text)
        if " --> " in text:
            when.append(seen[-1])

    when: list[int] = []
    monkeypatch.setattr(listening, "listen", heard)
    monkeypatch.setattr("oscine.cli.live.write_stdout", emit)
    stdin(monkeypatch, bytes(3_200))
    assert live("-", "-f", format) == 0
    assert written == cues
    assert when == [1, 2, 5, 5, 5]


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from([0.0, 0.1, MAX_PAUSE_S + 0.1, 9.0]),  # silence before the word
                st.sampled_from([0.0, 0.3, 3.0, 8.0]),  # its length
                st.sampled_from([" a", " b.", "世", "。", " x\ny", " ?!"]),
            ),
            max_size=4,
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_live_sentences_lose_no_word(
    pieces: list[list[tuple[float, float, str]]], guess: bool
) -> None:
    now, updates = 0.0, []
    for piece in pieces:
        final = []
        for silence, length, text in piece:
            start = now + silence
            now = start + length
            final.append(Word(start, now, text, 1.0))
        partial = (Word(now, now, " guess", 1.0),) if guess else ()
        now += 1.0
        updates.append(Update(tuple(final), partial, now))
    segments = list(words_to_segments(iter(updates)))
    assert [word for each in segments for word in each.words or ()] == [
        word for update in updates for word in update.final
    ]
    assert [each.id for each in segments] == [*range(len(segments))]
    for each in segments:
        words = each.words
        assert words and (each.start, each.end) == (words[0].start, words[-1].end)
        assert len(words) == 1 or each.end - each.start <= MAX_CUE_S
        assert all(late.start - early.end <= MAX_PAUSE_S for early, late in pairwise(words))


def test_live_cues_are_laid_out(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    stdin(monkeypatch, bytes(6_400))
    assert live("-", "--output_format", "srt", "--max_line_width", "4", "--max_cps", "9") == 0
    assert capsysbinary.readouterr().out.decode().splitlines()[:4] == [
        "1", "00:00:00,000 --> 00:00:01,000", "w0", "w1."
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["a.wav"], "leave out files"),
        (["-", "-"], "leave out files"),
        (["--beam-size", "5"], "--beam-size does not go with --live"),
        (["-f", "json"], "--live writes to standard output, one format of lines: txt, vtt, srt"),
        (["-f", "srt,vtt"], "--live writes to standard output, one format of lines: txt, vtt"),
        (["-f", "all"], "--live writes to standard output, one format of lines: txt, vtt, srt"),
        (["--max-line-width", "9"], "--max-line-width is for subtitles; add --output-format srt"),
        (["--word-timestamps"], "--word-timestamps does not go with --live"),
        (["--max-words", "5"], "--max-words does not go with --live"),
    ],
)
def test_what_does_not_go_with_it(
    listening: Listening, capsysbinary: Capture, arguments: list[str], problem: str
) -> None:
    assert live(*arguments) == 2
    assert problem in capsysbinary.readouterr().err.decode()


def test_without_it(listening: Listening, capsysbinary: Capture) -> None:
    assert run(["transcribe", "--latency", "1", "a.wav"]) == 2
    assert b"--latency needs --live" in capsysbinary.readouterr().err
    assert run(["transcribe", "--model", "weights"]) == 2
    assert b"no input: give a file" in capsysbinary.readouterr().err


def microphone(blocks: list[Any], stop: Any = None) -> Any:
    """A module like sounddevice whose stream gives these blocks at once."""

    class Stream:
        def __init__(self, *, callback: Any, **settings: Any) -> None:
            assert (settings["samplerate"], settings["channels"]) == (16_000, 1)
            self.callback = callback

        def __enter__(self) -> None:
            for block in blocks:
                self.callback(block[:, None], len(block), None, None)
            if stop is not None:
                stop()

        def __exit__(self, *_: Any) -> None: ...

    return SimpleNamespace(InputStream=Stream, PortAudioError=RuntimeError)


def test_the_microphone_until_it_is_interrupted(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    import os
    import signal

    before = signal.getsignal(signal.SIGINT)
    blocks = [np.full(1_600, 0.1, np.float32)] * 3
    module = microphone(blocks, lambda: os.kill(os.getpid(), signal.SIGINT))
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    assert live() == 0
    assert capsysbinary.readouterr().out == b"end\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_no_microphone(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert live() == 2
    assert b"pip install 'sounddevice>=0.4'" in capsysbinary.readouterr().err

    def fail() -> None:
        raise RuntimeError("no device")

    monkeypatch.setitem(sys.modules, "sounddevice", microphone([], fail))
    assert live() == 1
    assert b"microphone: cannot be used: no device" in capsysbinary.readouterr().err


def test_with_a_model(monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture) -> None:
    noise = np.random.default_rng(0).integers(-3_000, 3_000, 40_000).astype("<i2")
    stdin(monkeypatch, noise.tobytes())
    arguments = ["transcribe", "--live", "-", "--model", str(GOLDEN), "--device", "cpu"]
    assert run(arguments) == 0
    assert capsysbinary.readouterr().out.strip()


def test_an_interrupt_is_heard_while_standard_input_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A writer that says nothing for now keeps its end of the pipe open."""
    read, write = os.pipe()
    stop = Event()
    with os.fdopen(read) as stdin, os.fdopen(write, "wb") as writer:
        monkeypatch.setattr(sys, "stdin", stdin)
        pieces = read_stdin(stop)
        writer.write(b"\1\2\3")
        writer.flush()
        assert next(pieces).tolist() == [513]
        stop.set()
        assert list(pieces) == []


def test_samples_may_be_cut_between_two_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with os.fdopen(read) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(write, b"\1\2\3")
        pieces = read_stdin(Event())
        assert next(pieces).tolist() == [513]
        os.write(write, b"\4\5\6")
        os.close(write)
        assert next(pieces).tolist() == [1027, 1541]
        assert list(pieces) == []


@pytest.mark.parametrize("data", [b"", b"x"])
def test_a_stream_without_samples_is_one_line(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture, data: bytes
) -> None:
    """The exit code is that of an empty recording."""
    stdin(monkeypatch, data)
    assert live("-") == 1
    out, error = capsysbinary.readouterr()
    assert (out, error.count(b"\n")) == (b"", 1)
    assert error.startswith(b"oscine: standard input: is empty: it held no samples; --live - takes")


def encoded(container: str, codec: str) -> bytes:
    """Three seconds of a rising tone as a file."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        stream = out.add_stream(codec, rate=48_000)
        times = np.arange(48_000 * 3) / 48_000
        samples = (np.sin(2 * np.pi * 200 * times * (1 + times)) * 9_000).astype(np.int16)
        layout, form = "mono", "s16"
        frame = av.AudioFrame.from_ndarray(samples[None], format=form, layout=layout)
        frame.sample_rate = 48_000
        resampler = av.AudioResampler(stream.format, stream.layout, 48_000, 960)
        for each in [*resampler.resample(frame), *resampler.resample(None)]:
            out.mux(stream.encode(each))
        out.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize(
    ("container", "codec", "named"),
    [
        ("mp3", "libmp3lame", "looks like mp3"),
        ("wav", "pcm_s16le", "looks like a wav file"),
        ("ogg", "libopus", "looks like ogg"),
        ("matroska", "aac", "looks like mkv"),
        ("flac", "flac", "looks like flac"),
    ],
)
def test_a_file_instead_of_samples_is_told_once(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture,
    container: str, codec: str, named: str,
) -> None:  # fmt: skip
    stdin(monkeypatch, encoded(container, codec))
    assert live("-") == 0
    error = capsysbinary.readouterr().err.decode()
    assert error.count("\n") == 1
    assert named in error
    assert "16-bit little-endian mono samples at 16 kHz" in error


def test_a_stream_without_a_name_is_known_by_its_noise(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    random = np.random.default_rng(0)
    floats = (random.standard_normal(20_000) * 0.1).astype("<f4").tobytes()
    for data in (random.bytes(60_000), floats, encoded("mp3", "libmp3lame")[3_001:]):
        stdin(monkeypatch, data)
        assert live("-") == 0
        error = capsysbinary.readouterr().err
        assert error.count(b"looks like another format") == error.count(b"\n") == 1


def test_recordings_and_silence_are_samples(
    listening: Listening, example: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    from oscine.audio.io import decode

    speech = decode(example).samples[:80_000]
    loud = np.clip(speech * 30, -1, 1)
    noise = np.random.default_rng(0).normal(0, 0.1, 80_000)
    for samples in (speech, loud, noise, np.zeros(80_000), np.ones(80_000), speech[:100]):
        stdin(monkeypatch, (samples * 32767).astype("<i2").tobytes())
        assert live("-") == 0
        assert capsysbinary.readouterr().err == b""
