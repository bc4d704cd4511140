"""Windows read as a stream equal windows cut from the whole; memory stays flat."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.features import WhisperFeatures, WhisperSamples
from oscine.audio.mel import log_mel, log_power, scale
from oscine.audio.sample_window import LogMelStats, SampleWindow

# Rows are computed alike, only cut into other matrix products: rounding of float32 sums is all that
# may differ, some 1e-7 in the features.
ROUNDING = 1e-6


class Blocks:
    """A recording in memory, given in blocks of the sizes asked for."""

    def __init__(self, samples: np.ndarray, sizes: list[int]) -> None:
        self.samples, self.sizes, self.readings = samples, sizes, 0

    def blocks(self, rate: int = 16_000) -> Iterator[np.ndarray]:
        assert rate == 16_000
        self.readings += 1
        start = turn = 0
        while start < len(self.samples):
            size = self.sizes[turn % len(self.sizes)]
            yield self.samples[start : start + size]
            start, turn = start + size, turn + 1


def recording(length: int) -> np.ndarray:
    rng = np.random.default_rng(length)
    loud = np.linspace(0.001, 0.5, length)
    return (rng.standard_normal(length) * loud).astype(np.float32)


def whole(samples: np.ndarray, n_mels: int, window_frames: int) -> np.ndarray:
    return log_mel(np.pad(samples, (0, window_frames * 160)), n_mels)


@given(
    length=st.integers(1, 20_000),
    sizes=st.lists(st.integers(1, 7000), min_size=1, max_size=3),
    seeks=st.lists(st.floats(0, 1), min_size=1, max_size=4),
    window_frames=st.sampled_from([2, 20, 64]),
    cached_seconds=st.sampled_from([0, 0.5, 60]),
)
@settings(max_examples=80, deadline=None)
def test_windows_equal_the_whole(length, sizes, seeks, window_frames, cached_seconds):
    if min(sizes) < 50:
        sizes = [*sizes, 3000]  # a few odd small blocks, not thousands
    samples = recording(length)
    expected = whole(samples, 80, window_frames)
    features = WhisperFeatures(
        Blocks(samples, sizes), 80, window_frames, cached_seconds=cached_seconds
    )
    assert features.frames == length // 160 == len(expected) - window_frames
    assert features.duration == length / 16_000
    for part in seeks:  # in any order, so backwards too
        seek = int(part * features.frames)
        window = features.window(seek, min(window_frames, features.frames - seek))
        assert window.shape == (window_frames, 80)
        assert window.dtype == np.float32
        assert np.abs(window - expected[seek : seek + window_frames]).max() < ROUNDING


@pytest.mark.parametrize("cached_seconds", [0, 600])
@pytest.mark.parametrize("sizes", [[16_000], [20_480, 333], [65_536]])
def test_features_are_the_same_bits_however_a_source_is_cut(sizes, cached_seconds):
    samples = recording(16_000 * 61 + 77)
    expected = WhisperFeatures(Blocks(samples, [len(samples)]), 80, 3000)
    features = WhisperFeatures(Blocks(samples, sizes), 80, 3000, cached_seconds=cached_seconds)
    for seek in (0, 1234, 3000, 6000):
        assert np.array_equal(features.window(seek, 3000), expected.window(seek, 3000))


def test_a_window_cut_by_a_clip_is_filled_with_zero():
    samples = recording(160 * 300)
    features = WhisperFeatures(Blocks(samples, [5000]), 80, 100)
    expected = whole(samples, 80, 100)
    window = features.window(50, 70)
    assert np.abs(window[:70] - expected[50:120]).max() < ROUNDING
    assert (window[70:] == 0.0).all()


def test_a_window_cut_by_a_clip_can_be_filled_with_silence():
    samples = recording(160 * 300)
    features = WhisperFeatures(Blocks(samples, [5000]), 80, 100)
    window = features.window(50, 70, silence=True)
    assert np.array_equal(window[:70], features.window(50, 70)[:70])
    past_the_end = features.window(290, 10)[-1]  # long after the last sample
    assert np.array_equal(window[70:], np.tile(past_the_end, (30, 1)))
    assert np.array_equal(features.window(250, 50, silence=True), features.window(250, 50))


def test_a_window_past_the_end_shows_silence():
    features = WhisperFeatures(Blocks(recording(160 * 120), [5000]), 80, 100)
    window = features.window(60, 60)
    assert (window[62:] == window[62, 0]).all()
    assert window[62, 0] == pytest.approx(window.min())
    assert window[62, 0] != 0.0


@pytest.mark.parametrize("length", [0, 1, 159, 160, 200, 201, 399, 400])
def test_very_short_recordings(length):
    samples = recording(length) if length else np.zeros(0, np.float32)
    features = WhisperFeatures(Blocks(samples, [64]), 80, 40)
    assert features.frames == length // 160
    window = features.window(0, features.frames)
    assert np.abs(window - whole(samples, 80, 40)[:40]).max() < ROUNDING


def test_a_short_recording_is_read_once_and_a_long_one_forward():
    short = Blocks(recording(160 * 500), [1600])
    features = WhisperFeatures(short, 80, 50)
    for seek in (0, 400, 100, 0):
        features.window(seek, 50)
    assert short.readings == 1
    long = Blocks(recording(160 * 6000), [16_000])
    features = WhisperFeatures(long, 80, 50, cached_seconds=1)
    for seek in (0, 0, 40, 3000, 3001, 5900):
        features.window(seek, 50)
    assert long.readings == 2
    features.window(10, 50)
    assert long.readings == 3


def test_a_window_before_the_beginning_is_refused():
    features = WhisperFeatures(Blocks(recording(1600), [1600]), 80, 50)
    with pytest.raises(ValueError, match="before the recording"):
        features.window(-1, 5)


def test_check_is_called_once_a_block_and_may_stop_the_reading():
    calls = []
    WhisperFeatures(Blocks(recording(16_000), [1000]), 80, 50, check=lambda: calls.append(1))
    assert len(calls) == 16

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        WhisperFeatures(Blocks(recording(16_000), [1000]), 80, 50, check=stop)


class Endless:
    """Noise made as it is read, `seconds` long."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.noise = np.random.default_rng(1).standard_normal(64_000).astype(np.float32)

    def blocks(self, rate: int = 16_000) -> Iterator[np.ndarray]:
        for _ in range(self.seconds // 4):
            yield self.noise


@pytest.mark.usefixtures("one_thread")
def test_memory_does_not_grow_with_length():
    def peak(seconds: int) -> int:
        tracemalloc.start()
        try:
            features = WhisperFeatures(Endless(seconds), 80, 3000, cached_seconds=10)
            for seek in range(0, features.frames, 3000):
                features.window(seek, min(3000, features.frames - seek))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(40)  # tables and imports
    assert peak(400) < peak(80) + 1_000_000  # the rows of 400 s alone are 12.8 MB


# -- windows of samples, for a device that computes the features ----------------------------------


class Device:
    """Computes on the host what a device is asked for, and counts its analyses."""

    def __init__(self, n_mels: int) -> None:
        self.n_mels, self.analyses, self.waiting, self.most = n_mels, 0, 0, 0

    def analyse(self, samples: np.ndarray, frames: int) -> Callable[[], LogMelStats]:
        logs = log_power(samples, self.n_mels)
        assert len(logs) >= frames
        self.analyses, self.waiting = self.analyses + 1, self.waiting + 1
        self.most = max(self.most, self.waiting)

        def wait() -> LogMelStats:
            self.waiting -= 1
            values = np.zeros((3, self.n_mels))
            values[0] = logs[:frames].max(axis=0)
            return LogMelStats(frames, values)

        return wait

    def features(self, window: SampleWindow) -> np.ndarray:
        logs = log_power(window.samples, self.n_mels)
        assert logs.shape == window.shape
        peak = logs.max() if window.stats is None else window.stats[: self.n_mels].max()
        features = scale(logs, float(peak))
        features[window.content :] = window.padding
        return features


@given(
    length=st.integers(1, 20_000),
    sizes=st.lists(st.integers(50, 7000), min_size=1, max_size=3),
    spans=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans()), min_size=1),
    window_frames=st.sampled_from([2, 20, 64, 200]),
    cached_seconds=st.sampled_from([0, 0.5, 60]),
)
@settings(max_examples=80, deadline=None)
def test_windows_of_samples_have_the_features_of_the_host(
    length, sizes, spans, window_frames, cached_seconds
):
    samples, device = recording(length), Device(80)
    expected = WhisperFeatures(Blocks(samples, sizes), 80, window_frames)
    windows = WhisperSamples(
        Blocks(samples, sizes), 80, window_frames, device.analyse, cached_seconds=cached_seconds
    )
    assert (windows.frames, windows.duration) == (expected.frames, expected.duration)
    for begin, extent, silence in spans:
        seek = int(begin * expected.frames)
        size = int(extent * (expected.frames - seek))
        found = device.features(windows.window(seek, size, silence=silence))
        wanted = expected.window(seek, size, silence=silence)
        assert np.abs(found - wanted).max() < ROUNDING


def test_a_recording_of_one_window_needs_no_analysis():
    device = Device(80)
    windows = WhisperSamples(Blocks(recording(16_000), [700]), 80, 102, device.analyse)
    assert windows.window(0, 100).stats is None
    assert device.analyses == 0
    assert windows.window(0, 50).stats is not None  # what follows is part of the maximum
    assert device.analyses == 2  # the frames in the recording, and those that overlap its end
    again = WhisperSamples(Blocks(recording(16_000), [700]), 80, 101, device.analyse)
    assert again.window(0, 100).stats is not None  # a frame past the window overlaps the audio


def test_few_analyses_are_waited_for_at_a_time():
    device = Device(4)
    windows = WhisperSamples(Blocks(recording(16_000 * 400), [16_000]), 4, 3000, device.analyse)
    windows.window(0, 3000)
    assert device.analyses > device.most == 8


def test_a_window_of_samples_before_the_recording_is_refused():
    windows = WhisperSamples(Blocks(recording(1600), [1600]), 80, 50, Device(80).analyse)
    with pytest.raises(ValueError, match="before the recording"):
        windows.window(-1, 50)
