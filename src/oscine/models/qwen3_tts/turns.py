"""The queue of a model that computes for one job at a time, in whatever threads its callers are.

A job is one piece of a text, or the encoding of a reference. Jobs get their turn in the order of
their first calls, so that streams alternate piece by piece. A job that has begun is finished before
the next one begins. Where its own caller does not ask for the rest just then (a slow client, a
stream that is left alone, another stream of the same thread), the next caller in the queue makes
the rest, which stays in memory until it is asked for. So no call depends on what other callers do
next, and the thread of a call does not matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from threading import Condition, get_ident
from typing import TypeVar

from oscine.errors import UsageError
from oscine.types import Samples

POLL = 0.1  # seconds between two looks at whether a waiting call is cancelled

Result = TypeVar("Result")


class Job:
    """Work that makes audio step by step.

    `begin(skipped)` starts it and gives all its audio but the first `skipped` samples. It is called
    a second time where a step was interrupted or the device lost, and must give the same audio.
    """

    def __init__(self, begin: Callable[[int], Iterator[Samples]]) -> None:
        self._begin = begin
        self._running: Iterator[Samples] | None = None
        self._made: deque[Samples] = deque()  # not yet taken
        self._taken = 0  # samples
        self._error: Exception | None = None
        self.is_over = False

    def advance(self) -> None:
        """Make the next audio. After any exception the job can be advanced again."""
        try:
            if self._running is None:
                self._running = self._begin(self._taken + sum(map(len, self._made)))
            samples = next(self._running, None)
            if samples is None:
                self.is_over = True
            else:
                self._made.append(samples)
        except BaseException:
            self._running = None  # which closes it
            raise

    def fail(self, error: Exception) -> None:
        """End it: the error is its caller's, whoever advanced it."""
        self._error, self.is_over = error, True

    def end(self) -> None:
        """Stop what is under way for it."""
        self.is_over, self._running = True, None

    @property
    def has_news(self) -> bool:
        """Whether `take` has something to say."""
        return bool(self._made) or self.is_over

    def take(self) -> Samples | None:
        """The next audio that was made, or None after the last. Raises the error that ended it."""
        if self._made:
            samples = self._made.popleft()
            self._taken += len(samples)
            return samples
        if self._error is not None:
            raise self._error
        return None


class Claim:
    """A call of `Turns.next`, and its thread."""

    def __init__(self, job: Job) -> None:
        self.job, self.thread = job, get_ident()


class Turns:
    """The jobs of a model, which is called `name`.

    `surviving` runs a step, and runs it again on a new device where the old one was lost.
    """

    def __init__(self, name: str, surviving: Callable[[Callable[[], None]], None]) -> None:
        self.name = name
        self.current: Job | None = None  # has begun and is not over
        self._surviving = surviving
        self._waiting: list[Claim] = []
        self._computing: Claim | None = None
        self._changed = Condition()

    def next(self, job: Job, check: Callable[[], None] = lambda: None) -> Samples | None:
        """The next audio of a job, or None after the last.

        `check`, which may raise, is called before every step and while the call waits. Raises what
        the job raises, and UsageError for a call from within the work of a job (a signal handler),
        which could only wait for itself.
        """
        claim = Claim(job)
        try:
            while True:
                check()
                with self._changed:
                    if job.has_news:
                        return job.take()
                    due = self._due(claim)
                    if due is None:
                        self._changed.wait(POLL)
                        continue
                    self._computing = claim
                self._advance(due, claim)
        finally:
            with self._changed:
                if claim in self._waiting:
                    self._waiting.remove(claim)
                    self._changed.notify_all()
                self._release(claim)

    def run(self, work: Callable[[], Result]) -> Result:
        """The result of work that is one step, in its turn."""
        results: list[Result] = []

        def begin(skipped: int) -> Iterator[Samples]:
            results[:] = [work()]
            return iter(())

        self.next(Job(begin))
        return results[0]

    def drop(self, job: Job) -> None:
        """Stop a job whose caller wants no more of it."""
        with self._changed:
            job.is_over = True
            if self._computing is None and self.current is job:
                self.current = None
                job.end()
            self._changed.notify_all()

    def _due(self, claim: Claim) -> Job | None:
        """The job that this call is to advance, or None while it must wait."""
        is_current = self.current is claim.job
        if not is_current and claim not in self._waiting:
            self._waiting.append(claim)
        if self._computing is not None:
            if self._computing.thread == claim.thread:
                raise UsageError(
                    f"{self.name} was called from within its own work, as from a signal handler; "
                    "call it after that"
                )
            return None
        if is_current:
            return claim.job
        # A call that this one interrupted (it was made by a `cancel` function) cannot go first.
        first = next(c for c in self._waiting if c is claim or c.thread != claim.thread)
        if first is not claim:
            return None
        if self.current is None:
            self._waiting.remove(claim)
            self.current = claim.job
        return self.current

    def _advance(self, job: Job, claim: Claim) -> None:
        try:
            self._surviving(job.advance)
        except Exception as error:
            job.fail(error)
        finally:
            with self._changed:
                self._release(claim)

    def _release(self, claim: Claim) -> None:
        """Let other calls compute; `_changed` is held."""
        if self._computing is not claim:
            return
        self._computing = None
        job = self.current
        if job is not None and job.is_over:
            self.current = None
            job.end()
        self._changed.notify_all()
