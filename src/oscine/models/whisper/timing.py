"""Word times in a window: dynamic time warping over the cross-attention of alignment heads.

Source: whisper/timing.py (find_alignment, median_filter, dtw_cpu) and whisper/tokenizer.py
(split_to_word_tokens), vectorised.
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
from oscine.text.whisper import WhisperTokenizer

POSITIONS_PER_SECOND = 50
MEDIAN_FILTER_WIDTH = 7
LANGUAGES_WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})

Matrix = NDArray[np.float32]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WordTiming:
    """A word of a window; times in seconds from the start of the window."""

    word: str
    tokens: tuple[int, ...]
    start: float
    end: float
    probability: float


def find_alignment(
    alignment: Alignment,
    text_tokens: Sequence[int],
    start: int,
    tokenizer: WhisperTokenizer,
    language: str,
) -> list[WordTiming]:
    """The words of `text_tokens`, which begin at index `start` of the forced tokens, with times.

    A word lasts from the first position of its first token on the warping path to that of the
    next word. Without positions (weights [A, R, 0]) all times are 0.0, which add_word_timestamps
    treats as unknown. Raises ValueError unless the alignment has a row for each token before
    `start`, of the text, and for end-of-text.
    """
    rows = start + len(text_tokens) + 1
    if alignment.weights.shape[1] != rows:
        raise ValueError(f"{alignment.weights.shape[1]} rows of attention for {rows} tokens")
    if not text_tokens:
        return []
    words = split_to_word_tokens(text_tokens, tokenizer, language)
    bounds = [0, *accumulate(len(tokens) for _, tokens in words)]
    # Row r is the attention with which token r + 1 was predicted.
    matrix = attention_matrix(alignment.weights, start - 1)
    seconds = token_starts(matrix) / POSITIONS_PER_SECOND
    probabilities = alignment.probabilities[start - 1 :]
    return [
        WordTiming(
            word=word,
            tokens=tokens,
            start=float(seconds[first]),
            end=float(seconds[after]),
            probability=float(probabilities[first:after].mean()),
        )
        for (word, tokens), (first, after) in zip(words, pairwise(bounds), strict=True)
    ]


def attention_matrix(weights: Matrix, first: int) -> Matrix:
    """Weights [heads, R, frames] reduced to [R - 1 - first, frames], for rows first to R - 2.

    Each column of a head is normalised to mean 0 and standard deviation 1 over all R tokens (0 if
    all are equal), so that frames which attract every token lose their weight. Rows are then
    median-filtered over MEDIAN_FILTER_WIDTH frames, and averaged over the heads.
    """
    heads, rows, frames = weights.shape
    total = np.zeros((rows - 1 - first, frames), np.float32)
    for head in weights:  # one by one, so that each stays in the CPU's cache
        # With the first row subtracted, equal values are exactly 0, however the mean is rounded.
        shifted = head - head[0]
        shifted -= shifted.mean(axis=0)
        deviation = np.sqrt(np.square(shifted).mean(axis=0))
        scale = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        total += median_filter(shifted[first:-1] * scale)
    total /= heads
    return total


def median_filter(rows: Matrix) -> Matrix:
    """Median filter of width 7 along rows, reflected at the ends; unchanged if frames <= 3.

    A window consists of two triples and the value between them. Triples are sorted once for all
    windows; the third and fourth of their six values follow by rank, and the median is the middle
    value clamped between these two.
    """
    half = MEDIAN_FILTER_WIDTH // 2
    frames = rows.shape[-1]
    if frames <= half:
        return rows
    padded = np.pad(rows, ((0, 0), (half, half)), mode="reflect")
    one, two, three = (padded[:, shift : shift + frames + half + 1] for shift in range(half))
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


def dtw(cost: Matrix) -> tuple[Indices, Indices]:
    """Dynamic time warping: rows and columns of the cheapest monotonic path through `cost` [N, M].

    Ties are resolved as in whisper/timing.py: a cell is reached from the diagonal only if that is
    cheaper than both others, from the row above only if that is, else from the column before (even
    if that costs more). Sums are float32. The cells of an anti-diagonal do not depend on each
    other, so each anti-diagonal is computed as one array.
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
    return _backtrace(sums, height, width)


def _backtrace(sums: Matrix, height: int, width: int) -> tuple[Indices, Indices]:
    """The path from the last cell back to the first, by the same rule as the sums."""
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


def token_starts(matrix: Matrix) -> Indices:
    """The first frame [N] of each row of attention [N, frames] on the warping path."""
    if not matrix.shape[1]:
        return np.zeros(len(matrix), np.int64)
    rows, columns = dtw(-matrix)
    return columns[np.searchsorted(rows, np.arange(len(matrix)))]


def split_to_word_tokens(
    tokens: Sequence[int], tokenizer: WhisperTokenizer, language: str
) -> list[tuple[str, tuple[int, ...]]]:
    """Split text tokens into words with their tokens; each token belongs to one word.

    Languages written without spaces are split wherever a token completes a character, others
    before a space and around ASCII punctuation. Tokens that share a character stay together; an
    incomplete character at the end is left out, as in Tokenizer.decode_parts.
    """
    units = _split_on_unicode(tokens, tokenizer.token_bytes)
    if language in LANGUAGES_WITHOUT_SPACES:
        return units
    words: list[tuple[str, tuple[int, ...]]] = []
    for text, ids in units:
        if not words or text.startswith(" ") or text.strip() in string.punctuation:
            words.append((text, ids))
        else:
            before, its = words.pop()
            words.append((before + text, its + ids))
    return words


def _split_on_unicode(
    tokens: Sequence[int], pieces: Sequence[bytes]
) -> list[tuple[str, tuple[int, ...]]]:
    """Split tokens into the shortest runs that consist of whole characters."""
    units: list[tuple[str, tuple[int, ...]]] = []
    first, data = 0, b""
    for after, token in enumerate(tokens, start=1):
        data += pieces[token]
        text, used = utf_8_decode(data, "replace", False)
        if used < len(data):
            following = b"".join(pieces[id] for id in tokens[after : after + 3])
            if not _is_incomplete(data[used:], following):
                continue
            text = data.decode("utf-8", "replace")
        if text:
            units.append((text, tuple(tokens[first:after])))
            first, data = after, b""
    if first < len(tokens):  # tokens without text belong to the word before them
        text, _ = utf_8_decode(data, "replace", False)
        before, its = units.pop() if units and not text else ("", ())
        units.append((before + text, its + tuple(tokens[first:])))
    return units


def _is_incomplete(data: bytes, following: bytes) -> bool:
    """Whether `data` starts a character that `following` does not complete."""
    try:
        utf_8_decode((data + following)[:4], "strict", False)
    except UnicodeDecodeError as error:
        return error.start == 0 and error.end <= len(data)
    return False
