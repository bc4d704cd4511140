"""The words of two overlapping pieces of audio as one sequence: the seam lies between words.

Both pieces have heard the overlap, each worst where it begins or ends. So the words before a seam
are the earlier piece's and those after it the later one's, and the seam is put where both say the
same word at the same time, as far inside the overlap as there is such a word. No label is taken out
of a word, which would cut or recapitalise it. The relation of parakeet-mlx (alignment.py: the same
and near in time) is kept, for words instead of labels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oscine.models.parakeet.words import WordTokens
from oscine.text.pieces import Pieces

MAX_START_DIFF_FRAMES = 40  # frames of 10 ms by which two pieces may differ in when a word begins
TYPICAL_DIFF_FRAMES = 8  # by which they usually do at most: an encoder frame
PUNCTUATION = " .,!?;:\"'-¿¡…。，！？"


def merge_words(
    earlier: Sequence[WordTokens],
    later: Sequence[WordTokens],
    start: int,
    stop: int,
    tokenizer: Pieces,
) -> tuple[list[WordTokens], list[WordTokens]]:
    """Of each piece the words that stay; together they are the words of both pieces' audio.

    Frames `start` to `stop` are what both have heard, or the middle of it.
    """
    low, high = start - TYPICAL_DIFF_FRAMES, stop + TYPICAL_DIFF_FRAMES
    first, last = (bisect_left(earlier, frame, key=start_frame) for frame in (low, high))
    begin, end = (bisect_left(later, frame, key=start_frame) for frame in (low, high))
    head = [Candidate.of(word, tokenizer) for word in earlier[first:last]]
    tail = [Candidate.of(word, tokenizer) for word in later[begin:end]]
    before, after = find_merge_point(head, tail, (start + stop) / 2)
    return list(earlier[: first + before]), list(later[begin + after :])


def start_frame(word: WordTokens) -> int:
    """The frame at which a word begins."""
    return word[0].start


@dataclass(frozen=True, slots=True)
class Candidate:
    """A word as it is compared."""

    start: int
    end: int
    ids: tuple[int, ...]
    normalised: str  # without what hangs on the words around: case and punctuation

    @classmethod
    def of(cls, word: WordTokens, tokenizer: Pieces) -> Candidate:
        """From its labels."""
        ids = tuple(token.id for token in word)
        return cls(word[0].start, word[-1].end, ids, normalise(ids, tokenizer))

    def similarity(self, other: Candidate) -> int:
        """0 for another word or time, else the more the nearer; most for the very same labels."""
        distance = abs(self.start - other.start)
        if distance > MAX_START_DIFF_FRAMES or self.normalised != other.normalised:
            return 0
        return 2 * (MAX_START_DIFF_FRAMES + TYPICAL_DIFF_FRAMES - distance) - (
            self.ids != other.ids
        )


def normalise(ids: Iterable[int], tokenizer: Pieces) -> str:
    """A word's text without case and the punctuation around it; all of it if it is no more."""
    text = tokenizer.decode(ids).strip().casefold()
    return text.strip(PUNCTUATION) or text


def is_same_word(one: WordTokens, other: WordTokens, tokenizer: Pieces) -> bool:
    """Whether it is the same word at about the same time, but for case and punctuation."""
    return Candidate.of(one, tokenizer).similarity(Candidate.of(other, tokenizer)) > 0


def find_merge_point(
    head: Sequence[Candidate], tail: Sequence[Candidate], middle: float
) -> tuple[int, int]:
    """How many words of the earlier piece's to keep, and how many of the later one's to leave out.

    After a word that both have, if there is one: rather one that both write the same way, between
    others that both have too, and then the one nearest to the middle. Else between words, or where
    a piece has none, as the other has it.
    """
    pairs = match_words(head, tail)
    if pairs:
        known = set(pairs)

        def badness(pair: tuple[int, int]) -> tuple[bool, int, float]:
            i, j = pair
            alone = ((i - 1, j - 1) not in known) + ((i + 1, j + 1) not in known)
            return head[i].ids != tail[j].ids, alone, abs(head[i].start - middle)

        i, j = min(pairs, key=badness)
        return i + 1, j + 1
    if not head or not tail:
        return len(head), 0
    place = 2 * nearest_pause(head, tail, middle)
    return (
        sum(word.start + word.end <= place for word in head),
        sum(word.start + word.end <= place for word in tail),
    )


def match_words(head: Sequence[Candidate], tail: Sequence[Candidate]) -> list[tuple[int, int]]:
    """Pairs of words that are the same, in order in both: many, and near to each other in time.

    A word that is said again and again is thus not taken for the one after it.
    """
    rows, columns = len(head), len(tail)
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            best[i][j] = max(best[i + 1][j], best[i][j + 1])
            if similarity := head[i].similarity(tail[j]):
                best[i][j] = max(best[i][j], best[i + 1][j + 1] + similarity)
    pairs = []
    i = j = 0
    while i < rows and j < columns:
        if best[i][j] == best[i + 1][j]:
            i += 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            pairs.append((i, j))
            i, j = i + 1, j + 1
    return pairs


def nearest_pause(head: Sequence[Candidate], tail: Sequence[Candidate], middle: float) -> float:
    """The frame nearest to the middle at which neither piece is inside a word; else the middle."""
    words = [*head, *tail]
    edges = [middle, *(word.start for word in words), *(word.end for word in words)]
    quiet = [edge for edge in edges if not any(word.start < edge < word.end for word in words)]
    return min(quiet, key=lambda edge: abs(edge - middle), default=middle)
