"""Models under a budget of memory: fewer sequences at once, the same results, never a byte more."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.budget import Budget
from oscine.errors import MemoryBudgetError
from oscine.fleet.model import open_fleet

from .test_deterministic import CHECKPOINTS, sound

FAMILIES = ("whisper", "parakeet", "qwen3_tts")
REQUESTS = {"cpu": 6, "gpu": 3}


@pytest.fixture
def peak(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The most bytes that were counted at once since it was set to 0."""
    hold, most = Budget.hold, [0]

    def watched(budget: Budget, owner: Any, nbytes: int) -> None:
        hold(budget, owner, nbytes)
        most[0] = max(most[0], budget.used)

    monkeypatch.setattr(Budget, "hold", watched)
    yield most


def ask(model: Any, number: int) -> Any:
    """Tokens and words of a recording, or the samples of a text."""
    if hasattr(model, "speak"):
        text = f"Sentence {number} is here."
        return model.speak(text, voice="ryan", seed=number, max_frames=12 + 3 * number).samples
    heard = model.transcribe(sound(3 * number), vad_filter=False)
    return [(segment.tokens, segment.text) for segment in heard.segments]


def ask_at_once(model: Any, count: int) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda number: ask(model, number), range(count)))


def assert_same(results: list[Any], expected: list[Any]) -> None:
    for one, other in zip(results, expected, strict=True):
        if isinstance(one, np.ndarray):
            assert one.shape == other.shape and np.allclose(one, other, 0, 1e-4)
        else:
            assert one == other and one


def check_budgets(family: str, device: str, peak: list[int], shares: tuple[float, ...]) -> None:
    """Budgets between what one request after another takes and what all at once take."""
    count = REQUESTS[device]
    model = oscine.load(CHECKPOINTS[family], device)
    expected = [ask(model, number) for number in range(count)]
    alone, peak[0] = peak[0], 0
    assert_same(ask_at_once(model, count), expected)
    together, most = max(alone, peak[0]), model.engine.occupancy.max_sequences
    assert model.engine.max_slots > 1 and most > 1
    for share in shares:
        limit, peak[0] = alone + int(share * (together - alone)), 0
        model = oscine.load(CHECKPOINTS[family], device, memory=limit)
        assert_same(ask_at_once(model, count), expected)
        assert_same([ask(model, 0)], expected[:1])
        assert 0 < peak[0] <= limit


@pytest.mark.parametrize("family", FAMILIES)
def test_results_under_a_budget_are_those_without(family: str, peak: list[int]) -> None:
    check_budgets(family, "cpu", peak, (0.0, 0.3, 0.6, 1.0))


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_a_gpu_keeps_its_budget(family: str, peak: list[int]) -> None:
    check_budgets(family, "gpu", peak, (0.0, 0.5))


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_as_many_voices_speak_at_once_as_there_is_room_for(slots: int) -> None:
    """A voice more would take the memory of the voices beside that of one more."""
    model = oscine.load(CHECKPOINTS["qwen3_tts"], "cpu")
    one = model.runner.backend.budget.used
    model.runner.talker.reserve(slots, 1, 1)
    model.runner.codec.reserve(slots)
    needed = 2 * model.runner.backend.budget.used - one if slots > 1 else one + (one >> 3)
    expected = ask_at_once(model, 6)
    model = oscine.load(CHECKPOINTS["qwen3_tts"], "cpu", memory=needed)
    assert_same(ask_at_once(model, 6), expected)
    assert slots <= model.engine.occupancy.max_sequences <= 2 * slots - (slots == 1)


@pytest.mark.parametrize("family", [*FAMILIES, "ctc"])
def test_a_model_that_a_budget_cannot_hold_tells_what_it_needs(
    family: str, peak: list[int]
) -> None:
    oscine.load(CHECKPOINTS[family], "cpu")
    for device in ("auto", "cpu"):  # auto ends with NumPy, where there is software alone
        with pytest.raises(MemoryBudgetError, match=r"at least .* budget is 1KB; use a") as raised:
            oscine.load(CHECKPOINTS[family], device, memory="1KB")
        assert "\n" not in str(raised.value)
    needed = raised.value.needed
    assert needed <= peak[0] <= needed + 64
    oscine.load(CHECKPOINTS[family], "cpu", memory=needed + 64)
    with pytest.raises(MemoryBudgetError):
        oscine.load(CHECKPOINTS[family], "cpu", memory=needed // 2)


def test_a_text_that_a_budget_cannot_hold_ends_with_one_line_and_the_next_is_spoken() -> None:
    used = oscine.load(CHECKPOINTS["qwen3_tts"], "cpu").runner.backend.budget.used
    model = oscine.load(CHECKPOINTS["qwen3_tts"], "cpu", memory=used + (used >> 3))
    with pytest.raises(MemoryBudgetError, match="use a larger memory=") as raised:
        model.speak("A long text.", voice="ryan", seed=1, max_frames=6000)
    assert raised.value.needed > used and "\n" not in str(raised.value)
    assert len(ask(model, 0))


def test_each_process_of_a_fleet_has_the_budget() -> None:
    folder = str(CHECKPOINTS["parakeet"])
    with pytest.raises(MemoryBudgetError, match="budget is 1KB"):
        open_fleet(["cpu"], folder, "auto", offline=True, memory="1KB")
    with open_fleet(["cpu"], folder, "auto", offline=True, memory="1GB") as model:
        assert ask(model, 0)


@pytest.mark.parametrize("options", [{}, {"language": "en"}, {"beam_size": 5}], ids=repr)
def test_a_larger_budget_never_fails_where_a_smaller_one_does(options: dict[str, Any]) -> None:
    """And each attempt comes to an end, also where two sequences fit and one does not start."""
    path, fits = CHECKPOINTS["whisper"], []
    with pytest.raises(MemoryBudgetError) as told:
        oscine.load(path, device="cpu", offline=True, memory=1)
    needed = told.value.needed
    for budget in range(needed + 20_000, 2 * needed, 40_000):
        model = oscine.load(path, device="cpu", offline=True, memory=budget)
        try:
            fits.append(bool(model.transcribe(sound(3), vad_filter=False, **options).segments))
        except MemoryBudgetError:
            fits.append(False)
        assert model.engine.waiting == model.engine.running == 0
    assert fits == sorted(fits) and fits[-1] and not fits[0]
