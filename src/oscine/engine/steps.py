"""Requests as generators: each yields sequences, receives their results, and returns its own.

`result = yield sequence` is a step on the device; `yield from` takes the steps of a part. So a
request reads from top to bottom, and the same code runs alone or beside others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any, Generic, TypeAlias, TypeVar

from oscine.engine.sequence import POLL, Check, Sequence

T = TypeVar("T")

#: Yields sequences, receives the result of each, returns a T. Errors of a sequence are thrown in.
Steps: TypeAlias = Generator[Sequence[Any], Any, T]
#: Hands a sequence to an engine and returns at once.
Submit: TypeAlias = Callable[[Sequence[Any]], object]


def run(submit: Submit, steps: Steps[T], check: Check | None = None) -> T:
    """What the steps return, their sequences computed one after another.

    `check` is called before and during each wait, and may raise to stop. Raises what the steps
    raise.
    """
    (result,) = run_side_by_side(submit, [steps], 1, check)
    return result


def run_side_by_side(
    submit: Submit, many: Iterable[Steps[T]], most: int, check: Check | None = None
) -> Generator[T, None, None]:
    """What each of many steps returns, in their order, up to `most` of them under way at once.

    Steps that end early make place for the next ones, and their result waits for its turn. An
    error is raised in its turn too, after the results before it; no steps are begun after it.
    `check` is called before and during each wait. Where it raises, or `submit` does, or the caller
    stops iterating, open sequences are cancelled and the steps closed.
    """
    coming = iter(many)
    runs: deque[_Run[T]] = deque()
    try:
        while True:
            for each in runs:
                each.advance()
            _fill(runs, coming, most, submit)
            if not runs:
                return
            if runs[0].over:
                yield runs.popleft().result()
                continue
            if check is not None:
                check()
            wait([each.sequence for each in runs if each.sequence], POLL, FIRST_COMPLETED)
    finally:
        for each in runs:
            each.close()


class _Run(Generic[T]):
    """Steps under way, and the sequence that they wait for."""

    def __init__(self, steps: Steps[T], submit: Submit) -> None:
        self._steps, self._submit = steps, submit
        self._result: list[T] = []
        self.sequence: Sequence[Any] | None = None
        self.error: Exception | None = None

    @property
    def over(self) -> bool:
        """Whether there is a result, or an error."""
        return bool(self._result) or self.error is not None

    def begin(self) -> None:
        """On to the first sequence."""
        self._go(self._steps.send, None)
        self.advance()

    def advance(self) -> None:
        """On to the next sequence, as often as the one that is waited for has ended."""
        while self.sequence is not None and self.sequence.done():
            try:
                result = self.sequence.result()
            except Exception as error:
                self._go(self._steps.throw, error)
            else:
                self._go(self._steps.send, result)

    def _go(self, step: Callable[[Any], Sequence[Any]], value: Any) -> None:
        """One step of the generator: a sequence that is submitted, the result, or an error."""
        self.sequence = None
        try:
            sequence = step(value)
        except StopIteration as end:
            self._result.append(end.value)
        except Exception as error:
            self.error = error
        else:
            self._submit(sequence)
            self.sequence = sequence

    def result(self) -> T:
        """What the steps have returned; raises what they have raised."""
        if self.error is not None:
            raise self.error
        return self._result[0]

    def close(self) -> None:
        """Give up what has not ended."""
        if self.sequence is not None:
            self.sequence.cancel()
        self._steps.close()


def _fill(runs: deque[_Run[T]], coming: Iterator[Steps[T]], most: int, submit: Submit) -> None:
    """Begin steps while fewer than `most` are under way and none has failed."""
    while sum(not each.over for each in runs) < most and not any(each.error for each in runs):
        steps = next(coming, None)
        if steps is None:
            return
        runs.append(_Run(steps, submit))
        runs[-1].begin()
