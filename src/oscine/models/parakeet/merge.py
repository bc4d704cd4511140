"""Merges the words of two overlapping chunks at a word boundary.

Both chunks have decoded the overlap, each least reliably at its own edge. So words before the merge
point are taken from the earlier chunk and words after it from the later one. The merge point is put
after a word that both have at the same time, near the middle of the overlap. Words are never cut,
so no token loses its word or its case. The criterion (equal and near in time) is that of
parakeet-mlx (alignment.py), applied to words instead of tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oscine.models.parakeet.words import WordTokens
from oscine.text.sentencepiece import SentencePieceTokenizer

MAX_START_DIFF_FRAMES = 40  # of 10 ms, between the starts of one word in two chunks
TYPICAL_DIFF_FRAMES = 8  # an encoder frame: most words differ by no more
PUNCTUATION = " .,!?;:\"'-¿¡…。，！？"


def merge_words(
    earlier: Sequence[WordTokens],
    later: Sequence[WordTokens],
    start: int,
    stop: int,
    tokenizer: SentencePieceTokenizer,
) -> tuple[list[WordTokens], list[WordTokens]]:
    """The words to keep of each chunk; concatenated they are the words of the audio of both.

    Frames `start` to `stop` are the overlap, or the middle of it.
    """
    low, high = start - TYPICAL_DIFF_FRAMES, stop + TYPICAL_DIFF_FRAMES
    first, last = (bisect_left(earlier, frame, key=start_frame) for frame in (low, high))
    begin, end = (bisect_left(later, frame, key=start_frame) for frame in (low, high))
    head = [Candidate.of(word, tokenizer) for word in earlier[first:last]]
    tail = [Candidate.of(word, tokenizer) for word in later[begin:end]]
    before, after = find_merge_point(head, tail, (start + stop) / 2)
    return list(earlier[: first + before]), list(later[begin + after :])


def start_frame(word: WordTokens) -> int:
    """Mel frame at which a word starts."""
    return word[0].start


@dataclass(frozen=True, slots=True)
class Candidate:
    """A word in the form in which it is compared."""

    start: int
    end: int
    ids: tuple[int, ...]
    normalised: str  # text without case and punctuation, which depend on the words around

    @classmethod
    def of(cls, word: WordTokens, tokenizer: SentencePieceTokenizer) -> Candidate:
        """From a word's tokens."""
        ids = tuple(token.id for token in word)
        return cls(word[0].start, word[-1].end, ids, normalise(ids, tokenizer))

    def similarity(self, other: Candidate) -> int:
        """0 for another word or time; else higher the nearer in time and for equal tokens."""
        distance = abs(self.start - other.start)
        if distance > MAX_START_DIFF_FRAMES or self.normalised != other.normalised:
            return 0
        return 2 * (MAX_START_DIFF_FRAMES + TYPICAL_DIFF_FRAMES - distance) - (
            self.ids != other.ids
        )


def normalise(ids: Iterable[int], tokenizer: SentencePieceTokenizer) -> str:
    """A word's text in lower case without surrounding punctuation; punctuation alone is kept."""
    text = tokenizer.decode(ids).strip().casefold()
    return text.strip(PUNCTUATION) or text


def is_same_word(one: WordTokens, other: WordTokens, tokenizer: SentencePieceTokenizer) -> bool:
    """Whether two words are equal, but for case and punctuation, and near in time."""
    return Candidate.of(one, tokenizer).similarity(Candidate.of(other, tokenizer)) > 0


def find_merge_point(
    head: Sequence[Candidate], tail: Sequence[Candidate], middle: float
) -> tuple[int, int]:
    """Number of words of the earlier chunk to keep, and number of words of the later one to drop.

    The merge point is after a word that both have. Preferred are words with equal tokens, then
    words whose neighbours match too, then those nearest to `middle`. Without a common word it is in
    the pause nearest to the middle; a chunk without words is replaced by the other.
    """
    pairs = match_words(head, tail)
    if pairs:
        known = set(pairs)

        def cost(pair: tuple[int, int]) -> tuple[bool, int, float]:
            i, j = pair
            unmatched = ((i - 1, j - 1) not in known) + ((i + 1, j + 1) not in known)
            return head[i].ids != tail[j].ids, unmatched, abs(head[i].start - middle)

        i, j = min(pairs, key=cost)
        return i + 1, j + 1
    if not head or not tail:
        return len(head), 0
    twice_cut = 2 * nearest_pause(head, tail, middle)
    return (
        sum(word.start + word.end <= twice_cut for word in head),
        sum(word.start + word.end <= twice_cut for word in tail),
    )


def match_words(head: Sequence[Candidate], tail: Sequence[Candidate]) -> list[tuple[int, int]]:
    """Index pairs of equal words, in order in both: the matching with the highest total similarity.

    Nearness in time keeps a repeated word from being matched with the repetition after it.
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
    """The frame nearest to the middle at which neither chunk is inside a word; else the middle."""
    words = [*head, *tail]
    edges = [middle, *(word.start for word in words), *(word.end for word in words)]
    quiet = [edge for edge in edges if not any(word.start < edge < word.end for word in words)]
    return min(quiet, key=lambda edge: abs(edge - middle), default=middle)
