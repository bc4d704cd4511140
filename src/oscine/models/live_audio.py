"""Live audio: feeds pieces of samples to a streaming transcriber of any family."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, Protocol

import numpy as np

from oscine.audio.io import open_source
from oscine.engine.sequence import Priority
from oscine.errors import UsageError
from oscine.models.transcription import Transcription, run_to_end
from oscine.types import Samples, Transcript, Update


class StreamingTranscriber(Protocol):
    """Takes samples [n] at 16 kHz as they arrive and yields updates of the transcript."""

    def push(self, samples: Samples) -> Iterator[Update]: ...
    def finish(self) -> Iterator[Update]: ...


def check_latency(latency: Any, minimum: float, maximum: float) -> None:
    """Raise UsageError unless `latency` is a number of seconds from `minimum` to `maximum`."""
    is_number = isinstance(latency, int | float) and not isinstance(latency, bool)
    if not is_number or not minimum <= latency <= maximum:
        raise UsageError(f"latency must be {minimum} to {maximum} seconds, not {latency!r}")


def live_updates(
    transcriber: StreamingTranscriber,
    pieces: Iterable[Any],
    cancelled: Callable[[], bool] | None,
) -> Iterator[Update]:
    """The updates for arrays of samples at 16 kHz, until these end or `cancelled()` is true.

    Audio that has arrived is then transcribed to its end. Raises AudioError or NonFiniteError for
    a piece that cannot be used, UsageError if `pieces` does not yield arrays, and whatever the
    transcriber raises.
    """
    should_go_on = (lambda _: True) if cancelled is None else (lambda _: not cancelled())
    warned: set[str] = set()  # shared: all pieces of a stream have the same peculiarities
    for piece in takewhile(should_go_on, _checked_pieces(pieces)):
        if len(piece):
            source = open_source(piece, name="a piece of audio")
            source.warned = warned
            for block in source.blocks():
                yield from transcriber.push(block)
    yield from transcriber.finish()


def _checked_pieces(pieces: Iterable[Any]) -> Iterator[Any]:
    """The pieces. Raises UsageError if `pieces` is one array, or a piece is not an array."""
    if isinstance(pieces, np.ndarray) and pieces.ndim == 1:
        raise UsageError("listen takes an iterable of arrays of samples; put one array into a list")
    try:
        iterator = iter(pieces)
    except TypeError:
        name = type(pieces).__name__
        raise UsageError(f"listen takes an iterable of arrays of samples, not {name}") from None
    for piece in iterator:
        if np.ndim(piece) == 0 and not isinstance(piece, bytes | str):
            problem = f"a piece of audio must be an array of samples, not {type(piece).__name__}"
            raise UsageError(problem)
        yield piece


class BufferTranscriber:
    """Transcribes a buffer of live audio, again each time it has grown, with a model's `stream`.

    Warnings about a recording, such as that it has no speech, are switched off: they would repeat
    with each run, and silence is normal in live audio.
    """

    def __init__(self, stream: Callable[..., Transcription]) -> None:
        """`stream`: the model's method."""
        self.stream = stream

    def transcribe(self, audio: Samples, **options: Any) -> Transcript:
        """The transcript of samples [n] at 16 kHz, computed before recordings of other callers."""
        source = open_source(audio, name="live audio")
        source.quiet = True
        stream = self.stream(source, **options)
        stream.set_priority(Priority.LIVE)
        return run_to_end(stream)
