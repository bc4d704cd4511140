"""`oscine transcribe --live`: words as they are said, from a microphone or standard input."""

from __future__ import annotations

import select
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from oscine.audio.suffixes import container_of
from oscine.cli.console import emit, screen, tell
from oscine.cli.outputs import STANDARD_INPUT
from oscine.errors import AudioError, UsageError
from oscine.subtitles import one_line
from oscine.terminal import printable
from oscine.types import Update, Word

if TYPE_CHECKING:
    from oscine.cli.engine import Listener

RATE = 16_000
PIECE = 1_600  # samples at a time
MOMENT = 0.2  # seconds to wait for samples before Ctrl-C is looked for
JUDGED = 32_000  # bytes, a second: at their end it is said if they are no samples
NOISE = 0.15  # mean square of samples at full scale 1; even numbers by chance have 1/3
UNLIKE = 0.6  # of that, the mean product of neighbours: of speech, nearly all
RAW = (
    "--live - takes 16-bit little-endian mono samples at 16 kHz without a header, as of: "
    "ffmpeg -i FILE -f s16le -ac 1 -ar 16000 -"
)
SENTENCE_ENDS = tuple(".!?。？！")
#: Parameters that go with --live; others are refused by name if they are given.
ALLOWED = frozenset("live latency files model device dtype fp16 offline threads verbose".split())
#: Of a transcription, those that a model's `listen` takes.
LISTENING = frozenset({"language", "hotwords"})


def check_live(files: list[str], given: frozenset[str]) -> None:
    """Raise UsageError for what does not go with --live; `given`: names of what was said."""
    if files not in ([], [STANDARD_INPUT]):
        raise UsageError("--live hears the microphone, or with - standard input; leave out files")
    for name in sorted(given - ALLOWED - LISTENING):
        raise UsageError(f"{name} does not go with --live; leave it out")


def listen(
    model: Listener, files: list[str], latency: float | None, options: Mapping[str, Any]
) -> None:
    """Write words to stdout as they are final, a sentence a line; on a terminal also the guess."""
    stop = Event()
    pieces = standard_input(stop) if files else microphone(stop)
    wanted = {name: value for name, value in options.items() if value is not None}
    if latency is not None:
        wanted["latency"] = latency
    before = signal.getsignal(signal.SIGINT)

    def end(*_: object) -> None:
        stop.set()  # what was said is then finished; a second Ctrl-C does not wait for that
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, end)
    try:
        show(model.listen(pieces, cancel=stop, **wanted))
    finally:
        signal.signal(signal.SIGINT, before)


def show(updates: Iterator[Update]) -> None:
    """Final words go to stdout, partial ones over each other to stderr where people look at it."""
    guess = sys.stderr.isatty()
    begun = False
    for update in updates:
        if guess:
            print("\r\033[K", end="", file=screen(), flush=True)
        for word in update.final:
            text = one_line(word.word)
            emit(f" {text}" if begun and word.word[:1].isspace() else text)
            begun = not text.endswith(SENTENCE_ENDS)
            if not begun:
                emit("\n")
        if guess:
            print(printable(line_of(update.partial)), end="", file=sys.stderr, flush=True)
    if begun:
        emit("\n")


def line_of(words: tuple[Word, ...]) -> str:
    """The last words that a line has room for."""
    text = one_line("".join(word.word for word in words))
    return text if len(text) < 75 else f"...{text[-70:]}"


def standard_input(stop: Event) -> Iterator[Any]:
    """Raw samples of standard input: 16-bit, little endian, mono, 16 kHz.

    Ends where that does, or at `stop`, also while nothing comes. Raises AudioError where it ends
    without a sample.
    """
    if sys.stdin is None:
        raise AudioError("standard input", "is closed", "give it samples, 16-bit at 16 kHz")
    file: Any = sys.stdin.buffer
    rest = begin = b""
    heard = False
    while not stop.is_set():
        if not has_data(file):
            continue
        data = file.read1(2 * PIECE)
        if len(begin) < JUDGED:
            begin += data
            if (not data or len(begin) >= JUDGED) and (other := what_else(begin)):
                tell(f"standard input looks like {other}, not like samples; {RAW}")
        if not data:
            if not heard:
                raise AudioError("standard input", "is empty: it held no samples", RAW)
            return
        data = rest + data
        even = len(data) // 2 * 2
        rest = data[even:]
        if even:
            heard = True
            yield np.frombuffer(data[:even], "<i2").astype(np.int16)


def what_else(begin: bytes) -> str | None:
    """What the beginning of a stream seems to be instead of samples; None where it may be those.

    Files of most kinds say what they are. Compressed and 32-bit samples taken for 16-bit ones are
    noise of full scale in which no sample is like the one before; no recording is that.
    """
    if (container := container_of(begin)) is not None:
        return container
    samples = np.frombuffer(begin[: len(begin) // 2 * 2], "<i2") / 32768
    if len(samples) < PIECE:
        return None
    power = float(np.mean(samples**2))
    likeness = float(np.mean(samples[1:] * samples[:-1])) / max(power, 1e-9)
    return "another format" if power > NOISE and abs(likeness) < UNLIKE else None


def has_data(file: Any) -> bool:
    """Whether a read would not wait; looked at for a moment, so that Ctrl-C is heard meanwhile.

    True for what cannot be asked: files in memory, and pipes on Windows.
    """
    try:
        return bool(select.select([file], [], [], MOMENT)[0])
    except (OSError, ValueError, TypeError):
        return True


def microphone(stop: Event) -> Iterator[Any]:
    """Samples of the system's microphone, until `stop`.

    Raises UsageError where sounddevice is not installed, AudioError where there is no microphone.
    """
    try:
        import sounddevice
    except ImportError:
        remedy = "pip install 'sounddevice>=0.4'"
        raise UsageError(f"--live hears a microphone with: {remedy}") from None
    except OSError as error:  # without PortAudio
        raise AudioError("microphone", f"cannot be used: {error}") from error
    heard: SimpleQueue[Any] = SimpleQueue()
    try:
        with sounddevice.InputStream(
            samplerate=RATE,
            channels=1,
            dtype="float32",
            blocksize=PIECE,
            callback=lambda samples, *_: heard.put(samples[:, 0].copy()),
        ):
            while not stop.is_set():
                with suppress(Empty):
                    yield heard.get(timeout=MOMENT)
    except sounddevice.PortAudioError as error:
        raise AudioError("microphone", f"cannot be used: {error}") from error
