"""A sequence ends once, whoever ends it and whenever."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from oscine.engine.scheduler import Engine
from oscine.engine.sequence import cancelled
from oscine.errors import OscineError
from oscine.futures import Future
from tests.engine.counting import Count, Runner


def test_what_ends_when_the_wait_for_it_ends_has_its_result() -> None:
    class Late(Count):
        def result(self, timeout: float | None = None) -> int:
            if not self.done():
                self.finish(5)
                raise TimeoutError
            return super().result(timeout)

    assert Late(1, 1).wait() == 5


@pytest.mark.parametrize(
    "end", [lambda one: one.fail(OscineError("a test")), lambda one: one.finish(1)]
)
def test_a_sequence_may_be_given_up_at_any_moment_of_its_end(end: Any) -> None:
    class GivenUp(Count):
        def done(self) -> bool:
            was = super().done()
            self.cancel_requested = True  # by another thread
            Future.fail(self, cancelled())
            return was

    end(GivenUp(1, 1))


def test_a_signal_handler_may_submit_while_its_thread_does() -> None:
    engine = Engine(Runner(name="counting signals"))
    submitted: list[Any] = []

    def interrupted() -> None:
        with engine._lock:
            submitted.append(engine.submit(Count(1, 5)))

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(10)
    assert [each.result(10) for each in submitted] == [Count(1, 5).alone()]
    engine._device_thread.close()
