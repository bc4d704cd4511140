"""Text that runs in circles: found, and cut to its first round."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

REPEAT_LIMIT = 8  # equal tokens in a row that end a window: never speech
LONGEST_PHRASE = 60  # tokens of a phrase that may be said again and again
ROUNDS = 3  # in a row make a loop,
LOOP = 12  # if they are so many tokens: "no, no, no" is speech;
# of one token alone, as many as end a window.
ENDLESS = 32  # text tokens of a loop, at least half of the text, after which decoding stops
ENDLESS_ROUNDS = 4  # of its phrase


def remove_loops(
    tokens: Sequence[int], end: int, timestamp_begin: int
) -> tuple[tuple[int, ...], bool]:
    """The tokens with every phrase said only once that came ROUNDS times in a row; whether any did.

    Phrases are of text ids (below `end`), whatever timestamps are among them. Of timestamps that
    then have no text between them, the first and the last stay: a closing and an opening one.
    """
    places = [at for at, token in enumerate(tokens) if token < end]
    text = [tokens[at] for at in places]
    dropped: set[int] = set()
    start = 0
    while start < len(text):
        length, stop = _loop(text, start)
        if length:
            dropped.update(places[start + length : stop])
            start = stop
        else:
            start += 1
    if not dropped:
        return tuple(tokens), False
    kept = [token for at, token in enumerate(tokens) if at not in dropped]
    return tuple(_without_empty_pairs(kept, timestamp_begin)), True


def is_endless(tokens: Sequence[int], end: int) -> bool:
    """Whether the text ids (below `end`) end in a loop that only the limit of tokens would stop.

    The loop must be at least half of the text, so that the window counts as repetitive anyway.
    """
    text = [token for token in tokens if token < end]
    if len(text) < ENDLESS:
        return False
    for length in range(1, min(LONGEST_PHRASE, len(text) // ENDLESS_ROUNDS) + 1):
        start = len(text) - length
        while start and text[start - 1] == text[start - 1 + length]:
            start -= 1
        looping = len(text) - start
        if looping >= max(ENDLESS, ENDLESS_ROUNDS * length, len(text) / 2):
            return True
    return False


def _loop(text: Sequence[int], start: int) -> tuple[int, int]:
    """The shortest phrase that is said again and again from `start`, and where that ends; 0, 0."""
    for length in range(1, min(LONGEST_PHRASE, (len(text) - start) // ROUNDS) + 1):
        stop = start + length
        while stop < len(text) and text[stop] == text[stop - length]:
            stop += 1
        least = REPEAT_LIMIT if length == 1 else max(LOOP, ROUNDS * length)
        if stop - start >= least:
            return length, stop
    return 0, 0


def _without_empty_pairs(tokens: Sequence[int], timestamp_begin: int) -> list[int]:
    kept: list[int] = []
    for is_stamp, run in groupby(tokens, lambda token: token >= timestamp_begin):
        part = list(run)
        if is_stamp and len(part) > 2:
            part = [part[0], part[-1]]
        kept += part
    while kept[-2:] and all(token >= timestamp_begin for token in kept[-2:]) and len(kept) > 1:
        kept.pop()  # nothing opens at the end
    return kept
