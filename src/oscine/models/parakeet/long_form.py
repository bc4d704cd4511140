"""A recording's way to words: in one piece if it is short, else in overlapping ones.

Frames are of 10 ms, of what is listened to. Windows begin on whole encoder frames of the first, so
that each sees the frames that one piece of the whole length would.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from oscine.audio.mel import FRAMES_PER_SECOND, SAMPLE_RATE
from oscine.audio.mel_nemo import Statistics
from oscine.audio.speech import Speech
from oscine.engine.sequence import EncoderInput
from oscine.engine.steps import Steps, Submit, run_side_by_side
from oscine.models.parakeet.features import Features
from oscine.models.parakeet.hotwords import ContextGraph
from oscine.models.parakeet.merge import is_same_word, merge_words
from oscine.models.parakeet.sequences import Chunk, Hypothesis
from oscine.models.parakeet.words import ModelInfo, WordTokens, group_words, to_tokens
from oscine.ops import Backend

log = logging.getLogger(__name__)

FrameRange = tuple[int, int]  # frames from, up to but without


@dataclass(frozen=True, slots=True)
class ChunkConfig:
    """In frames of 10 ms."""

    max_single_frames: int = (
        180 * FRAMES_PER_SECOND
    )  # up to which a recording is taken in one piece
    chunk_frames: int = 120 * FRAMES_PER_SECOND  # of a longer one's pieces, at most
    overlap_frames: int = 15 * FRAMES_PER_SECOND  # that two pieces share, at least


MIN_MISSED_SPEECH_S = 1.0  # seconds of speech without a word that are listened to once more
GAP_CONTEXT_FRAMES = 300  # frames around them that are heard too
MAX_GAP_FRAMES = 30 * FRAMES_PER_SECOND  # of one window; longer gaps are several


def plan_windows(start: int, end: int, chunk_config: ChunkConfig, factor: int) -> list[FrameRange]:
    """Frames `start` to `end` as windows: one, or several of one length that share an overlap.

    They are as few as there can be, and spread evenly, so that none is short.
    """
    size, overlap = chunk_config.chunk_frames // factor * factor, chunk_config.overlap_frames
    if end - start <= max(chunk_config.max_single_frames, size):
        return [(start, end)] if start < end else []
    most = max((size - overlap) // factor, 1)  # encoder frames from window to window
    room = -(-(end - start - size) // factor)  # that the first window's start moves in all
    count = -(-room // most)
    starts = [start + room * number // count * factor for number in range(count + 1)]
    return [(at, min(at + size, end)) for at in starts]


def resolve_batch_size(wanted: int | str | None, backend: Backend) -> int:
    """How many pieces of a long recording are decoded side by side, as far as there is memory.

    None and "auto": as many as gain. One keeps all cores of a CPU busy.
    """
    if wanted in (None, "auto"):
        return backend.preferred_batch if backend.is_async else 1
    return int(wanted or 1)


class LongFormDecoder:
    """One recording under way: `submit` has its windows decoded, `batch` of them at once."""

    def __init__(
        self,
        submit: Submit,
        text: ModelInfo,
        chunk_config: ChunkConfig,
        speech: Speech,
        features: Features,
        context_graph: ContextGraph | None,
        batch: int,
        check: Callable[[], None],
    ) -> None:
        self.submit, self.chunk_config = submit, chunk_config
        self.tokenizer, self.subsampling_factor = text.tokenizer, text.config.subsampling_factor
        self.context = text.config.attention_window
        self.speech, self.features = speech, features
        self.context_graph, self.batch, self.check = context_graph, batch, check
        self.decoded: set[FrameRange] = set()
        self.self_normalised: set[FrameRange] = (
            set()
        )  # windows that are normalised by their own frames
        self.redecoded_s = 0.0  # seconds of speech that were listened to once more
        self.recovered_words = 0  # words that this gave

    def decode_range(
        self, start: int, end: int, report: Callable[[int], None]
    ) -> Iterator[WordTokens]:
        """The words of frames `start` to `end` in order of time, as they become certain."""
        windows = plan_windows(start, end, self.chunk_config, self.subsampling_factor)
        pending: list[WordTokens] = []
        done = start  # frames before it are certain
        report(start)
        with closing(self.decode_windows(windows)) as results:
            for number, found in enumerate(results):
                if number:
                    middle = (windows[number][0] + windows[number - 1][1]) // 2
                    half = self.chunk_config.overlap_frames // 2
                    before, found = merge_words(
                        pending, found, middle - half, middle + half, self.tokenizer
                    )
                    found = before + found
                count, stop = len(found), end
                if number + 1 < len(windows):
                    report(windows[number + 1][0])
                    count, stop = self.count_final(
                        found, done, windows[number + 1][0] - GAP_CONTEXT_FRAMES
                    )
                yield from self.fill_gaps(found[:count], done, stop, start)
                pending, done = found[count:], stop
                self.features.release(done - 2 * GAP_CONTEXT_FRAMES)

    def count_final(self, words: Sequence[WordTokens], done: int, begin: int) -> tuple[int, int]:
        """How many words another window, which is heard from `begin` on, cannot change.

        And the frame up to which gaps between them can be told: a short one at their end may be
        part of a longer one.
        """
        count = sum(word[-1].end < begin for word in words)
        last = words[count - 1][-1].end if count else done
        stop = min([begin, *(word[0].start for word in words[count:])])
        return count, stop if stop - last > MAX_GAP_FRAMES else max(last, done)

    def decode_windows(
        self, windows: Sequence[FrameRange]
    ) -> Generator[list[WordTokens], None, None]:
        """What each of the windows says, in order; `batch` of them are decoded side by side."""
        self.decoded.update(windows)
        return run_side_by_side(
            self.submit, map(self.decode_window, windows), self.batch, self.check
        )

    def decode_window(self, window: FrameRange) -> Steps[list[WordTokens]]:
        """The words of a window."""
        audio = EncoderInput(self.window_features(window), self.context)
        found: Hypothesis = yield Chunk(audio, context_graph=self.context_graph)
        low, high = window
        tokens = to_tokens(found.emissions, self.tokenizer, low, self.subsampling_factor, high)
        return group_words(tokens, self.tokenizer)

    def window_features(self, window: FrameRange) -> NDArray[np.float32]:
        """Normalised features of a window, [frames, n_mels]."""
        rows = self.features.rows(*window)
        return Statistics.of([rows]).normalised(rows) if window in self.self_normalised else rows

    # -- speech without words -----------------------------------------------------------------

    def fill_gaps(
        self, words: Sequence[WordTokens], start: int, stop: int, origin: int
    ) -> Iterator[WordTokens]:
        """The words of frames `start` to `stop`, and those that speech between them gives.

        More than MIN_MISSED_SPEECH_S of speech without a word is decoded again, alone, in a
        window that was not decoded before. Without such a window, as where the whole recording is
        speech without a word, it is skipped: the result would be the same.
        """
        again: list[tuple[FrameRange, FrameRange]] = []
        for gap in self.find_gaps(words, start, stop):
            if (window := self.retry_window(gap, origin)) is not None:
                again.append((gap, window))
                missed = self.speech_seconds_between(*gap)
                self.redecoded_s += missed
                log.info("%.1f s of speech without a word: heard once more", missed)
        decoded = list(self.decode_windows([window for _, window in again]))
        missing = [
            word
            for ((low, high), _), found in zip(again, decoded, strict=True)
            for word in found
            if word[0].start >= low
            and word[-1].end <= high
            and not any(is_same_word(word, other, self.tokenizer) for other in words)
        ]
        self.recovered_words += len(missing)
        yield from sorted([*words, *missing], key=lambda word: word[0].start)

    def find_gaps(self, words: Sequence[WordTokens], start: int, stop: int) -> Iterator[FrameRange]:
        """Frames between words in which too much is said."""
        if self.speech.spans is None:
            return
        edges = [(start, start), *((word[0].start, word[-1].end) for word in words), (stop, stop)]
        for (_, low), (high, _) in pairwise(edges):
            if high - low <= MIN_MISSED_SPEECH_S * FRAMES_PER_SECOND:
                continue
            for at in range(low, high, MAX_GAP_FRAMES):
                end = min(at + MAX_GAP_FRAMES, high)
                if self.speech_seconds_between(at, end) > MIN_MISSED_SPEECH_S:
                    yield at, end

    def speech_seconds_between(self, low: int, high: int) -> float:
        """Seconds of speech between two frames."""
        line = self.speech.timeline
        start = line.original(low / FRAMES_PER_SECOND)
        end = line.original(high / FRAMES_PER_SECOND, end=True)
        return self.speech.speech_seconds(start, end)

    def retry_window(self, gap: FrameRange, origin: int) -> FrameRange | None:
        """A window around a gap that was not decoded yet, or None.

        It has GAP_CONTEXT_FRAMES on both sides, and its encoder frames begin between those counted
        from frame `origin`. Where that window was decoded (a short recording is one window), the
        speech alone is taken, from its first to its last frame, normalised by itself: silence
        around speech shifts the statistics of all features, and a TDT may then give no label
        (NVIDIA-NeMo/Speech issue 15757).
        """
        factor = self.subsampling_factor
        low, high = gap
        first = low - GAP_CONTEXT_FRAMES
        first -= (first - origin - factor // 2) % factor
        window = max(first, 0), min(high + GAP_CONTEXT_FRAMES, self.features.frames)
        if window in self.decoded:
            window = self.trim_to_speech(gap)
            if window in self.decoded:
                return None
            self.self_normalised.add(window)
        return window

    def trim_to_speech(self, gap: FrameRange) -> FrameRange:
        """From the first frame of speech in a gap to the last, without the detector's padding."""
        line = self.speech.timeline
        low, high = gap
        begin = line.original(low / FRAMES_PER_SECOND)
        stop = line.original(high / FRAMES_PER_SECOND, end=True)
        edges = [
            line.condensed(edge / SAMPLE_RATE) * FRAMES_PER_SECOND
            for span in self.speech.spans or ()
            if span.start < stop * SAMPLE_RATE and span.end > begin * SAMPLE_RATE
            for edge in span
        ]
        first, last = min(edges, default=low), max(edges, default=high)
        return max(low, round(first)), min(high, round(last))
