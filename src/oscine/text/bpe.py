"""Byte-pair merging in n log n: a heap of pairs over a doubly linked list of symbols."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import AnyStr


def bpe_merge(
    symbols: Sequence[AnyStr], ranks: Mapping[AnyStr, float], unmergeable: Collection[AnyStr] = ()
) -> list[AnyStr]:
    """Merge adjacent symbols until no pair has a rank.

    The pair whose merged symbol has the lowest rank is merged first, the leftmost of equals.
    Symbols in `unmergeable` are never merged. Source: openai/tiktoken tiktoken/_educational.py and
    google/sentencepiece src/bpe_model.cc.
    """
    merged: list[AnyStr | None] = list(symbols)
    next_index = list(range(1, len(merged) + 1))
    previous_index = list(range(-1, len(merged) - 1))

    def pair(left: int) -> tuple[float, int, AnyStr, AnyStr] | None:
        right = next_index[left]
        first, second = merged[left], merged[right] if right < len(merged) else None
        if first is None or second is None or first in unmergeable or second in unmergeable:
            return None
        rank = ranks.get(first + second)
        return None if rank is None else (rank, left, first, second)

    heap = [found for left in range(len(merged) - 1) if (found := pair(left))]
    heapify(heap)
    while heap:
        _, left, first, second = heappop(heap)
        right = next_index[left]
        if merged[left] != first or right >= len(merged) or merged[right] != second:
            continue  # one of the two has been merged since
        merged[left], merged[right] = first + second, None
        next_index[left] = next_index[right]
        if next_index[left] < len(merged):
            previous_index[next_index[left]] = left
        for start in (previous_index[left], left):
            if start >= 0 and (found := pair(start)):
                heappush(heap, found)
    return [symbol for symbol in merged if symbol is not None]
