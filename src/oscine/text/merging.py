"""Byte-pair merging of a word's symbols, in n log n: a heap of pairs over a list with links."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import AnyStr


def merge(
    symbols: Sequence[AnyStr], ranks: Mapping[AnyStr, float], frozen: Collection[AnyStr] = ()
) -> list[AnyStr]:
    """Join neighbours until no pair has a rank.

    The pair whose joined symbol has the lowest rank is joined first, the leftmost of equals.
    Symbols in `frozen` are never joined. Source: openai/tiktoken tiktoken/_educational.py and
    google/sentencepiece src/bpe_model.cc.
    """
    merged: list[AnyStr | None] = list(symbols)
    following = list(range(1, len(merged) + 1))
    before = list(range(-1, len(merged) - 1))

    def pair(left: int) -> tuple[float, int, AnyStr, AnyStr] | None:
        right = following[left]
        first, second = merged[left], merged[right] if right < len(merged) else None
        if first is None or second is None or first in frozen or second in frozen:
            return None
        rank = ranks.get(first + second)
        return None if rank is None else (rank, left, first, second)

    heap = [found for left in range(len(merged) - 1) if (found := pair(left))]
    heapify(heap)
    while heap:
        _, left, first, second = heappop(heap)
        right = following[left]
        if merged[left] != first or right >= len(merged) or merged[right] != second:
            continue  # one of the two has been joined since
        merged[left], merged[right] = first + second, None
        following[left] = following[right]
        if following[left] < len(merged):
            before[following[left]] = left
        for start in (before[left], left):
            if start >= 0 and (found := pair(start)):
                heappush(heap, found)
    return [symbol for symbol in merged if symbol is not None]
