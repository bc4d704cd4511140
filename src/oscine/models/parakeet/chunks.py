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
from oscine.models.parakeet.boost import Phrases
from oscine.models.parakeet.features import Features
from oscine.models.parakeet.join import alike, joined
from oscine.models.parakeet.sequences import Chunk, Decoded
from oscine.models.parakeet.words import Spoken, TextSide, spoken_words, tokens_of
from oscine.ops import Backend

log = logging.getLogger(__name__)

Window = tuple[int, int]  # frames from, up to but without


@dataclass(frozen=True, slots=True)
class Lengths:
    """In frames of 10 ms."""

    whole: int = 180 * FRAMES_PER_SECOND  # up to which a recording is taken in one piece
    chunk: int = 120 * FRAMES_PER_SECOND  # of a longer one's pieces, at most
    overlap: int = 15 * FRAMES_PER_SECOND  # that two pieces share, at least


MISSED = 1.0  # seconds of speech without a word that are listened to once more
AROUND = 300  # frames around them that are heard too
LONGEST_GAP = 30 * FRAMES_PER_SECOND  # of one window; longer gaps are several


def plan(start: int, end: int, lengths: Lengths, factor: int) -> list[Window]:
    """Frames `start` to `end` as windows: one, or several of one length that share an overlap.

    They are as few as there can be, and spread evenly, so that none is short.
    """
    size, overlap = lengths.chunk // factor * factor, lengths.overlap
    if end - start <= max(lengths.whole, size):
        return [(start, end)] if start < end else []
    most = max((size - overlap) // factor, 1)  # encoder frames from window to window
    room = -(-(end - start - size) // factor)  # that the first window's start moves in all
    count = -(-room // most)
    starts = [start + room * number // count * factor for number in range(count + 1)]
    return [(at, min(at + size, end)) for at in starts]


def batch_size(wanted: int | str | None, backend: Backend) -> int:
    """How many pieces of a long recording are decoded side by side, as far as there is memory.

    None and "auto": as many as gain. One keeps all cores of a CPU busy.
    """
    if wanted in (None, "auto"):
        return backend.good_batch if backend.runs_ahead else 1
    return int(wanted or 1)


class Passage:
    """One recording under way: `submit` has its windows decoded, `batch` of them at once."""

    def __init__(
        self,
        submit: Submit,
        text: TextSide,
        lengths: Lengths,
        speech: Speech,
        features: Features,
        phrases: Phrases | None,
        batch: int,
        check: Callable[[], None],
    ) -> None:
        self.submit, self.lengths = submit, lengths
        self.tokenizer, self.factor = text.tokenizer, text.config.subsampling_factor
        self.context = text.config.attention_window
        self.speech, self.features = speech, features
        self.phrases, self.batch, self.check = phrases, batch, check
        self.decoded: set[Window] = set()
        self.apart: set[Window] = set()  # windows that are normalised by their own frames
        self.again = 0.0  # seconds of speech that were listened to once more
        self.found_again = 0  # words that this gave

    def words(self, start: int, end: int, report: Callable[[int], None]) -> Iterator[Spoken]:
        """The words of frames `start` to `end` in order of time, as they become certain."""
        windows = plan(start, end, self.lengths, self.factor)
        pending: list[Spoken] = []
        done = start  # frames before it are certain
        report(start)
        with closing(self.decode(windows)) as results:
            for number, found in enumerate(results):
                if number:
                    middle = (windows[number][0] + windows[number - 1][1]) // 2
                    half = self.lengths.overlap // 2
                    before, found = joined(
                        pending, found, middle - half, middle + half, self.tokenizer
                    )
                    found = before + found
                count, stop = len(found), end
                if number + 1 < len(windows):
                    report(windows[number + 1][0])
                    count, stop = self.certain(found, done, windows[number + 1][0] - AROUND)
                yield from self.without_gaps(found[:count], done, stop, start)
                pending, done = found[count:], stop
                self.features.release(done - 2 * AROUND)

    def certain(self, words: Sequence[Spoken], done: int, begin: int) -> tuple[int, int]:
        """How many words another window, which is heard from `begin` on, cannot change.

        And the frame up to which gaps between them can be told: a short one at their end may be
        part of a longer one.
        """
        count = sum(word[-1].end < begin for word in words)
        last = words[count - 1][-1].end if count else done
        stop = min([begin, *(word[0].start for word in words[count:])])
        return count, stop if stop - last > LONGEST_GAP else max(last, done)

    def decode(self, windows: Sequence[Window]) -> Generator[list[Spoken], None, None]:
        """What each of the windows says, in order; `batch` of them are decoded side by side."""
        self.decoded.update(windows)
        return run_side_by_side(self.submit, map(self.spoken, windows), self.batch, self.check)

    def spoken(self, window: Window) -> Steps[list[Spoken]]:
        """The words of a window."""
        audio = EncoderInput(self.mel(window), self.context)
        found: Decoded = yield Chunk(audio, phrases=self.phrases)
        low, high = window
        tokens = tokens_of(found.emissions, self.tokenizer, low, self.factor, high)
        return spoken_words(tokens, self.tokenizer)

    def mel(self, window: Window) -> NDArray[np.float32]:
        """Normalised features of a window, [frames, n_mels]."""
        rows = self.features.rows(*window)
        return Statistics.of([rows]).normalised(rows) if window in self.apart else rows

    # -- speech without words -----------------------------------------------------------------

    def without_gaps(
        self, words: Sequence[Spoken], start: int, stop: int, origin: int
    ) -> Iterator[Spoken]:
        """The words of frames `start` to `stop`, and those that speech between them gives.

        Speech of more than MISSED seconds without a word is decoded once more, alone, in another
        window than before. Where there is no other, as all of the recording is speech without a
        word, it is not decoded again: the result would be the same.
        """
        again: list[tuple[Window, Window]] = []
        for gap in self.gaps(words, start, stop):
            if (window := self.other_window(gap, origin)) is not None:
                again.append((gap, window))
                missed = self.spoken_seconds(*gap)
                self.again += missed
                log.info("%.1f s of speech without a word: heard once more", missed)
        decoded = list(self.decode([window for _, window in again]))
        missing = [
            word
            for ((low, high), _), found in zip(again, decoded, strict=True)
            for word in found
            if word[0].start >= low
            and word[-1].end <= high
            and not any(alike(word, other, self.tokenizer) for other in words)
        ]
        self.found_again += len(missing)
        yield from sorted([*words, *missing], key=lambda word: word[0].start)

    def gaps(self, words: Sequence[Spoken], start: int, stop: int) -> Iterator[Window]:
        """Frames between words in which too much is said."""
        if self.speech.spans is None:
            return
        edges = [(start, start), *((word[0].start, word[-1].end) for word in words), (stop, stop)]
        for (_, low), (high, _) in pairwise(edges):
            if high - low <= MISSED * FRAMES_PER_SECOND:
                continue
            for at in range(low, high, LONGEST_GAP):
                end = min(at + LONGEST_GAP, high)
                if self.spoken_seconds(at, end) > MISSED:
                    yield at, end

    def spoken_seconds(self, low: int, high: int) -> float:
        """Seconds of speech between two frames."""
        line = self.speech.timeline
        start = line.original(low / FRAMES_PER_SECOND)
        end = line.original(high / FRAMES_PER_SECOND, end=True)
        return self.speech.speech_seconds(start, end)

    def other_window(self, gap: Window, origin: int) -> Window | None:
        """A window around a gap that was not decoded yet, or None.

        It has AROUND frames on both sides, and its encoder frames begin between those counted from
        the frame `origin`. Where that window was decoded (a short recording is one window), the
        speech alone is taken, from its first to its last frame, normalised by itself: silence
        around speech shifts the statistics of all features, and a TDT may then give no label
        (NVIDIA-NeMo/Speech issue 15757).
        """
        factor = self.factor
        low, high = gap
        first = low - AROUND
        first -= (first - origin - factor // 2) % factor
        window = max(first, 0), min(high + AROUND, self.features.frames)
        if window in self.decoded:
            window = self.speech_alone(gap)
            if window in self.decoded:
                return None
            self.apart.add(window)
        return window

    def speech_alone(self, gap: Window) -> Window:
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
