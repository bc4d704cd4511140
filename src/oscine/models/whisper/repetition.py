"""Repetition loops in decoded text: detected while decoding, and removed afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

MAX_TOKEN_REPEATS = 8  # of one token in a row, after which a window ends: more is never speech
MAX_PHRASE_TOKENS = 60  # length of a phrase that may repeat
MIN_REPEATS = 3  # of a phrase in a row make a loop,
MIN_LOOP_TOKENS = 12  # if they have this many tokens together: "no, no, no" is speech
MIN_ENDLESS_TOKENS = 32  # of a loop that ends decoding; it is also half of the text or more
MIN_ENDLESS_REPEATS = 4  # of its phrase


def remove_loops(
    tokens: Sequence[int], eot: int, timestamp_begin: int
) -> tuple[tuple[int, ...], bool]:
    """Reduce each phrase that repeats MIN_REPEATS times in a row to one; -> tokens, any removed.

    Phrases consist of text ids (below `eot`); timestamps between them are ignored. A single token
    is a loop from MAX_TOKEN_REPEATS on. Of timestamps that are left without text between them, the
    first and the last stay: one that closes a segment and one that opens the next.
    """
    indices = [index for index, token in enumerate(tokens) if token < eot]
    text = [tokens[index] for index in indices]
    dropped: set[int] = set()
    start = 0
    while start < len(text):
        length, stop = _find_loop(text, start)
        if length:
            dropped.update(indices[start + length : stop])
            start = stop
        else:
            start += 1
    if not dropped:
        return tuple(tokens), False
    kept = [token for index, token in enumerate(tokens) if index not in dropped]
    return tuple(_drop_empty_timestamp_pairs(kept, timestamp_begin)), True


def ends_in_loop(tokens: Sequence[int], eot: int) -> bool:
    """Whether the text ids (below `eot`) end in a loop that only max_new_tokens would end.

    The loop is at least half of the text, so that the window counts as repetitive in any case.
    """
    text = [token for token in tokens if token < eot]
    if len(text) < MIN_ENDLESS_TOKENS:
        return False
    for length in range(1, min(MAX_PHRASE_TOKENS, len(text) // MIN_ENDLESS_REPEATS) + 1):
        start = len(text) - length
        while start and text[start - 1] == text[start - 1 + length]:
            start -= 1
        looping = len(text) - start
        if looping >= max(MIN_ENDLESS_TOKENS, MIN_ENDLESS_REPEATS * length, len(text) / 2):
            return True
    return False


def _find_loop(text: Sequence[int], start: int) -> tuple[int, int]:
    """Length of the shortest phrase that repeats from `start`, and the loop's end; else (0, 0)."""
    for length in range(1, min(MAX_PHRASE_TOKENS, (len(text) - start) // MIN_REPEATS) + 1):
        stop = start + length
        while stop < len(text) and text[stop] == text[stop - length]:
            stop += 1
        minimum = MAX_TOKEN_REPEATS if length == 1 else max(MIN_LOOP_TOKENS, MIN_REPEATS * length)
        if stop - start >= minimum:
            return length, stop
    return 0, 0


def _drop_empty_timestamp_pairs(tokens: Sequence[int], timestamp_begin: int) -> list[int]:
    """The tokens with at most two timestamps in a row, and at most one at the end."""
    kept: list[int] = []
    for is_timestamp, run in groupby(tokens, lambda token: token >= timestamp_begin):
        part = list(run)
        if is_timestamp and len(part) > 2:
            part = [part[0], part[-1]]
        kept += part
    while kept[-2:] and all(token >= timestamp_begin for token in kept[-2:]) and len(kept) > 1:
        kept.pop()  # no segment opens at the end
    return kept
