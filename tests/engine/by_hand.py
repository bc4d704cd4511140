"""An engine whose iterations a test runs itself, and sequences that arrive at random."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from oscine.engine.scheduler import Engine
from oscine.engine.sequence import Caller, Priority, Sequence
from tests.engine.counting import Count, Pass, Runner, audio


class ByHand(Engine[Runner]):
    """Turns are taken when the test says so."""

    def __init__(self, runner: Runner, **options: Any) -> None:
        super().__init__(runner, **options)
        self._device_thread = self  # type: ignore[assignment]

    is_current = is_shared = False

    def wake(self, engine: object) -> None:
        """No thread."""

    def until_idle(self) -> None:
        for _ in range(10_000):
            if not self.has_work:
                return
            self.run_iteration()
        raise AssertionError("the engine does not come to an end")


def check_flat(engine: ByHand) -> None:
    """Nothing of a sequence is left behind."""
    assert engine._slots.in_use == 0
    assert engine._cache.in_use == 0
    assert engine.running == engine.waiting == 0
    for executor in engine.runner.executors.values():
        assert not hasattr(executor, "rows") or executor.rows["done"].all()


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[int, Sequence[int]]]:
    """Sequences, and the turn before which each is submitted."""
    inputs = [audio(number) for number in range(draw(st.integers(1, 4)))]
    callers = [Caller(Priority(draw(st.integers(0, 2)))) for _ in range(3)]
    found: list[tuple[int, Sequence[int]]] = []
    for number in range(draw(st.integers(1, 14))):
        heard = draw(st.sampled_from([None, *inputs]))
        sequence: Sequence[int]
        if heard is not None and draw(st.booleans()):
            sequence = Pass(number, heard)
        else:
            rows = draw(st.sampled_from([1, 1, 1, 2, 3]))
            sequence = Count(100 * number, draw(st.integers(0, 25)), heard, rows)
        sequence.caller = draw(st.sampled_from(callers))
        found.append((draw(st.integers(0, 12)), sequence))
    return sorted(found, key=lambda one: one[0])


def play(
    engine: ByHand,
    plan: list[tuple[int, Sequence[int]]],
    cancelled: dict[int, Sequence[int]] | None = None,
) -> None:
    """Submit each at its turn, cancel some, go on to the end."""
    for turn in range(40):
        for at, sequence in plan:
            if at == turn:
                engine.submit(sequence)
        if cancelled and turn in cancelled:
            cancelled[turn].cancel()
        engine.run_iteration()
    engine.until_idle()
