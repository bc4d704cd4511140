"""History and prompts against the slices openai-whisper writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.errors import UsageError
from oscine.models.whisper.prompt import PromptHistory, build_prompt, truncate_prefix

IDS = st.lists(st.integers(0, 50), max_size=30)


@given(IDS, st.lists(st.tuples(IDS, st.booleans()), max_size=6), st.integers(1, 20))
def test_history_is_the_latest_since_the_last_reset(
    initial: list[int], windows: list[tuple[list[int], bool]], room: int
) -> None:
    history = PromptHistory(initial, room, carry_initial_prompt=False)
    all_tokens, reset = list(initial), 0
    for tokens, forget in windows:
        history.extend(tokens)
        all_tokens += tokens
        if forget:
            history.reset()
            reset = len(all_tokens)
        assert history.prompt() == tuple(all_tokens[reset:][-room:])


@given(IDS, st.lists(st.tuples(IDS, st.booleans()), max_size=6), st.integers(1, 20))
def test_carried_prompt_comes_first_and_history_fills_the_room(
    initial: list[int], windows: list[tuple[list[int], bool]], room: int
) -> None:
    history = PromptHistory(initial, room, carry_initial_prompt=True)
    recent: list[int] = []
    for tokens, forget in windows:
        history.extend(tokens)
        recent += tokens
        if forget:
            history.reset()
            recent = []
        prompt = history.prompt()
        kept = initial[-room:]
        assert len(prompt) == min(room, len(kept) + len(recent))
        assert list(prompt[: len(kept)]) == kept
        assert list(prompt[len(kept) :]) == recent[len(recent) - len(prompt) + len(kept) :]


def test_prompt_order_and_where_it_starts() -> None:
    assert build_prompt((1, 2), (50, 51), (7,), 99, 448) == ((99, 1, 2, 50, 51, 7), 3)
    assert build_prompt((), (50, 51), (), 99, 448) == ((50, 51), 0)


@given(IDS, IDS, st.integers(40, 80))
def test_a_prompt_leaves_room_to_pick(history: list[int], prefix: list[int], context: int) -> None:
    prompt, sot = build_prompt(history, (50, 51), prefix, 99, context)
    assert len(prompt) < context
    assert prompt[sot : sot + 2 + len(prefix)] == (50, 51, *prefix)


def test_prefix_shares_half_the_context_with_what_follows() -> None:
    long = tuple(range(300))
    assert truncate_prefix(long, 448, None) == long[-223:]
    assert truncate_prefix(long, 448, 200) == long[-24:]
    assert truncate_prefix((), 448, 224) == ()
    with pytest.raises(UsageError, match="sample_len=224 leaves no room for a prefix"):
        truncate_prefix((1,), 448, 224)
