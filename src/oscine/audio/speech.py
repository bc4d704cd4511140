"""One pass over a recording: its length, where speech is, and what to transcribe.

speech = detect_speech(open_source(path), vad=VadOptions())
WhisperFeatures(speech.recording, ...)     the padded spans of speech, one after another
speech.timeline.original_time(seconds)     back to the time of the recording
split_at_silence(speech, start, end, 3000) its frames in windows that are split at silence
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from oscine.audio.mel import HOP_LENGTH, SAMPLE_RATE
from oscine.audio.timeline import AudioBlocks, InMemory, SpeechOnly, Timeline
from oscine.audio.vad import (
    CHUNK_SAMPLES,
    Span,
    SpeechDetector,
    VadOptions,
    pad_spans,
    speech_spans,
)
from oscine.types import Samples

CACHE_S = 600  # 10 minutes of samples are 38 MB; longer recordings are decoded again
GRID_SAMPLES = 2 * HOP_LENGTH  # Whisper's times are multiples of 20 ms, so joints of spans are too
PAUSE_MS = 250  # longer silence inside a span is not counted as speech
MIN_CUT_SILENCE_S = 1.0  # preferred for a cut: rarely within a sentence
MAX_SINGLE_WORD_S = 1.0  # recordings that may contain a single word
# Peaks. Between 0.1 and 1 the detector is unaffected; at 0.01 it misses a fifth of words, and most
# single words. Below 16-bit resolution there is no signal.
MIN_PEAK, QUIET_PEAK, NORMAL_PEAK, LOUD_PEAK = 2.0**-15, 0.1, 0.5, 2.0

Check = Callable[[], None]


@dataclass(frozen=True, eq=False)
class SpeechMap:
    """Where speech is in a recording; times are those of the recording.

    `spans`: spans of speech; `probabilities`: float32 [n], one per chunk of 512 samples; both None
    without voice activity detection. `timeline` maps between the recording and what is kept of it;
    `recording` reads what is kept.
    """

    duration: float
    samples: int
    spans: list[Span] | None
    probabilities: NDArray[np.float32] | None
    timeline: Timeline
    recording: AudioBlocks
    options: VadOptions | None = None

    @classmethod
    def without_vad(cls, recording: AudioBlocks, samples: int) -> SpeechMap:
        """A map of `samples` samples without voice activity detection: everything is kept."""
        timeline = Timeline.identity(samples)
        return cls(samples / SAMPLE_RATE, samples, None, None, timeline, recording)

    def speech_seconds(self, start: float, end: float) -> float:
        """Seconds of speech from `start` to `end`, without pauses; 0.0 without spans.

        Silences of at least PAUSE_MS, or min_silence_duration_ms if that is less, are pauses.
        """
        if end <= start:
            return 0.0
        return self._speech_seconds_before(end) - self._speech_seconds_before(start)

    def seconds_outside(self, intervals: Iterable[tuple[float, float]]) -> float:
        """Seconds of speech outside all intervals (start, end), which may overlap."""
        covered = last = 0.0
        for start, end in sorted(intervals):
            covered += self.speech_seconds(max(start, last), end)
            last = max(last, end)
        return max(0.0, self.speech_seconds(0.0, self.duration) - covered)

    @cached_property
    def _cumulative_speech(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Edges of speech in samples, and the cumulative speech up to each of them."""
        if self.probabilities is None or self.options is None or not self.spans:
            return np.zeros(1), np.zeros(1)
        pause = min(PAUSE_MS, self.options.min_silence_duration_ms)
        finer = replace(self.options, min_silence_duration_ms=pause)
        spans = speech_spans(self.probabilities, self.samples, finer)
        if not spans:
            return np.zeros(1), np.zeros(1)
        edges = np.array(spans, np.float64).reshape(-1)
        lengths = np.diff(edges, prepend=edges[0])
        lengths[::2] = 0.0
        return edges, np.cumsum(lengths)

    def _speech_seconds_before(self, seconds: float) -> float:
        edges, sums = self._cumulative_speech
        return float(np.interp(seconds * SAMPLE_RATE, edges, sums)) / SAMPLE_RATE


def detect_speech(
    source: AudioBlocks,
    *,
    vad: VadOptions | None,
    keep_all: bool = False,
    check: Check | None = None,
    cached_seconds: float = CACHE_S,
) -> SpeechMap:
    """Read a source once and find its speech. `vad` None: everything is kept.

    With `keep_all` everything is kept, but windows can be split at silence: there are probabilities
    and no spans. `check` is called for every block and may raise to cancel. Up to `cached_seconds`
    the samples are kept in memory, so that `recording` needs no second decoding. Raises what the
    source raises, UsageError if voice activity detection is not available.
    """
    detector = None if vad is None else SpeechDetector()
    outputs: list[NDArray[np.float32]] = []
    held: list[Samples] | None = []
    samples, peak = 0, 0.0
    for block in source.blocks():
        if check is not None:
            check()
        samples += len(block)
        if samples > cached_seconds * SAMPLE_RATE:
            held = None
        if held is not None:
            held.append(block)
        if detector is not None:
            outputs.append(detector.push(block))
            peak = max(peak, float(np.abs(block).max(initial=0.0)))
    spans, timeline = None, Timeline.identity(samples)
    if vad is None or detector is None:
        return SpeechMap.without_vad(_kept_audio(source, held, timeline), samples)
    probabilities = np.concatenate([*outputs, detector.finish()])
    if MIN_PEAK <= peak < QUIET_PEAK or peak > LOUD_PEAK:
        again = source.blocks() if held is None else iter(held)
        probabilities = _amplified_probabilities(again, np.float32(NORMAL_PEAK / peak), check)
    vad = _for_length(vad, samples)
    if not keep_all:
        spans = speech_spans(probabilities, samples, vad)
        timeline = Timeline(_on_grid(pad_spans(spans, samples, vad), samples), samples)
    return SpeechMap(
        duration=samples / SAMPLE_RATE,
        samples=samples,
        spans=spans,
        probabilities=probabilities,
        timeline=timeline,
        recording=_kept_audio(source, held, timeline),
        options=vad,
    )


def _amplified_probabilities(
    blocks: Iterator[Samples], gain: np.float32, check: Check | None
) -> NDArray[np.float32]:
    """Probabilities of a recording that is too quiet or too loud for the network."""
    detector = SpeechDetector()
    outputs = []
    for block in blocks:
        if check is not None:
            check()
        outputs.append(detector.push(block * gain))
    return np.concatenate([*outputs, detector.finish()])


def _for_length(vad: VadOptions, samples: int) -> VadOptions:
    """Options with half the threshold for a recording that may be a single word."""
    if samples >= MAX_SINGLE_WORD_S * SAMPLE_RATE:
        return vad
    return replace(vad, threshold=vad.threshold / 2, neg_threshold=vad.silent_below / 2)


def _kept_audio(source: AudioBlocks, held: list[Samples] | None, timeline: Timeline) -> AudioBlocks:
    """What the timeline keeps of a source, from memory where it is `held`."""
    if held is None:
        return source if timeline.is_identity else SpeechOnly(source, timeline)
    samples = np.concatenate(held) if held else np.zeros(0, np.float32)
    if not timeline.is_identity:
        pieces = [samples[start:end] for start, end in timeline.pieces]
        samples = np.concatenate(pieces) if pieces else samples[:0].copy()
    return InMemory(source.name, samples)


def _on_grid(spans: Sequence[Span], samples: int) -> list[Span]:
    """Spans widened so that every joint is at a time that the model can express."""
    wider: list[Span] = []
    for start, end in spans:
        start, end = (
            start // GRID_SAMPLES * GRID_SAMPLES,
            min(samples, -(-end // GRID_SAMPLES) * GRID_SAMPLES),
        )
        if wider and start < wider[-1].end:
            start = wider[-1].end
        if start < end:
            wider.append(Span(start, end))
    return wider


def split_at_silence(
    speech: SpeechMap, start: int, end: int, max_frames: int
) -> list[tuple[int, int]]:
    """Split frames (10 ms) `start` to `end` of the trimmed time into windows of `max_frames`.

    The windows are contiguous. Each ends in the middle of the longest silence (silence that was cut
    out counts) in the last fifth of the maximum length, since fewer windows are less work; if no
    silence there is long enough, in the last third; if there is none at all, where speech is least
    probable. If there are several windows, none is shorter than a third of the maximum. Without
    voice activity detection all have equal length. Raises ValueError for `max_frames` < 1.
    """
    if max_frames < 1:
        raise ValueError(f"windows of {max_frames} frames")
    if start >= end:
        return []
    if speech.probabilities is None:
        count = -(-(end - start) // max_frames)
        cuts = [start + (end - start) * number // count for number in range(count + 1)]
    else:
        cuts = [start]
        while end - cuts[-1] > max_frames:
            last = cuts[-1] + max_frames
            low, late = last - max_frames // 3, last - max_frames // 5
            high = max(low, min(last, end - max(1, max_frames // 3)))
            begin, stop = _longest_silence(silences(speech, late, high) if late < high else ())
            good = stop - begin >= MIN_CUT_SILENCE_S
            cuts.append(_quietest_frame(speech, late if good else low, high))
        cuts.append(end)
    return list(pairwise(cuts))


def silences(speech: SpeechMap, low: int, high: int) -> list[tuple[float, float]]:
    """Silences (start, end) in seconds of the recording between two frames, in order.

    `low` and `high` are frames of the trimmed time. Empty without voice activity detection.
    """
    first, probabilities = _probabilities_between(speech, low, high)
    threshold = VadOptions().threshold if speech.options is None else speech.options.threshold
    marked = np.concatenate([[False], probabilities < threshold, [False]]).astype(np.int8)
    edges = (first + np.flatnonzero(np.diff(marked))) * (CHUNK_SAMPLES / SAMPLE_RATE)
    return [(begin, stop) for begin, stop in edges.reshape(-1, 2).tolist()]


def _longest_silence(silences: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The longest silence, the last of equals; (0, 0) if there is none."""
    return max(reversed(silences), key=lambda ends: round(ends[1] - ends[0], 3), default=(0.0, 0.0))


def _probabilities_between(
    speech: SpeechMap, low: int, high: int
) -> tuple[int, NDArray[np.float32]]:
    """Probabilities between two frames, and the index of the first of these chunks."""
    if speech.probabilities is None:
        return 0, np.zeros(0, np.float32)
    line, frame = speech.timeline, HOP_LENGTH / SAMPLE_RATE
    first = int(line.original_time(low * frame) * SAMPLE_RATE) // CHUNK_SAMPLES
    last = int(line.original_time(high * frame, end=True) * SAMPLE_RATE) // CHUNK_SAMPLES
    return first, speech.probabilities[first : last + 1]


def _quietest_frame(speech: SpeechMap, low: int, high: int) -> int:
    """The frame from `low` to `high` before which to split."""
    first, probabilities = _probabilities_between(speech, low, high)
    if not len(probabilities):
        return high
    middle = sum(_longest_silence(silences(speech, low, high))) / 2
    if not middle:
        middle = (first + int(probabilities.argmin()) + 0.5) * CHUNK_SAMPLES / SAMPLE_RATE
    return min(
        max(round(speech.timeline.trimmed_time(middle) * SAMPLE_RATE / HOP_LENGTH), low), high
    )
