"""What the decoder is told before it begins: earlier text, and the words it must start with.

Source: whisper/transcribe.py (all_tokens, prompt_reset_since), decoding.py (_get_initial_tokens).
"""

from __future__ import annotations

from collections.abc import Sequence

from oscine.errors import UsageError


class History:
    """Tokens of the windows before, begun with the initial prompt.

    `room` is how many of them a prompt may hold: half the text context less one. With `carry` every
    prompt begins with the initial one, and history gets what room is left.
    """

    def __init__(self, initial: Sequence[int], room: int, carry: bool) -> None:
        self._initial = tuple(initial)
        self._tokens = list(initial)
        self._room = room
        self._carry = carry
        self._since = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Add what a segment says, timestamps among it."""
        self._tokens.extend(tokens)

    def forget(self) -> None:
        """Keep what is here out of the prompts that follow."""
        self._since = len(self._tokens)

    def prompt(self) -> tuple[int, ...]:
        """The latest tokens that there is room for."""
        if self._room < 1:  # hotwords took all of it
            return ()
        if not self._carry:
            return tuple(self._tokens[self._since :][-self._room :])
        kept = self._initial[-self._room :]
        recent = self._tokens[max(len(self._initial), self._since) :]
        left = self._room - len(kept)
        return (*kept, *recent[max(0, len(recent) - left) :])


def fit_prefix(prefix: Sequence[int], text_context: int, sample_len: int | None) -> tuple[int, ...]:
    """The end of the forced beginning that leaves room for `sample_len` more tokens.

    Prefix and what follows share half the text context. Raises UsageError if nothing is left.
    """
    room = text_context // 2 - (sample_len or 1)
    if prefix and room < 1:
        raise UsageError(
            f"sample_len={sample_len} leaves no room for a prefix; together they have "
            f"{text_context // 2} tokens"
        )
    return tuple(prefix[-room:]) if prefix else ()


def build_prompt(
    history: Sequence[int],
    start: Sequence[int],
    prefix: Sequence[int],
    start_of_previous: int,
    text_context: int,
) -> tuple[tuple[int, ...], int]:
    """-> all forced tokens, the index of <|startoftranscript|> among them.

    History gives way where the text context would leave nothing to pick.
    """
    room = text_context - len(start) - len(prefix) - 2
    kept = tuple(history[-room:]) if history and room > 0 else ()
    before = (start_of_previous, *kept) if kept else ()
    return (*before, *start, *prefix), len(before)
