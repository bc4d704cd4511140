"""Sequences on a Decoder: what is encoded again, what goes together, and room for a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from oscine.models.whisper.executor import Executor
from oscine.models.whisper.request import Request

from oscine.engine.sequence import EncoderInput
from oscine.engine.steps import Steps, run, run_side_by_side
from oscine.errors import DeviceMemoryError
from oscine.models.whisper.sequences import Align, Decode

from .conftest import CONFIG, ScriptedDecoder

REQUEST = Request(
    prompt=(1,), sot=0, suppress=(), suppress_first=(), end=256, timestamp_begin=300,
    no_timestamps=1, no_speech=2, timestamps=False, max_initial_timestamp=None, limit=4,
)  # fmt: skip


def inputs(count: int) -> list[EncoderInput]:
    return [EncoderInput(np.full((2, 2), at, np.float32)) for at in range(count)]


def decoder(rows: int = 99) -> Any:
    return ScriptedDecoder(CONFIG, 300, [(" a",)] * rows)


def executor(engine: Any) -> Executor:
    return Executor(lambda work: work(engine))


def decoded(audio: EncoderInput, requests: list[Request], aligned: bool = False) -> Steps[int]:
    """How many rows there are in all."""
    rows = 0
    for request in requests:
        rows += len((yield Decode(audio, request)))
    if aligned:
        yield Align(audio, (1, 2, 3), 256, 2)
    return rows


def test_what_the_engine_holds_is_not_encoded_again() -> None:
    engine = decoder()
    one, other = inputs(2)
    for audio, count in ((one, 1), (one, 1), (other, 2), (one, 3)):
        # Another executor: of another recording, or of the same model's next call.
        work = executor(engine)
        assert run(work.submit, decoded(audio, [REQUEST] * 2, aligned=True), work.check) == 2
        assert len(engine.mels) == count
    assert engine.windows == [0] * 8


def test_windows_are_encoded_together_and_each_once() -> None:
    engine = decoder()
    audio, work = inputs(5), executor(engine)
    many = [decoded(each, [REQUEST] * (1 + at % 2), True) for at, each in enumerate(audio)]
    assert list(run_side_by_side(work.submit, many, 3, work.check)) == [1, 2, 1, 2, 1]
    assert [int(mel[0, 0]) for mel in engine.mels] == [0, 1, 2, 3, 4]
    assert len(engine.requests) == 7 and len(engine.aligned) == 5


def test_requests_that_differ_in_their_rules_take_turns() -> None:
    engine, together = decoder(), []
    whole = engine.decode

    def decode(requests: Any, *more: Any) -> Any:
        together.append(len(requests))
        return whole(requests, *more)

    engine.decode = decode
    warm, work = replace(REQUEST, temperature=0.5), executor(engine)
    requests = [REQUEST, warm, REQUEST, warm, warm]
    many = [decoded(each, [one]) for each, one in zip(inputs(5), requests, strict=True)]
    assert len(list(run_side_by_side(work.submit, many, 5, work.check))) == 5
    assert together == [2, 3]


def test_after_a_failure_nothing_is_held() -> None:
    engine = decoder()
    one, other = inputs(2)
    encode = engine.encode

    def fail(mels: Any) -> None:
        raise RuntimeError("unplugged")

    for audio, broken in ((one, False), (other, True), (one, False)):
        engine.encode, work = fail if broken else encode, executor(engine)
        steps = decoded(audio, [REQUEST])
        if broken:
            with pytest.raises(RuntimeError):
                run(work.submit, steps, work.check)
        else:
            run(work.submit, steps, work.check)
    assert len(engine.mels) == 2


def test_a_batch_is_halved_until_it_fits(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[tuple[int, int]] = []

    class Small(ScriptedDecoder):
        def reserve(self, windows: int, lines: int) -> None:
            asked.append((windows, lines))
            if windows > most:
                raise DeviceMemoryError("a card", "has no more room")

    work, most = executor(Small(CONFIG, 0, [])), 2
    assert work.reserve(8, 5) == 2
    assert asked == [(8, 40), (4, 20), (2, 10)]
    assert caplog.text.count("going on with batches of") == 2
    assert work.reserve("auto", 1) == 1  # of three
    assert work.reserve(None, 1) == 1
    most = 0
    with pytest.raises(DeviceMemoryError):
        work.reserve(2, 1)
