"""Long-form decoding: a recording as one chunk if it is short, else as overlapping chunks.

Frames are mel frames of 10 ms of the detected speech. Chunks begin at whole encoder frames of the
first one, so that their encoder frames are those of one pass over the whole recording.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

from oscine.audio.mel import FRAMES_PER_SECOND, SAMPLE_RATE
from oscine.audio.speech import SpeechMap
from oscine.engine.generators import SequenceGenerator, Submit, run_concurrently
from oscine.engine.sequence import EncoderInput
from oscine.models.parakeet.hotwords import ContextGraph
from oscine.models.parakeet.merge import is_same_word, merge_words
from oscine.models.parakeet.samples import Features
from oscine.models.parakeet.sequences import Chunk, Hypothesis
from oscine.models.parakeet.words import ModelInfo, WordTokens, group_words, to_tokens
from oscine.ops import Backend

log = logging.getLogger(__name__)

FrameRange = tuple[int, int]  # first frame, end (exclusive)


@dataclass(frozen=True, slots=True)
class ChunkConfig:
    """Lengths of chunks, in mel frames of 10 ms.

    max_single_frames: longest recording that is decoded as one chunk. chunk_frames: maximum length
    of a chunk of a longer recording. overlap_frames: minimum overlap of two chunks.
    """

    max_single_frames: int = 180 * FRAMES_PER_SECOND
    chunk_frames: int = 120 * FRAMES_PER_SECOND
    overlap_frames: int = 15 * FRAMES_PER_SECOND


MIN_MISSED_SPEECH_S = 1.0  # speech without a word that is longer is decoded again
GAP_CONTEXT_FRAMES = 300  # on both sides of missed speech
MAX_GAP_FRAMES = 30 * FRAMES_PER_SECOND  # longer gaps are split into several windows


def plan_windows(start: int, end: int, chunk_config: ChunkConfig, factor: int) -> list[FrameRange]:
    """Split frames `start` to `end` into overlapping windows of equal length, or one if short.

    The number of windows is minimal and they are evenly spaced.
    """
    size, overlap = chunk_config.chunk_frames // factor * factor, chunk_config.overlap_frames
    if end - start <= max(chunk_config.max_single_frames, size):
        return [(start, end)] if start < end else []
    # In encoder frames: the largest step between windows, and from the first to the last one.
    max_step = max((size - overlap) // factor, 1)
    distance = -(-(end - start - size) // factor)
    count = -(-distance // max_step)
    starts = [start + distance * number // count * factor for number in range(count + 1)]
    return [(at, min(at + size, end)) for at in starts]


def resolve_batch_size(wanted: int | str | None, backend: Backend) -> int:
    """Number of chunks of a recording to decode side by side.

    None and "auto": as many as are faster together; a CPU decodes one at a time.
    """
    if wanted in (None, "auto"):
        return backend.preferred_batch if backend.is_async else 1
    return int(wanted or 1)


class LongFormDecoder:
    """Decodes one recording window by window, merges the words, and decodes missed speech again.

    `submit` sends a chunk to the engine; `batch` is the number of windows decoded side by side;
    `check` is called while waiting and may raise to cancel.
    """

    def __init__(
        self,
        submit: Submit,
        info: ModelInfo,
        chunk_config: ChunkConfig,
        speech: SpeechMap,
        features: Features,
        context_graph: ContextGraph | None,
        batch: int,
        check: Callable[[], None],
    ) -> None:
        self.submit, self.chunk_config = submit, chunk_config
        self.tokenizer, self.subsampling_factor = info.tokenizer, info.config.subsampling_factor
        self.context = info.config.attention_window
        self.speech, self.features = speech, features
        self.context_graph, self.batch, self.check = context_graph, batch, check
        self.decoded: set[FrameRange] = set()
        #: Windows that are normalised by their own statistics.
        self.self_normalised: set[FrameRange] = set()
        self.redecoded_s = 0.0  # speech that was decoded again
        self.recovered_words = 0  # words found by that

    def decode_range(
        self, start: int, end: int, report: Callable[[int], None]
    ) -> Iterator[WordTokens]:
        """The words of frames `start` to `end` in order of time, as soon as they are final.

        `report` is called with the frame up to which the recording is decoded.
        """
        windows = plan_windows(start, end, self.chunk_config, self.subsampling_factor)
        pending: list[WordTokens] = []
        done = start  # frames before it are final
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
        """Number of words that the next window, which begins at frame `begin`, cannot change.

        Also returns the frame up to which gaps between words are known: a short gap at the end may
        be part of a longer one.
        """
        count = sum(word[-1].end < begin for word in words)
        last = words[count - 1][-1].end if count else done
        stop = min([begin, *(word[0].start for word in words[count:])])
        return count, stop if stop - last > MAX_GAP_FRAMES else max(last, done)

    def decode_windows(
        self, windows: Sequence[FrameRange]
    ) -> Generator[list[WordTokens], None, None]:
        """The words of each window in order; `batch` windows are decoded side by side."""
        self.decoded.update(windows)
        return run_concurrently(
            self.submit, map(self.decode_window, windows), self.batch, self.check
        )

    def decode_window(self, window: FrameRange) -> SequenceGenerator[list[WordTokens]]:
        """The words of a window."""
        features = self.features.window(*window, self_normalised=window in self.self_normalised)
        audio = EncoderInput(features, self.context)
        found: Hypothesis = yield Chunk(audio, context_graph=self.context_graph)
        low, high = window
        tokens = to_tokens(found.emissions, self.tokenizer, low, self.subsampling_factor, high)
        return group_words(tokens, self.tokenizer)

    # -- speech without words -----------------------------------------------------------------

    def fill_gaps(
        self, words: Sequence[WordTokens], start: int, stop: int, origin: int
    ) -> Iterator[WordTokens]:
        """The words of frames `start` to `stop`, and those of missed speech between them.

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
                log.info("%.1f s of speech without text: decoding it again", missed)
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
        """Frame ranges between words with more than MIN_MISSED_SPEECH_S of detected speech."""
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
        """Seconds of detected speech between two frames."""
        line = self.speech.timeline
        start = line.original_time(low / FRAMES_PER_SECOND)
        end = line.original_time(high / FRAMES_PER_SECOND, end=True)
        return self.speech.speech_seconds(start, end)

    def retry_window(self, gap: FrameRange, origin: int) -> FrameRange | None:
        """A window around a gap that was not decoded before, or None if there is no such window.

        It has GAP_CONTEXT_FRAMES on both sides, and its encoder frames are shifted by half a frame
        against those counted from frame `origin`. Where that window was decoded (a short recording
        is one window), the window is the speech alone, normalised by its own statistics: silence
        around speech shifts the statistics of all features, and a TDT model may then emit no token
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
        """The part of a gap from its first to its last frame of speech, without padding."""
        line = self.speech.timeline
        low, high = gap
        begin = line.original_time(low / FRAMES_PER_SECOND)
        stop = line.original_time(high / FRAMES_PER_SECOND, end=True)
        edges = [
            line.trimmed_time(edge / SAMPLE_RATE) * FRAMES_PER_SECOND
            for span in self.speech.spans or ()
            if span.start < stop * SAMPLE_RATE and span.end > begin * SAMPLE_RATE
            for edge in span
        ]
        first, last = min(edges, default=low), max(edges, default=high)
        return max(low, round(first)), min(high, round(last))
