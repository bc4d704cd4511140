"""Requests as generators: each yields sequences, receives their results, and returns its own.

`result = yield sequence` computes a sequence on the device; `yield from` runs a part of a request.
So a request reads from top to bottom, and the same code runs alone or concurrently with others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from oscine.engine.sequence import CancelCheck, Sequence
from oscine.futures import POLL_INTERVAL_S, wait_for_any

T = TypeVar("T")

#: Yields sequences and receives their results, or their errors by `throw`; returns a T.
SequenceGenerator: TypeAlias = Generator[Sequence[Any], Any, T]
#: Submits a sequence to an engine, and returns at once.
Submit: TypeAlias = Callable[[Sequence[Any]], object]


def run(submit: Submit, generator: SequenceGenerator[T], check: CancelCheck | None = None) -> T:
    """The result of a generator whose sequences are computed one after another.

    `check` is called before and during each wait, and may raise to stop. Raises what the generator
    raises.
    """
    (result,) = run_concurrently(submit, [generator], 1, check)
    return result


def run_concurrently(
    submit: Submit,
    generators: Iterable[SequenceGenerator[T]],
    max_running: int,
    check: CancelCheck | None = None,
) -> Generator[T, None, None]:
    """The results of generators, in their order, at most `max_running` of them running at once.

    A generator that ends early makes room for the next, and its result waits for its turn. An error
    is raised in its turn too, after the results before it; no generator starts after it. `check` is
    called before and during each wait. Where it or `submit` raises, or the caller stops iterating,
    running sequences are cancelled and generators closed.
    """
    waiting = iter(generators)
    runs: deque[_Run[T]] = deque()
    try:
        while True:
            for run in runs:
                run.advance()
            _start_more(runs, waiting, max_running, submit)
            if not runs:
                return
            if runs[0].ended:
                yield runs.popleft().result()
                continue
            if check is not None:
                check()
            wait_for_any([run.sequence for run in runs if run.sequence], POLL_INTERVAL_S)
    finally:
        for run in runs:
            run.close()


class _Run(Generic[T]):
    """A running generator, and the sequence that it waits for."""

    def __init__(self, generator: SequenceGenerator[T], submit: Submit) -> None:
        self._generator, self._submit = generator, submit
        self._result: list[T] = []
        self.sequence: Sequence[Any] | None = None
        self.error: Exception | None = None

    @property
    def ended(self) -> bool:
        """Whether the generator has returned or raised."""
        return bool(self._result) or self.error is not None

    def start(self) -> None:
        """Run the generator up to its first sequence that has not ended."""
        self._resume(self._generator.send, None)
        self.advance()

    def advance(self) -> None:
        """Resume the generator as long as the sequence that it waits for has ended."""
        while self.sequence is not None and self.sequence.done():
            try:
                result = self.sequence.result()
            except Exception as error:
                self._resume(self._generator.throw, error)
            else:
                self._resume(self._generator.send, result)

    def _resume(self, resume: Callable[[Any], Sequence[Any]], value: Any) -> None:
        """Resume the generator once: it yields a sequence to submit, returns or raises."""
        self.sequence = None
        try:
            sequence = resume(value)
        except StopIteration as end:
            self._result.append(end.value)
        except Exception as error:
            self.error = error
        else:
            self._submit(sequence)
            self.sequence = sequence

    def result(self) -> T:
        """What the generator has returned; raises what it has raised."""
        if self.error is not None:
            raise self.error
        return self._result[0]

    def close(self) -> None:
        """Cancel the sequence that has not ended, and close the generator."""
        if self.sequence is not None:
            self.sequence.cancel()
        self._generator.close()


def _start_more(
    runs: deque[_Run[T]],
    waiting: Iterator[SequenceGenerator[T]],
    max_running: int,
    submit: Submit,
) -> None:
    """Start generators while fewer than `max_running` are running and none has failed."""
    while sum(not run.ended for run in runs) < max_running and not any(run.error for run in runs):
        generator = next(waiting, None)
        if generator is None:
            return
        runs.append(_Run(generator, submit))
        runs[-1].start()
