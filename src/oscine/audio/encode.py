"""Encodes mono samples as the bytes of an audio file: wav and raw here, others with FFmpeg."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.audio.ffmpeg import av
from oscine.audio.sink import Sink
from oscine.types import Samples

FULL_SCALE = 32767.0
UNKNOWN_SIZE = 0xFFFFFFFF  # the length in a header that is written before it is known


@dataclass(frozen=True, slots=True)
class Codec:
    """A format of FFmpeg's: container, codec, bits per second, and its only sample rate, if any."""

    container: str
    codec: str
    bit_rate: int | None = None
    rate: int | None = None


#: Mono speech is transparent at these bit rates.
CODECS = {
    "mp3": Codec("mp3", "libmp3lame", 96_000),
    "flac": Codec("flac", "flac"),
    "opus": Codec("ogg", "libopus", 64_000, 48_000),  # players decode Opus at 48 kHz
    "ogg": Codec("ogg", "libopus", 64_000, 48_000),
    "m4a": Codec("ipod", "aac", 96_000),
    "aac": Codec("adts", "aac", 96_000),
}


def pcm16(samples: Samples) -> NDArray[np.int16]:
    """round(clip(x) * 32767), halves to even."""
    scaled = np.clip(samples, -1.0, 1.0) * np.float32(FULL_SCALE)
    whole: NDArray[np.int16] = np.rint(scaled).astype("<i2")
    return whole


class Encoder(Protocol):
    """Encodes samples to the bytes of one format.

    If Ctrl-C interrupts `write` or `close`, nothing is lost: another `close` does the rest.
    """

    count: int  # samples so far

    def write(self, samples: Samples) -> None:
        """Encode float32 samples [n], finite."""

    def close(self) -> None:
        """Write what is buffered, and the lengths in the header if the file is seekable."""

    def abandon(self) -> None:
        """Release the sink without finishing. Never raises."""


def make_encoder(sink: Sink, name: str, rate: int, comment: str | None = None) -> Encoder:
    """The encoder of a format; `comment` is written as metadata, except for raw, which has none."""
    kind = PcmEncoder if name in ("wav", "raw") else AvEncoder
    return kind(sink, name, rate, comment)


class PcmEncoder:
    """16-bit PCM, with a header (wav) or without (raw)."""

    def __init__(self, sink: Sink, name: str, rate: int, comment: str | None = None) -> None:
        self._sink, self._rate, self._comment = sink, rate, comment
        self.count = 0
        self._header = name == "wav"
        if self._header:
            with sink.flushing():
                sink.write(wav_header(rate, None, comment))

    def write(self, samples: Samples) -> None:
        data = pcm16(samples).tobytes()
        with self._sink.flushing():
            self.count += len(samples)
            self._sink.write(data)

    def close(self) -> None:
        if self._header and self._sink.seekable():
            header = wav_header(self._rate, 2 * self.count, self._comment)
            with self._sink.flushing():
                self._sink.seek(0)
                self._sink.write(header)
                self._sink.seek(len(header) + 2 * self.count)

    def abandon(self) -> None:
        pass


def wav_header(rate: int, size: int | None, comment: str | None = None) -> bytes:
    """44 bytes for 16-bit mono PCM, and a comment; `size` in bytes, None or too large: unknown.

    Source: Microsoft's RIFF; FFmpeg and sox mark unknown lengths by the same number.
    """
    data = UNKNOWN_SIZE if size is None else min(size, UNKNOWN_SIZE)
    form = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate, 2, 16)
    info = b"" if comment is None else info_chunk(comment)
    whole = min(data + 36 + len(info), UNKNOWN_SIZE)
    front = struct.pack("<4sI8sI", b"RIFF", whole, b"WAVEfmt ", len(form))
    return front + form + info + struct.pack("<4sI", b"data", data)


def info_chunk(comment: str) -> bytes:
    """RIFF's INFO list with a comment in UTF-8, as FFmpeg reads and writes it."""
    text = comment.encode() + b"\0"
    entry = struct.pack("<4s4sI", b"INFO", b"ICMT", len(text)) + text + b"\0" * (len(text) % 2)
    return struct.pack("<4sI", b"LIST", len(entry)) + entry


class AvEncoder:
    """A format encoded by FFmpeg."""

    def __init__(self, sink: Sink, name: str, rate: int, comment: str | None = None) -> None:
        self._sink, self._rate = sink, rate
        codec = CODECS[name]
        options = {"flush_packets": "1"}
        if comment is not None and codec.container == "adts":  # which has no metadata
            options["write_id3v2"] = "1"
        if not sink.seekable():
            if name == "m4a":  # else its index is written at the end, with a seek
                options["movflags"] = "frag_keyframe+empty_moov+default_base_moof"
                options["frag_duration"] = "500000"  # microseconds
            if codec.container == "ogg":
                options["page_duration"] = "200000"
        self._whole = codec.codec == "flac"  # 16-bit integers, as in wav
        self.count = 0
        self._ended = False
        with sink.flushing():
            self._container: Any = av.open(sink, "w", format=codec.container, options=options)
            self._stream: Any = self._container.add_stream(
                codec.codec, rate=codec.rate or nearest_rate(codec.codec, rate)
            )
            if comment is not None:
                self._container.metadata["comment"] = comment
            context: Any = self._stream.codec_context
            context.layout = "mono"
            if self._whole:
                context.format = "s16"
            if codec.bit_rate is not None:
                context.bit_rate = codec.bit_rate

    def write(self, samples: Samples) -> None:
        if not len(samples):
            return
        if self._whole:
            frame = av.AudioFrame.from_ndarray(pcm16(samples)[None], format="s16", layout="mono")
        else:
            clipped = np.clip(samples, -1.0, 1.0)[None]
            frame = av.AudioFrame.from_ndarray(clipped, format="flt", layout="mono")
        frame.sample_rate = self._rate
        frame.time_base = Fraction(1, self._rate)
        frame.pts = self.count
        work = self._work(frame)
        with self._sink.flushing():
            self.count += len(samples)
            list(work)

    def close(self) -> None:
        work = self._work(None)
        with self._sink.flushing():
            if self.count and not self._ended:
                self._ended = True
                list(work)
            self._container.close()

    def _work(self, frame: av.AudioFrame | None) -> Iterator[object]:
        """Encode lazily; run by `list`, in C, where no signal can interrupt and lose packets."""
        return map(self._container.mux, map(self._stream.encode, (frame,)))

    def abandon(self) -> None:
        # Else PyAV closes it when it is collected, where exceptions cannot be caught.
        with suppress(OSError, ValueError, av.error.FFmpegError):
            self._container.close()


def nearest_rate(codec: str, rate: int) -> int:
    """The rate if the encoder supports it, else the next higher one, else its highest."""
    rates = sorted(av.codec.Codec(codec, "w").audio_rates or [])
    if not rates or rate in rates:
        return rate
    return next((each for each in rates if each > rate), rates[-1])
