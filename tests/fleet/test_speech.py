"""Speech and live audio from a model in several processes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from threading import Event
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.errors import Cancelled, UsageError
from oscine.fleet.model import nearly_equal

from .fleets import PARAKEET, SOUND, VOICES, busy, kill_busy, two

HOW: dict[str, Any] = {"voice": "ryan", "seed": 3, "max_frames": 9}
PARTS = ("Hello there. ", "How are ", "you today? ", "It rains.")


@pytest.fixture(scope="module")
def speaker() -> Iterator[Any]:
    with two(VOICES) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def alone() -> Any:
    return oscine.load(VOICES, device="cpu", dtype="f32", offline=True)


def whole(pieces: Any) -> Any:
    return np.concatenate([audio.samples for audio in pieces])


def test_speech_is_what_it_is_in_one_process(speaker: Any, alone: Any) -> None:
    assert (speaker.kind, speaker.voices) == (alone.kind, alone.voices)
    assert speaker.capabilities == alone.capabilities
    speech, expected = (each.speak("Hello there.", **HOW) for each in (speaker, alone))
    assert nearly_equal(speech.samples, expected.samples)
    assert (speech.seed, speech.finish_reason) == (3, expected.finish_reason)
    with pytest.raises(UsageError, match="is a text-to-speech model and cannot transcribe"):
        speaker.transcribe(SOUND)
    with pytest.raises(UsageError, match="there is no text to speak"):
        speaker.speak(" ")


def test_streams_have_what_they_have_in_one_process(speaker: Any, alone: Any) -> None:
    stream, expected = (each.stream("".join(PARTS), **HOW) for each in (speaker, alone))
    stream.buffer_pieces = expected.buffer_pieces = True
    assert (stream.seed, stream.rate, stream.mark, stream.buffer_pieces) == (
        3,
        24_000,
        expected.mark,
        True,
    )
    first = next(stream)
    assert nearly_equal(first.samples, next(expected).samples)
    assert 0 < stream.share <= 1 and stream.first_audio > 0
    assert nearly_equal(stream.speech().samples, expected.speech().samples)
    assert (stream.limited, stream.spoken) == (expected.limited, expected.spoken)


def test_a_text_comes_in_parts_also_asynchronous_ones(speaker: Any, alone: Any) -> None:
    async def written() -> AsyncIterator[str]:
        for part in PARTS:
            await asyncio.sleep(0)
            yield part

    async def heard() -> list[Any]:
        async with speaker.stream(written(), **HOW) as stream:
            return [audio async for audio in stream]

    expected = whole(alone.stream(iter(PARTS), **HOW))
    assert nearly_equal(whole(speaker.stream(iter(PARTS), **HOW)), expected)
    assert nearly_equal(whole(asyncio.run(heard())), expected)
    with pytest.raises(UsageError, match="needs a running event loop"):
        speaker.stream(written(), **HOW)


def test_what_the_text_raises_comes_through(speaker: Any) -> None:
    def broken() -> Iterator[str]:
        yield PARTS[0]
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        list(speaker.stream(broken(), **HOW))
    gc.collect()
    assert busy(speaker) == [0, 0]


def test_a_stream_whose_process_ends_goes_on_to_the_sample(alone: Any) -> None:
    with two(VOICES) as fleet:
        stream: Any = fleet._call("stream", iter(PARTS), **HOW)
        stream.buffer_pieces = False
        heard = [next(stream), next(stream)]
        kill_busy(fleet)
        expected = whole(alone.stream(iter(PARTS), **HOW))
        assert nearly_equal(whole([*heard, *stream]), expected)


def test_a_closed_stream_has_ended(speaker: Any) -> None:
    stream = speaker.stream("".join(PARTS), **HOW)
    next(stream)
    stream.close()
    assert list(stream) == [] and stream.finish_reason is None and busy(speaker) == [0, 0]
    with pytest.raises(Cancelled):
        speaker.speak("".join(PARTS), cancel=lambda: True, **HOW)


def test_live_audio_comes_to_the_same_updates() -> None:
    alone: Any = oscine.load(PARAKEET, device="cpu", dtype="f32", offline=True)
    pieces = [SOUND[start : start + 4000] for start in range(0, SOUND.size, 4000)]
    with two(PARAKEET) as made:
        fleet: Any = made
        expected = list(alone.listen(pieces, latency=0.5))
        assert nearly_equal((*fleet.listen(iter(pieces), latency=0.5),), tuple(expected))
        updates = fleet.listen(iter(pieces), latency=0.5)
        heard = [next(updates), next(updates)]
        kill_busy(fleet)
        assert nearly_equal((*heard, *updates), tuple(expected))
        stop = Event()
        stopped = fleet.listen(iter(pieces), latency=0.5, cancel=stop)
        first = next(stopped)
        stop.set()
        assert nearly_equal(first, expected[0]) and len([*stopped]) < len(expected)
        with pytest.raises(UsageError, match="latency must be"):
            list(fleet.listen(pieces, latency=100))
