"""Audio that comes in pieces, given to whatever listens to it: the same for every model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, Protocol

import numpy as np

from oscine.audio.io import open_source
from oscine.errors import UsageError
from oscine.models.transcription import Transcription, finished
from oscine.types import Samples, Transcript, Update


class Listener(Protocol):
    """What makes updates of samples [n] at 16 kHz."""

    def push(self, samples: Samples) -> Iterator[Update]: ...
    def finish(self) -> Iterator[Update]: ...


def check_latency(latency: Any, least: float, most: float) -> None:
    """Raise UsageError for what is no number of seconds from `least` to `most`."""
    number = isinstance(latency, int | float) and not isinstance(latency, bool)
    if not number or not least <= latency <= most:
        raise UsageError(f"latency must be {least} to {most} seconds, not {latency!r}")


def updates(
    listener: Listener, pieces: Iterable[Any], cancelled: Callable[[], bool] | None
) -> Iterator[Update]:
    """The listener's updates for arrays of samples at 16 kHz, until they end or it is cancelled.

    What was heard is then finished. Raises AudioError, NonFiniteError, UsageError for what are no
    pieces of samples, and what the listener raises.
    """
    go_on = (lambda _: True) if cancelled is None else (lambda _: not cancelled())
    warned: set[str] = set()  # what is odd about a piece is so about all of them
    for piece in takewhile(go_on, _checked(pieces)):
        if len(piece):
            source = open_source(piece, name="a piece of audio")
            source.warned = warned
            for block in source.blocks():
                yield from listener.push(block)
    yield from listener.finish()


def _checked(pieces: Iterable[Any]) -> Iterator[Any]:
    """The pieces, each of which has a length. Raises UsageError, which says what was given."""
    if isinstance(pieces, np.ndarray) and pieces.ndim == 1:
        raise UsageError("listen takes pieces of samples one by one; put one array into a list")
    try:
        waiting = iter(pieces)
    except TypeError:
        raise UsageError(f"listen takes pieces of samples, not {type(pieces).__name__}") from None
    for piece in waiting:
        if np.ndim(piece) == 0 and not isinstance(piece, bytes | str):
            problem = f"a piece of audio must be an array of samples, not {type(piece).__name__}"
            raise UsageError(problem)
        yield piece


class Stepwise:
    """A model that transcribes the last seconds of live audio again and again.

    What is said of a recording, such as that nobody speaks in it, would be said of every step; here
    silence is the usual state, so it is said of none.
    """

    def __init__(self, stream: Callable[..., Transcription]) -> None:
        """`stream`: the model's."""
        self.stream = stream

    def transcribe(self, audio: Samples, **options: Any) -> Transcript:
        """As the model's, of samples [n] at 16 kHz, before callers of recordings."""
        source = open_source(audio, name="live audio")
        source.quiet = True
        stream = self.stream(source, **options)
        stream.go_first()
        return finished(stream)
