"""When each word of a window is spoken, from the cross-attention of its alignment heads.

Source: whisper/timing.py (find_alignment, median_filter, dtw_cpu) and whisper/tokenizer.py
(split_to_word_tokens), as formulas over whole arrays.
"""

from __future__ import annotations

import string
from codecs import utf_8_decode
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from oscine.models.whisper.sequences import Alignment
from oscine.text.whisper import Tokenizer

POSITIONS_PER_SECOND = 50
MEDIAN_WIDTH = 7
WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})

Matrix = NDArray[np.float32]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WordTiming:
    """A word of a window; times in seconds from the window's beginning."""

    word: str
    tokens: tuple[int, ...]
    start: float
    end: float
    probability: float


def align_words(
    alignment: Alignment,
    text_tokens: Sequence[int],
    start: int,
    tokenizer: Tokenizer,
    language: str,
) -> list[WordTiming]:
    """Words of `text_tokens`, which stand at `start` among the forced tokens.

    A word lasts from the first position of its first token on the warping path to that of the
    next word's. Without any position (weights [A, R, 0]) all times are 0.0, which
    words.add_words takes for "not known". Raises ValueError if the alignment has another number
    of rows than start, text and end-of-text.
    """
    rows = start + len(text_tokens) + 1
    if alignment.weights.shape[1] != rows:
        raise ValueError(f"{alignment.weights.shape[1]} rows of attention for {rows} tokens")
    if not text_tokens:
        return []
    words = split_to_words(text_tokens, tokenizer, language)
    bounds = [0, *accumulate(len(tokens) for _, tokens in words)]
    # Row r says where the model listened to pick token r + 1.
    matrix = attention_matrix(alignment.weights, start - 1)
    seconds = first_positions(matrix) / POSITIONS_PER_SECOND
    chances = alignment.probabilities[start - 1 :]
    return [
        WordTiming(
            word=word,
            tokens=tokens,
            start=float(seconds[first]),
            end=float(seconds[after]),
            probability=float(chances[first:after].mean()),
        )
        for (word, tokens), (first, after) in zip(words, pairwise(bounds), strict=True)
    ]


def attention_matrix(weights: Matrix, first: int) -> Matrix:
    """Weights [heads, R, frames] as one matrix [R - 1 - first, frames] of rows first to R - 2.

    A head's column is scaled to mean 0 and deviation 1 over all R tokens (0 where all are
    equal), so that what is loud for every token says nothing; then the mean over the heads of
    the median over MEDIAN_WIDTH frames.
    """
    heads, rows, frames = weights.shape
    total = np.zeros((rows - 1 - first, frames), np.float32)
    for head in weights:  # one at a time: all passes over it stay in the cache
        # Less the first row, equal values are exactly 0, whatever their mean is rounded to.
        shifted = head - head[0]
        shifted -= shifted.mean(axis=0)
        deviation = np.sqrt(np.square(shifted).mean(axis=0))
        scale = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        total += median_filter(shifted[first:-1] * scale)
    total /= heads
    return total


def median_filter(rows: Matrix) -> Matrix:
    """Median over 7 neighbours in a row, reflected at its ends; as it is where frames <= 3.

    Two sorted triples and the one between them: the triples are sorted once for all windows, the
    third and fourth of their six values come by rank, and the median is the middle one held
    between these two.
    """
    half = MEDIAN_WIDTH // 2
    frames = rows.shape[-1]
    if frames <= half:
        return rows
    padded = np.pad(rows, ((0, 0), (half, half)), mode="reflect")
    one, two, three = (padded[:, at : at + frames + half + 1] for at in range(half))
    low, high = np.minimum(one, two), np.maximum(one, two)
    middle = np.minimum(high, three)
    np.maximum(high, three, out=high)
    low, middle = np.minimum(low, middle), np.maximum(low, middle)
    (a1, b1), (a2, b2), (a3, b3) = (
        (triple[:, :frames], triple[:, half + 1 :]) for triple in (low, middle, high)
    )
    third, fourth = np.minimum(a3, b3), np.maximum(a1, b1)
    np.minimum(third, np.maximum(a1, b2), out=third)
    np.minimum(third, np.maximum(a2, b1), out=third)
    np.maximum(fourth, np.minimum(a3, b2), out=fourth)
    np.maximum(fourth, np.minimum(a2, b3), out=fourth)
    np.minimum(fourth, padded[:, half : half + frames], out=fourth)
    return np.maximum(third, fourth)


def warp(cost: Matrix) -> tuple[Indices, Indices]:
    """The cheapest monotonic path through `cost` [N, M]: row and column of each of its cells.

    Ties as in whisper/timing.py: a cell comes from the diagonal only if that is cheaper than both
    others, from the row above only if that is, else from the column before (even if that costs
    more). Sums are float32. All cells of an anti-diagonal are independent of one another, so
    each is one step over arrays.
    """
    height, width = cost.shape
    if not cost.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # [d, i] is cell (i - 1, d - i - 1) of `cost`: a border of infinity above and on the left.
    sums = np.full((height + width + 1, height + 1), np.inf, np.float32)
    for row in range(height):
        sums[row + 2 : row + 2 + width, row + 1] = cost[row]
    sums[0, 0] = 0
    limit, best = np.empty(height, np.float32), np.empty(height, np.float32)
    is_less = np.empty(height, np.bool_)
    for at in range(2, height + width + 1):
        diagonal, above, before = sums[at - 2, :-1], sums[at - 1, :-1], sums[at - 1, 1:]
        best[:] = before
        np.minimum(diagonal, before, out=limit)
        np.copyto(best, above, where=np.less(above, limit, out=is_less))
        np.minimum(above, before, out=limit)
        np.copyto(best, diagonal, where=np.less(diagonal, limit, out=is_less))
        sums[at, 1:] += best
    return _trace_back(sums, height, width)


def _trace_back(sums: Matrix, height: int, width: int) -> tuple[Indices, Indices]:
    """From the last cell to the first, by the rule that made the sums."""
    row, column = height, width
    path = [(row - 1, column - 1)]
    while row > 1 or column > 1:
        at = row + column
        diagonal, above, before = sums[at - 2, row - 1], sums[at - 1, row - 1], sums[at - 1, row]
        if row == 1:
            column -= 1
        elif column == 1:
            row -= 1
        elif diagonal < above and diagonal < before:
            row, column = row - 1, column - 1
        elif above < diagonal and above < before:
            row -= 1
        else:
            column -= 1
        path.append((row - 1, column - 1))
    rows, columns = np.array(path[::-1], np.int64).T
    return rows, columns


def first_positions(matrix: Matrix) -> Indices:
    """For each row of attention [N, frames], the first frame of its part of the path; [N]."""
    if not matrix.shape[1]:
        return np.zeros(len(matrix), np.int64)
    rows, columns = warp(-matrix)
    return columns[np.searchsorted(rows, np.arange(len(matrix)))]


def split_to_words(
    tokens: Sequence[int], tokenizer: Tokenizer, language: str
) -> list[tuple[str, tuple[int, ...]]]:
    """Text tokens as words with their tokens; every token is in one word.

    Languages written without spaces are split wherever a token ends a character, others before a
    space and around ASCII punctuation. Tokens that share a character stay together; the
    beginning of one that the text does not finish is left out, as Tokenizer.decode_parts does.
    """
    units = _units(tokens, tokenizer.pieces)
    if language in WITHOUT_SPACES:
        return units
    words: list[tuple[str, tuple[int, ...]]] = []
    for text, ids in units:
        if not words or text.startswith(" ") or text.strip() in string.punctuation:
            words.append((text, ids))
        else:
            before, its = words.pop()
            words.append((before + text, its + ids))
    return words


def _units(tokens: Sequence[int], pieces: Sequence[bytes]) -> list[tuple[str, tuple[int, ...]]]:
    """The shortest runs of tokens that end where a character ends."""
    units: list[tuple[str, tuple[int, ...]]] = []
    first, data = 0, b""
    for after, token in enumerate(tokens, start=1):
        data += pieces[token]
        text, used = utf_8_decode(data, "replace", False)
        if used < len(data):
            following = b"".join(pieces[id] for id in tokens[after : after + 3])
            if not _is_broken(data[used:], following):
                continue
            text = data.decode("utf-8", "replace")
        if text:
            units.append((text, tuple(tokens[first:after])))
            first, data = after, b""
    if first < len(tokens):  # what no text comes of goes with the text before it
        text, _ = utf_8_decode(data, "replace", False)
        before, its = units.pop() if units and not text else ("", ())
        units.append((before + text, its + tuple(tokens[first:])))
    return units


def _is_broken(data: bytes, following: bytes) -> bool:
    """Whether `data`, the beginning of a character, is all there is of it."""
    try:
        utf_8_decode((data + following)[:4], "strict", False)
    except UnicodeDecodeError as error:
        return error.start == 0 and error.end <= len(data)
    return False
