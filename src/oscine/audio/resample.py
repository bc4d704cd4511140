"""Frames of any format, channel count and rate -> mono float32 samples at one rate (swresample)."""

from __future__ import annotations

from collections.abc import Iterator

import av
import numpy as np
from numpy.typing import NDArray

# Slower or faster than any recording; a filter for such a ratio could fill the memory.
LOWEST_RATE, HIGHEST_RATE = 1_000, 3_072_000

_SILENT_SAMPLES = 1 << 16  # of silence in one piece

# Whole numbers as recorders store them: (zero level, full scale).
_INTEGER_SCALE = {
    np.dtype(np.int8): (0.0, 2.0**7),
    np.dtype(np.uint8): (2.0**7, 2.0**7),
    np.dtype(np.int16): (0.0, 2.0**15),
    np.dtype(np.int32): (0.0, 2.0**31),
    np.dtype(np.int64): (0.0, 2.0**63),
}


def to_float(samples: NDArray[np.generic]) -> NDArray[np.float32]:
    """Samples of any float or PCM integer type as float32 of the same shape, full scale = 1.

    Raises TypeError for types that hold no PCM.
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
    """A chain (format, channels, rate) -> (float32, mono, `rate`), remade when the input changes.

    Channels are mixed as FFmpeg mixes them for 16-bit output: weights that sum to one, so stereo
    gives the average (5.1: centre before sides, no bass channel). Layouts that swresample cannot
    mix are averaged. With `channel`, from 1, that one alone is taken: of mono frames the only one,
    of frames that have fewer channels silence.
    """

    def __init__(self, rate: int, channel: int | None = None) -> None:
        self._rate = rate
        self._channel = channel
        self._kind: tuple[int, str, str] | None = None
        self._graph: av.filter.Graph | None = None
        self._seconds = 0.0  # that were taken
        self._given = 0  # samples that are out of the filter

    def push(self, frame: av.AudioFrame) -> Iterator[NDArray[np.float32]]:
        """Take a frame, give what is ready. Raises ValueError when its rate is not plausible."""
        for samples in self._pushed(frame):
            self._given += len(samples)
            yield samples

    def silence(self, seconds: float) -> Iterator[NDArray[np.float32]]:
        """What is still inside the filter, and then silence to where the next frame begins."""
        yield from self.flush()
        self._seconds += seconds
        while (missing := round(self._seconds * self._rate) - self._given) > 0:
            samples = np.zeros(min(missing, _SILENT_SAMPLES), np.float32)
            self._given += len(samples)
            yield samples

    def _pushed(self, frame: av.AudioFrame) -> Iterator[NDArray[np.float32]]:
        if self._channel is not None:
            frame = _one_channel(frame, self._channel)
        kind = (frame.sample_rate, frame.format.name, frame.layout.name)
        if kind != self._kind:
            yield from self._flushed()
            if not LOWEST_RATE <= frame.sample_rate <= HIGHEST_RATE:
                raise ValueError(f"a sample rate of {frame.sample_rate} Hz is not plausible")
            self._kind = kind
            self._graph = self._chain(*kind)
        self._seconds += frame.samples / frame.sample_rate
        if self._graph is None:
            yield from self._average(frame)
            return
        frame.pts = None  # audio.clock knows its time: here samples follow each other
        self._graph.push(frame)
        yield from self._ready()

    def flush(self) -> Iterator[NDArray[np.float32]]:
        """The samples still inside the filter, which then is remade by the next frame."""
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
        mean = to_float(_planes(frame)).mean(axis=0)
        yield from self._averaged.push(mono_frame(mean, frame.sample_rate))

    def _chain(self, rate: int, sample_format: str, layout: str) -> av.filter.Graph | None:
        """The filter chain, or None for a channel layout that has no known mix."""
        graph = av.filter.Graph()
        # Without rematrix_maxval float output is not normalised: stereo comes out 3 dB too loud.
        options = f"osr={self._rate}:osf=flt:ochl=mono:rematrix_maxval=1"
        try:
            entry = graph.add_abuffer(sample_rate=rate, format=sample_format, layout=layout)
            mix = graph.add("aresample", options)
            exit_ = graph.add("abuffersink")
            entry.link_to(mix)
            mix.link_to(exit_)
            graph.configure()
        except (av.error.ArgumentError, ValueError):
            return None
        return graph

    def _ready(self) -> Iterator[NDArray[np.float32]]:
        assert self._graph is not None
        while True:
            try:
                frame = self._graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            yield frame.to_ndarray().reshape(-1).astype(np.float32, copy=False)


def _planes(frame: av.AudioFrame) -> NDArray[np.generic]:
    """Samples [channels, n] of a frame, of its own type."""
    samples: NDArray[np.generic] = frame.to_ndarray()
    if frame.format.is_planar:
        return samples
    return samples.reshape(-1, frame.layout.nb_channels).T


def _one_channel(frame: av.AudioFrame, channel: int) -> av.AudioFrame:
    planes = _planes(frame)
    chosen = planes[0] if len(planes) == 1 else planes[channel - 1 : channel]
    samples = to_float(chosen).reshape(-1)
    if not len(samples):
        samples = np.zeros(frame.samples, np.float32)
    return mono_frame(samples, frame.sample_rate)


def mono_frame(samples: NDArray[np.float32], rate: int) -> av.AudioFrame:
    """Mono float32 samples [n] as a frame."""
    contiguous = np.ascontiguousarray(samples, np.float32).reshape(1, -1)
    frame = av.AudioFrame.from_ndarray(contiguous, format="flt", layout="mono")
    frame.sample_rate = rate
    return frame
