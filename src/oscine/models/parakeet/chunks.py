"""A recording's way to words: in one piece if it is short, else in overlapping ones.

Frames are of 10 ms, of what is listened to. Windows begin on whole encoder frames of the first, so
that each sees the frames that one piece of the whole length would.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from oscine.audio.speech import Speech
from oscine.models.parakeet.boost import Phrases
from oscine.models.parakeet.features import Features
from oscine.models.parakeet.join import NEAR, joined
from oscine.models.parakeet.words import FRAMES_PER_SECOND, Spoken, spoken_words, tokens_of

if TYPE_CHECKING:
    from oscine.models.parakeet.pipeline import Parakeet

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
PUNCTUATION = " .,!?;:\"'-"
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


class Passage:
    """One recording under way on one model."""

    def __init__(
        self,
        model: Parakeet,
        speech: Speech,
        features: Features,
        phrases: Phrases | None,
        batch: int,
        check: Callable[..., None],
    ) -> None:
        self.model, self.speech, self.features = model, speech, features
        self.phrases, self.batch, self.check = phrases, batch, check
        self.again = 0.0  # seconds of speech that were listened to once more
        self.found_again = 0  # words that this gave

    @property
    def limit(self) -> int:
        """The frame at which all that is listened to ends, and with it every word."""
        return self.features.frames

    def words(self, start: int, end: int, report: Callable[[int], None]) -> Iterator[Spoken]:
        """The words of frames `start` to `end` in order of time, as they become certain."""
        windows = plan(start, end, self.model.lengths, self.model.decoder.config.factor)
        pending: list[Spoken] = []
        done = start  # frames before it are certain
        for at in range(0, len(windows), self.batch):
            report(windows[at][0])
            for number, found in enumerate(self.decode(windows[at : at + self.batch]), start=at):
                if number:
                    overlap = windows[number][0], windows[number - 1][1]
                    before, found = joined(pending, found, *overlap)
                    found = before + found
                count, stop = len(found), end
                if number + 1 < len(windows):  # whose words replace none that end before it
                    begin = windows[number + 1][0] - AROUND
                    count = sum(word[-1].end < begin for word in found)
                    stop = found[count][0].start if count < len(found) else begin
                stop = max(stop, done)
                yield from self.without_gaps(found[:count], done, stop)
                pending, done = found[count:], stop
                self.features.release(done - 2 * AROUND)

    def decode(self, windows: Sequence[Window]) -> list[list[Spoken]]:
        """What windows side by side say."""
        spelling = self.model.spelling
        mels = [self.features.rows(low, high) for low, high in windows]

        def work() -> list[list[Spoken]]:
            with self.model.lock:
                self.check()
                decoder = self.model.decoder
                decoder.encode(mels, decoder.config.context)
                decoded = decoder.decode(phrases=self.phrases, check=self.check)
            factor = decoder.config.factor
            return [
                spoken_words(tokens_of(one.emissions, spelling, low, factor, self.limit), spelling)
                for one, (low, _) in zip(decoded, windows, strict=True)
            ]

        return self.model.surviving(work)

    # -- speech without words -----------------------------------------------------------------

    def without_gaps(self, words: Sequence[Spoken], start: int, stop: int) -> Iterator[Spoken]:
        """The words of frames `start` to `stop`, and those that speech between them gives.

        Speech of more than MISSED seconds without a word is decoded once more, alone, in windows
        that begin elsewhere.
        """
        gaps = list(self.gaps(words, start, stop))
        missing: list[Spoken] = []
        for at in range(0, len(gaps), self.batch):
            batch = gaps[at : at + self.batch]
            for (low, high), found in zip(batch, self.decode_alone(batch), strict=True):
                missing += [
                    word
                    for word in found
                    if word[0].start >= low
                    and word[-1].end <= high
                    and not any(self.alike(word, other) for other in words)
                ]
        self.found_again += len(missing)
        yield from sorted([*words, *missing], key=lambda word: word[0].start)

    def alike(self, one: Spoken, other: Spoken) -> bool:
        """Whether it is the same word at about the same time, but for case and punctuation."""
        if abs(one[0].start - other[0].start) > NEAR:
            return False
        first, second = (
            self.model.spelling.decode(token.id for token in word).strip(PUNCTUATION).casefold()
            for word in (one, other)
        )
        return first == second

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
                missed = self.spoken_seconds(at, end)
                if missed > MISSED:
                    self.again += missed
                    log.info("%.1f s of speech without a word, heard once more", missed)
                    yield at, end

    def spoken_seconds(self, low: int, high: int) -> float:
        """Seconds of speech between two frames."""
        line = self.speech.timeline
        start = line.original(low / FRAMES_PER_SECOND)
        end = line.original(high / FRAMES_PER_SECOND, end=True)
        return self.speech.speech_seconds(start, end)

    def decode_alone(self, gaps: Sequence[Window]) -> list[list[Spoken]]:
        """What is said in gaps, with some of what is around."""
        frames = self.features.frames
        return self.decode(
            [(max(low - AROUND, 0), min(high + AROUND, frames)) for low, high in gaps]
        )
