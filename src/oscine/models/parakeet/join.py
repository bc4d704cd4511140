"""The words of two overlapping pieces of audio as one sequence: the seam lies between words.

Both pieces have heard the overlap, each worst where it begins or ends. So the words before a seam
are the earlier piece's and those after it the later one's, and the seam is put where both say the
same word at the same time, as far inside the overlap as there is such a word. No label is taken out
of a word, which would cut or recapitalise it. The relation of parakeet-mlx (alignment.py: same
labels, near in time) is kept, for words instead of labels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from oscine.models.parakeet.words import Spoken

NEAR = 40  # frames of 10 ms by which two pieces may differ in when a word begins


def joined(
    earlier: Sequence[Spoken], later: Sequence[Spoken], start: int, stop: int
) -> tuple[list[Spoken], list[Spoken]]:
    """Of each piece the words that stay; together they are the words of both pieces' audio.

    Frames `start` to `stop` are what both have heard: where the later piece begins and the earlier
    one ends.
    """
    first = bisect_left(earlier, start - NEAR, key=begin_of)
    last = bisect_left(later, stop + NEAR, key=begin_of)
    head, tail = earlier[first:], later[:last]
    before, after = seam(head, tail, (start + stop) / 2)
    return [*earlier[:first], *head[:before]], list(later[after:])


def begin_of(word: Spoken) -> int:
    """The frame at which a word begins."""
    return word[0].start


def same(one: Spoken, other: Spoken) -> bool:
    """Whether two pieces have heard the same word: the same labels at about the same time."""
    return abs(one[0].start - other[0].start) <= NEAR and [t.id for t in one] == [
        t.id for t in other
    ]


def seam(head: Sequence[Spoken], tail: Sequence[Spoken], middle: float) -> tuple[int, int]:
    """How many words of the earlier piece's to keep, and how many of the later one's to leave out.

    After a word that both have, if there is one: rather one between others that both have too, then
    the one nearest to the middle. Else between words, or where a piece has none, as the other has
    it.
    """
    pairs = matches(head, tail)
    if pairs:
        known = set(pairs)

        def badness(pair: tuple[int, int]) -> tuple[int, float]:
            i, j = pair
            alone = ((i - 1, j - 1) not in known) + ((i + 1, j + 1) not in known)
            return alone, abs(head[i][0].start - middle)

        i, j = min(pairs, key=badness)
        return i + 1, j + 1
    if not head or not tail:
        return len(head), 0
    place = quiet_place(head, tail, middle)
    return (
        sum(word[-1].end + word[0].start <= 2 * place for word in head),
        sum(word[-1].end + word[0].start <= 2 * place for word in tail),
    )


def matches(head: Sequence[Spoken], tail: Sequence[Spoken]) -> list[tuple[int, int]]:
    """The most pairs of words that are the same, in order in both; rather near in time than far."""
    rows, columns = len(head), len(tail)
    best: list[list[tuple[int, int]]] = [[(0, 0)] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            best[i][j] = max(best[i + 1][j], best[i][j + 1])
            if same(head[i], tail[j]):
                count, nearness = best[i + 1][j + 1]
                distance = abs(head[i][0].start - tail[j][0].start)
                best[i][j] = max(best[i][j], (count + 1, nearness - distance))
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


def quiet_place(head: Sequence[Spoken], tail: Sequence[Spoken], middle: float) -> float:
    """The frame nearest to the middle at which neither piece is inside a word; else the middle."""
    edges = [middle]
    edges += [word[-1].end for words in (head, tail) for word in words]
    edges += [word[0].start for words in (head, tail) for word in words]
    inside = [(word[0].start, word[-1].end) for words in (head, tail) for word in words]
    quiet = [edge for edge in edges if not any(start < edge < end for start, end in inside)]
    return min(quiet, key=lambda edge: abs(edge - middle), default=middle)
