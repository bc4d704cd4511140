"""Computes Whisper's sequences on a Decoder, until the engine of all families does.

Sequences that wait are computed in the caller's thread, those of one kind side by side. The engine
replaces this file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from oscine.engine.sequence import EncoderInput, Sequence
from oscine.errors import DeviceMemoryError
from oscine.models.resident import RunOnEngine
from oscine.models.whisper.request import Engine
from oscine.models.whisper.sequences import Align, Decode, Detect

log = logging.getLogger(__name__)


class Executor:
    """`submit` and `check` are what `run` and `run_side_by_side` need.

    `should_stop` is called as often as `check`, and between the bursts of a pass; it may raise.
    """

    def __init__(
        self, on_engine: RunOnEngine[Engine], should_stop: Callable[[], None] = lambda: None
    ) -> None:
        self._on_engine, self._should_stop = on_engine, should_stop
        self._waiting: list[Sequence[Any]] = []

    def submit(self, sequence: Sequence[Any]) -> None:
        """It is computed when its caller waits for it."""
        self._waiting.append(sequence)

    def check(self) -> None:
        """Compute what can be computed at once; a device that is lost on the way is replaced."""
        self._should_stop()
        self._waiting = [sequence for sequence in self._waiting if not sequence.done()]
        if self._waiting:
            self._on_engine(self._compute)

    def reserve(self, wanted: int | str | None, width: int) -> int:
        """Make room for a batch of windows with `width` lines each; how many there is room for.

        `wanted` may be "auto". Where the device has not enough for a number, a warning says that
        the batch is smaller. Raises DeviceMemoryError if not even one window fits.
        """

        def reserve(engine: Engine) -> int:
            count = engine.batch_that_fits() if wanted == "auto" else int(wanted or 1)
            while True:
                try:
                    engine.reserve(count, count * width)
                except DeviceMemoryError as problem:
                    if count == 1:
                        raise
                    count //= 2
                    log.warning("%s; going on with batches of %d", problem, count)
                else:
                    return count

        return self._on_engine(reserve)

    def _compute(self, engine: Engine) -> None:
        """The first that waits, with all that can be decoded beside it."""
        held = encoded(engine)
        ready = [each for each in self._waiting if each.audio in held] or self._waiting
        if ready is self._waiting:
            held = encode(engine, [each.audio for each in ready if each.audio is not None])
        first = ready[0]
        if isinstance(first, Decode):
            batch = [
                each
                for each in ready
                if isinstance(each, Decode) and each.request.alike(first.request)
            ]
            results = engine.decode(
                [each.request for each in batch],
                lambda *_: self._should_stop(),
                [held.index(each.audio) for each in batch],
            )
            for each, rows in zip(batch, results, strict=True):
                each.finish(rows)
        elif isinstance(first, Detect):
            place = held.index(first.audio)
            first.finish(engine.detect(first.request, first.ids, place)[1])
        else:
            assert isinstance(first, Align)
            place = held.index(first.audio)
            first.finish(engine.align(first.prompt, first.end, first.frames, place))


def encoded(engine: Engine) -> tuple[EncoderInput, ...]:
    """What the engine holds the encoding of, by place."""
    return engine.held if isinstance(engine.held, tuple) else ()


def encode(engine: Engine, inputs: list[EncoderInput]) -> tuple[EncoderInput, ...]:
    """Encode inputs in place of those that the engine holds; as `encoded`."""
    wanted = tuple(dict.fromkeys(inputs))
    engine.held = None
    engine.encode([each.features for each in wanted])
    engine.held = wanted
    return wanted
