"""The size of a pass over several inputs, where passes are recorded for a few sizes only."""

from __future__ import annotations

from collections.abc import Callable

MAX_PADDING = 1 / 8  # of a pass


def pass_size(count: int, largest: int, bucket: Callable[[int], int]) -> int:
    """How many of `count` inputs the next pass takes: at most `largest`.

    A pass over n inputs is recorded for `bucket(n)` of them (Backend.bucket_rows), and those that
    are missing are padding, which takes as long as inputs do. So inputs are divided among smaller
    passes where one pass had more padding than MAX_PADDING.
    """
    size = min(count, largest)
    recorded = bucket(size)
    return recorded // 2 if recorded - size > MAX_PADDING * recorded else size
