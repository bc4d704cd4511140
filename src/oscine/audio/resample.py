"""Resamples frames of any format, channel count and rate to mono float32 (swresample)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.audio.ffmpeg import av

# Beyond any recording's rate; the filter for such a ratio could exhaust memory.
MIN_RATE, MAX_RATE = 1_000, 3_072_000
MAX_CHANNELS = 64  # limits memory; no recording has more

_SILENCE_BLOCK_SAMPLES = 1 << 16  # per block of silence

# PCM integer types: (zero level, full scale).
_INTEGER_SCALE = {
    np.dtype(np.int8): (0.0, 2.0**7),
    np.dtype(np.uint8): (2.0**7, 2.0**7),
    np.dtype(np.int16): (0.0, 2.0**15),
    np.dtype(np.int32): (0.0, 2.0**31),
    np.dtype(np.int64): (0.0, 2.0**63),
}


def to_float(samples: NDArray[np.generic]) -> NDArray[np.float32]:
    """Samples of any float or PCM integer type as float32 of the same shape, full scale 1.

    Raises TypeError for other types.
    """
    if np.issubdtype(samples.dtype, np.floating):
        with np.errstate(over="ignore"):  # beyond float32 is infinity, which the source refuses
            return samples.astype(np.float32, copy=False)
    native = samples.dtype.newbyteorder("=")
    if native not in _INTEGER_SCALE:
        raise TypeError(f"{samples.dtype} holds no samples")
    zero, full = _INTEGER_SCALE[native]
    return ((samples.astype(np.float64) - zero) / full).astype(np.float32)


class Resampler:
    """Converts frames to mono float32 at `rate`; rebuilt when the format of the input changes.

    Channels are mixed as FFmpeg mixes them for 16-bit output: weights that sum to one, so stereo
    gives the average (5.1: centre before sides, no bass channel). Layouts that swresample cannot
    mix are averaged. With `channel` (from 1) only that one is taken: of mono frames the only one,
    of frames with fewer channels silence.
    """

    def __init__(self, rate: int, channel: int | None = None) -> None:
        self._rate = rate
        self._channel = channel
        self._kind: tuple[int, str, str] | None = None
        self._graph: av.filter.Graph | None = None
        self._seconds = 0.0  # of input
        self._given = 0  # samples returned

    @cached_property
    def _packer(self) -> _Packer:
        return _Packer()

    def push(self, frame: av.AudioFrame) -> Iterator[NDArray[np.float32]]:
        """Resample a frame; yields what is ready. Raises ValueError for an implausible rate."""
        for samples in self._pushed(frame):
            self._given += len(samples)
            yield samples

    def silence(self, seconds: float) -> Iterator[NDArray[np.float32]]:
        """Flush the filter, then yield silence up to the start of the next frame."""
        yield from self.flush()
        self._seconds += seconds
        while (missing := round(self._seconds * self._rate) - self._given) > 0:
            samples = np.zeros(min(missing, _SILENCE_BLOCK_SAMPLES), np.float32)
            self._given += len(samples)
            yield samples

    def _pushed(self, frame: av.AudioFrame) -> Iterator[NDArray[np.float32]]:
        if self._channel is not None:
            frame = self._one_channel(frame, self._channel)
        kind = (frame.sample_rate, frame.format.name, frame.layout.name)
        if kind != self._kind:
            yield from self._flushed()
            if not MIN_RATE <= frame.sample_rate <= MAX_RATE:
                raise ValueError(f"a sample rate of {frame.sample_rate} Hz is not plausible")
            self._kind = kind
            self._graph = self._mix(*kind)
        self._seconds += frame.samples / frame.sample_rate
        if self._graph is None:
            yield from self._average(frame)
            return
        frame.pts = None  # audio.clock has its time: here samples are contiguous
        self._graph.push(frame)
        yield from self._ready()

    def flush(self) -> Iterator[NDArray[np.float32]]:
        """Yield the samples inside the filter, which is rebuilt for the next frame."""
        for samples in self._flushed():
            self._given += len(samples)
            yield samples

    def _flushed(self) -> Iterator[NDArray[np.float32]]:
        if self._graph is not None:
            self._graph.push(None)
            yield from self._ready()
        elif self._averaged is not None:
            yield from self._averaged.flush()
        self._graph = self._averaged = self._kind = None

    _averaged: Resampler | None = None

    def _average(self, frame: av.AudioFrame) -> Iterator[NDArray[np.float32]]:
        if self._averaged is None:
            self._averaged = Resampler(self._rate)
        mean = self._packer.channels(frame).mean(axis=1)
        yield from self._averaged.push(mono_frame(mean, frame.sample_rate))

    def _one_channel(self, frame: av.AudioFrame, channel: int) -> av.AudioFrame:
        samples = self._packer.channels(frame)
        count = samples.shape[1]
        chosen = 0 if count == 1 else channel - 1
        silence = np.zeros(frame.samples, np.float32)
        return mono_frame(samples[:, chosen] if chosen < count else silence, frame.sample_rate)

    def _mix(self, rate: int, sample_format: str, layout: str) -> av.filter.Graph | None:
        """The filter graph; None for a channel layout without a known mix."""
        # Without rematrix_maxval float output is not normalised: stereo comes out 3 dB too loud.
        options = f"osr={self._rate}:osf=flt:ochl=mono:rematrix_maxval=1"
        try:
            return _filter_graph(rate, sample_format, layout, "aresample", options)
        except (av.error.FFmpegError, ValueError):
            return None

    def _ready(self) -> Iterator[NDArray[np.float32]]:
        assert self._graph is not None
        nothing_more = av.error.BlockingIOError, av.error.EOFError
        while True:
            try:
                frame = self._graph.pull()
            except nothing_more:
                return
            # Mono float32 is one plane; to_ndarray takes several times as long for a frame.
            plane: Any = frame.planes[0]
            yield np.frombuffer(plane, np.float32, frame.samples).copy()  # type: ignore[union-attr]


class _Packer:
    """Converts frames of any format to arrays [n, channels].

    PyAV counts the planes of a frame by reading pointers up to a zero, which is missing from eight
    planes on (13.0.0 to 18.1.0: AudioFrame.planes, to_ndarray, from_ndarray). So swresample
    interleaves them first: a packed frame has one plane.
    """

    def __init__(self) -> None:
        self._kind: tuple[int, str, str] | None = None
        self._graph = av.filter.Graph()

    def channels(self, frame: av.AudioFrame) -> NDArray[np.float32]:
        """Samples float32 [n, channels]. Raises ValueError for more than MAX_CHANNELS."""
        kind = (frame.sample_rate, frame.format.name, frame.layout.name)
        count = frame.layout.nb_channels
        if count > MAX_CHANNELS:
            raise ValueError(f"{count} channels, and {MAX_CHANNELS} are the most that are read")
        if kind != self._kind:
            self._graph = _filter_graph(*kind, "aformat", "sample_fmts=flt")
            self._kind = kind
        self._graph.push(frame)
        packed: av.AudioFrame = self._graph.pull()  # type: ignore[assignment]
        return np.asarray(packed.to_ndarray(), np.float32).reshape(-1, count)


def _filter_graph(
    rate: int, sample_format: str, layout: str, name: str, options: str
) -> av.filter.Graph:
    """A graph of one filter for frames of one format. Raises av.error.FFmpegError, ValueError."""
    graph = av.filter.Graph()
    entry = graph.add_abuffer(sample_rate=rate, format=sample_format, layout=layout)
    change = graph.add(name, options)
    exit_ = graph.add("abuffersink")
    entry.link_to(change)
    change.link_to(exit_)
    graph.configure()
    return graph


def mono_frame(samples: NDArray[np.float32], rate: int) -> av.AudioFrame:
    """Mono float32 samples [n] as an audio frame."""
    contiguous = np.ascontiguousarray(samples, np.float32).reshape(1, -1)
    frame = av.AudioFrame.from_ndarray(contiguous, format="flt", layout="mono")
    frame.sample_rate = rate
    return frame
