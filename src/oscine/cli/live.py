"""`oscine transcribe --live`: streaming transcription of a microphone or standard input."""

from __future__ import annotations

import select
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from oscine.audio.file_types import container_of
from oscine.cli.console import raw_stderr, warn, write_stdout
from oscine.cli.inputs import STANDARD_INPUT
from oscine.errors import AudioError, UsageError
from oscine.formats import LINE_FORMATS
from oscine.options import options_of
from oscine.subtitles import PLAIN_LAYOUT, Layout, one_line
from oscine.terminal import printable
from oscine.types import Segment, Update, Word

if TYPE_CHECKING:
    from oscine.cli.common import AnyTranscriber

SAMPLE_RATE = 16_000
BLOCK_SAMPLES = 1_600  # samples at a time
POLL_S = 0.2  # seconds to wait for samples before Ctrl-C is looked for
PROBE_BYTES = 32_000  # bytes, a second: at their end it is said if they are no samples
MIN_NOISE_POWER = 0.15  # mean square of samples at full scale 1; even numbers by chance have 1/3
MAX_NOISE_CORRELATION = 0.6  # of that, the mean product of neighbours: of speech, nearly all
RAW_FORMAT_HELP = (
    "--live - takes 16-bit little-endian mono samples at 16 kHz without a header, as of: "
    "ffmpeg -i FILE -f s16le -ac 1 -ar 16000 -"
)
MAX_PAUSE_S = 1.5  # seconds without a word that end a cue
MAX_CUE_S = 7.0  # seconds: what Netflix's Timed Text Style Guide allows
SENTENCE_ENDS = tuple(".!?。？！")
#: Parameters that can be used with --live; all others are refused by name.
ALLOWED_OPTIONS = frozenset(
    "live latency files model device dtype fp16 offline deterministic memory threads verbose "
    "output_format".split()
)
#: Parameters that can be used with --live and a subtitle format.
LAYOUT_OPTIONS = frozenset(options_of(Layout))
#: Options of a transcription that a model's `listen` takes.
LISTEN_OPTIONS = frozenset({"language", "hotwords"})


@dataclass(frozen=True, slots=True)
class LiveFormat:
    """The output format: txt writes each word once it is final, other line formats sentences."""

    format: str = "txt"
    layout: Layout = PLAIN_LAYOUT


def check_live(files: list[str], given: frozenset[str], formats: Sequence[str]) -> None:
    """Raise UsageError for options that contradict --live; `given`: names of explicit options."""
    if files not in ([], [STANDARD_INPUT]):
        raise UsageError("--live reads the microphone, or with - standard input; leave out files")
    if len(formats) > 1 or formats[0] not in LINE_FORMATS:
        known = ", ".join(LINE_FORMATS)
        raise UsageError(f"--live writes to standard output, one format of lines: {known}")
    for name in sorted(given - ALLOWED_OPTIONS - LISTEN_OPTIONS - LAYOUT_OPTIONS):
        raise UsageError(f"{name} does not go with --live; leave it out")


def listen(
    model: AnyTranscriber,
    files: list[str],
    latency: float | None,
    options: Mapping[str, Any],
    how: LiveFormat,
) -> None:
    """Write final words to stdout, one sentence per line; on a terminal also partial words."""
    stop = Event()
    pieces = read_stdin(stop) if files else read_microphone(stop)
    wanted = {name: value for name, value in options.items() if value is not None}
    if latency is not None:
        wanted["latency"] = latency
    before = signal.getsignal(signal.SIGINT)

    def end(*_: object) -> None:
        stop.set()  # the audio so far is still transcribed; a second Ctrl-C does not wait for it
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, end)
    try:
        updates = show_partial(model.listen(pieces, cancel=stop, **wanted))
        if how.format == "txt":
            write_final_words(updates)
        else:
            for text in LINE_FORMATS[how.format](words_to_segments(updates), how.layout):
                write_stdout(text)
    finally:
        signal.signal(signal.SIGINT, before)


def show_partial(updates: Iterable[Update]) -> Iterator[Update]:
    """Pass updates through; on a terminal each one's partial words replace those before."""
    if not sys.stderr.isatty():
        yield from updates
        return
    for update in updates:
        print("\r\033[K", end="", file=raw_stderr(), flush=True)
        yield update
        print(printable(tail(update.partial)), end="", file=sys.stderr, flush=True)


def write_final_words(updates: Iterable[Update]) -> None:
    """Write each final word at once, one sentence per line."""
    begun = False
    for update in updates:
        for word in update.final:
            text = one_line(word.word)
            write_stdout(f" {text}" if begun and word.word[:1].isspace() else text)
            begun = not text.endswith(SENTENCE_ENDS)
            if not begun:
                write_stdout("\n")
    if begun:
        write_stdout("\n")


def words_to_segments(updates: Iterable[Update]) -> Iterator[Segment]:
    """Group final words into segments, each yielded once it is complete.

    A segment ends with a sentence, at a pause, and before it exceeds the maximum cue duration.
    """
    words: list[Word] = []
    number = 0

    def segment() -> Segment:
        nonlocal number
        start, end, text = words[0].start, words[-1].end, "".join(each.word for each in words)
        made = Segment(number, 0, start, end, text, (), 0.0, 0.0, 0.0, 0.0, tuple(words))
        words.clear()
        number += 1
        return made

    for update in updates:
        for word in update.final:
            far = words and word.start - words[-1].end > MAX_PAUSE_S
            if far or (words and word.end - words[0].start > MAX_CUE_S):
                yield segment()
            words.append(word)
            if one_line(word.word).endswith(SENTENCE_ENDS):
                yield segment()
        if words and not update.partial and update.heard - words[-1].end > MAX_PAUSE_S:
            yield segment()
    if words:
        yield segment()


def tail(words: tuple[Word, ...]) -> str:
    """The last words that fit into a line."""
    text = one_line("".join(word.word for word in words))
    return text if len(text) < 75 else f"...{text[-70:]}"


def read_stdin(stop: Event) -> Iterator[Any]:
    """Yield int16 samples [n] from standard input: raw, little-endian, mono, 16 kHz.

    Ends with the input or at `stop`, also while waiting. Raises AudioError if the input is closed
    or has no samples.
    """
    if sys.stdin is None:
        raise AudioError("standard input", "is closed", "give it samples, 16-bit at 16 kHz")
    file: Any = sys.stdin.buffer
    rest = begin = b""
    heard = False
    while not stop.is_set():
        if not has_data(file):
            continue
        data = file.read1(2 * BLOCK_SAMPLES)
        if len(begin) < PROBE_BYTES:
            begin += data
            if (not data or len(begin) >= PROBE_BYTES) and (other := detect_wrong_format(begin)):
                warn(f"standard input looks like {other}, not like samples; {RAW_FORMAT_HELP}")
        if not data:
            if not heard:
                raise AudioError("standard input", "is empty: it held no samples", RAW_FORMAT_HELP)
            return
        data = rest + data
        even = len(data) // 2 * 2
        rest = data[even:]
        if even:
            heard = True
            yield np.frombuffer(data[:even], "<i2").astype(np.int16)


def detect_wrong_format(begin: bytes) -> str | None:
    """The format that a stream seems to have instead of raw samples; None if it may be samples.

    Most file formats have a signature. Compressed or 32-bit samples read as 16-bit ones are
    full-scale noise without correlation between neighbours, which no recording is.
    """
    if (container := container_of(begin)) is not None:
        return container
    samples = np.frombuffer(begin[: len(begin) // 2 * 2], "<i2") / 32768
    if len(samples) < BLOCK_SAMPLES:
        return None
    power = float(np.mean(samples**2))
    likeness = float(np.mean(samples[1:] * samples[:-1])) / max(power, 1e-9)
    return (
        "another format"
        if power > MIN_NOISE_POWER and abs(likeness) < MAX_NOISE_CORRELATION
        else None
    )


def has_data(file: Any) -> bool:
    """Whether data arrives within a short wait, after which Ctrl-C is checked.

    True if that cannot be determined: for files in memory, and pipes on Windows.
    """
    try:
        return bool(select.select([file], [], [], POLL_S)[0])
    except (OSError, ValueError, TypeError):
        return True


def read_microphone(stop: Event) -> Iterator[Any]:
    """Yield float32 samples [n] at 16 kHz from the default microphone, until `stop`.

    Raises UsageError if sounddevice is not installed, AudioError if there is no microphone.
    """
    try:
        import sounddevice
    except ImportError:
        remedy = "pip install 'sounddevice>=0.4'"
        raise UsageError(f"--live needs sounddevice for a microphone: {remedy}") from None
    except OSError as error:  # without PortAudio
        raise AudioError("microphone", f"cannot be used: {error}") from error
    heard: SimpleQueue[Any] = SimpleQueue()
    try:
        with sounddevice.InputStream(
            samplerate=SAMPLE_RATE,
            channels=1,
            dtype="float32",
            blocksize=BLOCK_SAMPLES,
            callback=lambda samples, *_: heard.put(samples[:, 0].copy()),
        ):
            while not stop.is_set():
                with suppress(Empty):
                    yield heard.get(timeout=POLL_S)
    except sounddevice.PortAudioError as error:
        raise AudioError("microphone", f"cannot be used: {error}") from error
