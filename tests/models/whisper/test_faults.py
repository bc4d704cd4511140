"""Faulty weights, windows, memory and devices: an error, and other sequences are unaffected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from oscine.engine.sequence import EncoderInput
from oscine.errors import (
    DeviceLostError,
    DeviceMemoryError,
    NonFiniteError,
)
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.sequences import DecodingSequence, LanguageSequence
from oscine.models.whisper.weights import WhisperWeights
from oscine.ops.reference import Reference
from tests.engine.by_hand import ByHand

from .golden import (
    BEAMS,
    PLAIN,
    SAMPLED,
    TIMED,
    Backends,
    Decoding,
    Engines,
    Windows,
    backends,
    results,
    tokens_of,
)

# -- numbers that are none ------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@backends
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_overflow_are_told(
    golden_weights: WhisperWeights, windows: Windows, backend: Backends, name: str, value: float
) -> None:
    assert golden_weights.decoder is not None
    bias = golden_weights.decoder.ln.bias.copy()
    bias[3] = value
    norm = replace(golden_weights.decoder.ln, bias=bias)
    broken = replace(golden_weights, decoder=replace(golden_weights.decoder, ln=norm))
    hand = ByHand(WhisperRunner(broken, backend(name)))
    for sequence in (
        DecodingSequence(windows[0], PLAIN),
        LanguageSequence(windows[0], tokens_of(golden_weights)),
    ):
        with pytest.raises(NonFiniteError, match=r"non-finite logits on ") as caught:
            results(hand, sequence)
        message = str(caught.value)
        assert message.endswith(
            "the weights are damaged or not those of this model: fetch them again"
        )
        assert ('device="cpu"' in message) == (hand.runner.device != "NumPy")


@backends
def test_a_broken_window_is_told_and_its_neighbours_are_whole(
    engine: Engines, windows: Windows, name: str
) -> None:
    hand, sound = engine(name), [DecodingSequence(audio, TIMED) for audio in windows[:2]]
    before = results(hand, *sound)
    broken = EncoderInput(np.full_like(windows[0].features, np.nan))
    three = [DecodingSequence(audio, TIMED) for audio in (windows[0], broken, windows[1])]
    for sequence in three:
        hand.submit(sequence)
    hand.until_idle()
    with pytest.raises(NonFiniteError):
        three[1].result(0)
    found = [three[at].result(0) for at in (0, 2)]
    assert [[row.tokens for row in rows] for rows in found] == [
        [row.tokens for row in rows] for rows in before
    ]
    assert results(hand, *(DecodingSequence(audio, TIMED) for audio in windows[:2])) == before


# -- devices that fail ----------------------------------------------------------------------------


class Failing(Reference):
    """NumPy whose memory ends, or that is lost, after some snapshots."""

    def __init__(self, room: int | None = None, lose_after: int | None = None) -> None:
        self.left, self.lose_after, self.made = room, lose_after, 0

    def zeros(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        made = super().zeros(shape, dtype)
        if self.left is not None:
            self.left -= made.nbytes
            if self.left < 0:
                self.left += made.nbytes
                raise DeviceMemoryError(self.name, f"{made.nbytes} bytes are too many")
        return made

    def release(self, *slots: Any) -> None:
        if self.left is not None:
            self.left += sum(slot.nbytes for slot in slots)

    def snapshot(self, *slots: Any) -> Any:
        self.made += 1
        if self.lose_after is not None and self.made > self.lose_after:
            raise DeviceLostError(self.name, "unplugged")
        return super().snapshot(*slots)


def test_where_memory_runs_out_fewer_windows_run_and_none_is_lost(
    decode: Decoding,
    golden_weights: WhisperWeights,
    windows: Windows,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (expected,) = decode("numpy", TIMED)
    first = ByHand(WhisperRunner(golden_weights, backend := Failing(room=10**9)))
    once = 10**9 - backend.left  # the buffers of a runner with one slot
    one = first.runner.memory.slot_bytes + first.runner.memory.encoder_slot_bytes
    hand = ByHand(WhisperRunner(golden_weights, Failing(room=once + 3 * one)))
    found = results(hand, *(DecodingSequence(windows[at % 2], TIMED) for at in range(8)))
    assert 1 <= hand.occupancy.max_sequences < 8
    assert [rows[0].tokens for rows in found[::2]] == [expected[0].tokens] * 4
    assert "going on with" in caplog.text


def test_no_room_for_one_is_an_error_of_that_sequence(
    golden_weights: WhisperWeights, windows: Windows
) -> None:
    hand = ByHand(WhisperRunner(golden_weights, backend := Failing(room=10**9)))
    hand.runner.executor(("decode", 5, 0))
    backend.left = 0
    with pytest.raises(DeviceMemoryError):
        results(hand, DecodingSequence(windows[0], replace(SAMPLED, best_of=5)))
    backend.left = 10**9
    assert len(results(hand, DecodingSequence(windows[0], replace(SAMPLED, best_of=5)))[0]) == 5


@pytest.mark.parametrize("lose_after", range(5))
def test_a_device_lost_on_the_way_is_replaced(
    engine: Engines, golden_weights: WhisperWeights, windows: Windows, lose_after: int
) -> None:
    asked: list[Callable[[], Any]] = [
        lambda: LanguageSequence(windows[0], tokens_of(golden_weights)),
        lambda: DecodingSequence(
            windows[1], replace(TIMED, suppress_tokens=(PLAIN.eot,), max_new_tokens=60)
        ),
        lambda: DecodingSequence(windows[0], BEAMS),
        lambda: DecodingSequence(windows[0], replace(TIMED, stop_loops=True)),
    ]
    runner = WhisperRunner(golden_weights, Failing(lose_after=lose_after))
    hand = ByHand(runner, rebuild=lambda: WhisperRunner(golden_weights, Reference()))
    found = results(hand, *(make() for make in asked))
    assert hand.runner is not runner
    expected = results(engine("numpy"), *(make() for make in asked))
    assert found[0] == pytest.approx(expected[0], abs=1e-4)
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        assert [row.tokens for row in ours] == [row.tokens for row in theirs]
