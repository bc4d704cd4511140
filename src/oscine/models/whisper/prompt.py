"""The decoder's prompt: text of earlier windows, start-of-transcript tokens, forced prefix.

Source: whisper/transcribe.py (all_tokens, prompt_reset_since), decoding.py (_get_initial_tokens).
"""

from __future__ import annotations

from collections.abc import Sequence

from oscine.errors import UsageError


class PromptHistory:
    """The tokens of earlier windows, after those of the initial prompt.

    `max_tokens`: how many a prompt may contain, half the text context less one. With
    `carry_initial_prompt` each prompt starts with the initial one, and history gets the rest.
    """

    def __init__(self, initial: Sequence[int], max_tokens: int, carry_initial_prompt: bool) -> None:
        self._initial = tuple(initial)
        self._tokens = list(initial)
        self._max_tokens = max_tokens
        self._carry_initial_prompt = carry_initial_prompt
        self._reset_since = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Append the tokens of a segment, including timestamps."""
        self._tokens.extend(tokens)

    def reset(self) -> None:
        """Leave the tokens so far out of later prompts."""
        self._reset_since = len(self._tokens)

    def prompt(self) -> tuple[int, ...]:
        """The latest tokens, at most `max_tokens`."""
        if self._max_tokens < 1:  # hotwords take all of it
            return ()
        if not self._carry_initial_prompt:
            return tuple(self._tokens[self._reset_since :][-self._max_tokens :])
        kept = self._initial[-self._max_tokens :]
        recent = self._tokens[max(len(self._initial), self._reset_since) :]
        remaining = self._max_tokens - len(kept)
        return (*kept, *recent[max(0, len(recent) - remaining) :])


def truncate_prefix(
    prefix: Sequence[int], n_text_ctx: int, sample_len: int | None
) -> tuple[int, ...]:
    """The end of a forced prefix that leaves room for `sample_len` new tokens.

    Prefix and new tokens share half the text context. Raises UsageError if no room is left.
    """
    max_tokens = n_text_ctx // 2 - (sample_len or 1)
    if prefix and max_tokens < 1:
        raise UsageError(
            f"sample_len={sample_len} leaves no room for a prefix; together they have "
            f"{n_text_ctx // 2} tokens"
        )
    return tuple(prefix[-max_tokens:]) if prefix else ()


def build_prompt(
    history: Sequence[int],
    sot_sequence: Sequence[int],
    prefix: Sequence[int],
    sot_prev: int,
    n_text_ctx: int,
) -> tuple[tuple[int, ...], int]:
    """-> all forced tokens, and the index of <|startoftranscript|> among them.

    History is truncated so that the text context has room for at least one new token.
    """
    max_history = n_text_ctx - len(sot_sequence) - len(prefix) - 2
    kept = tuple(history[-max_history:]) if history and max_history > 0 else ()
    before = (sot_prev, *kept) if kept else ()
    return (*before, *sot_sequence, *prefix), len(before)
