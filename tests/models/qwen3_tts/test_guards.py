"""Failures of speech are detected, and correct speech passes unchanged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.models.qwen3_tts.guards import (
    CLICK_STEP,
    IMMEDIATE_SILENCE_S,
    MAX_SILENCE_S,
    SILENCE_RMS,
    ReferenceLeakDetector,
    RepetitionDetector,
    SilenceGate,
    crossfade,
    max_frames_for,
)

RATE, HOP_LENGTH, GROUPS = 24_000, 1920, 16
RNG = np.random.default_rng(3)


def frames(count: int) -> np.ndarray:
    return RNG.integers(0, 2048, (count, GROUPS), dtype=np.uint32)


def tone(count: int, level: float = 0.3) -> np.ndarray:
    return (level * np.sin(np.arange(count * HOP_LENGTH) * 0.05)).astype(np.float32)


def test_the_budget_is_generous_in_every_script() -> None:
    slow = 12.5  # frames a second
    assert max_frames_for("Hi.", slow) > 3 * slow
    assert 25 * slow < max_frames_for("x" * 100, slow) < 60 * slow  # 7 s at a usual pace
    assert max_frames_for("x" * 100, 2 * slow) == 2 * max_frames_for("x" * 100, slow)
    assert max_frames_for("字" * 40, slow) == max_frames_for("x" * 100, slow)
    assert max_frames_for("2026", slow) == max_frames_for("x" * 16, slow)


def test_a_loop_is_repetition() -> None:
    loop = frames(7)
    watch = RepetitionDetector()
    assert not watch.push(frames(40))
    said = [watch.push(np.concatenate([loop])) for _ in range(14)]
    assert not any(said[:10]) and said[-1]


def test_loops_differ_in_detail() -> None:
    loop, watch = frames(20), RepetitionDetector()
    found = False
    for _ in range(8):
        again = frames(20)
        again[:, 0] = loop[:, 0]  # other codes of sound, the same of speech
        again[3, 0] = 7
        found = watch.push(again)
    assert found


def test_speech_is_no_repetition() -> None:
    watch = RepetitionDetector()
    word = frames(6)
    for _ in range(60):  # one word again and again between others
        assert not watch.push(np.concatenate([word, frames(4)]))
    held = RepetitionDetector()
    same = np.repeat(frames(1), 60, axis=0)  # nearly five seconds of one sound
    assert not held.push(same)
    assert held.push(np.repeat(same[:1], 60, axis=0))


def test_pauses_pass_unchanged_and_silence_does_not() -> None:
    filter_ = SilenceGate(RATE, HOP_LENGTH)
    pause = np.full(20 * HOP_LENGTH, SILENCE_RMS / 2, np.float32)
    audio = np.concatenate([tone(5), pause, tone(5)])
    passed = [
        filter_.push(audio[i : i + 3 * HOP_LENGTH]) for i in range(0, len(audio), 3 * HOP_LENGTH)
    ]
    assert np.array_equal(np.concatenate(passed), audio) and not filter_.is_too_long
    dropped = 0
    while not filter_.is_too_long:
        dropped += len(pause) - len(filter_.push(pause))
    kept = int(IMMEDIATE_SILENCE_S * RATE) // HOP_LENGTH * HOP_LENGTH
    assert dropped >= MAX_SILENCE_S * RATE - kept
    assert len(filter_.flush()) == dropped and not len(filter_.flush())


def test_silence_at_the_end_of_what_ends_by_itself_belongs_to_it() -> None:
    filter_ = SilenceGate(RATE, HOP_LENGTH)
    audio = np.concatenate([tone(3), np.zeros(10 * HOP_LENGTH, np.float32)])
    assert np.array_equal(np.concatenate([filter_.push(audio), filter_.flush()]), audio)


@pytest.mark.parametrize("length", [3, 10, 25])
@pytest.mark.parametrize("burst", [1, 2, 40])
def test_the_end_of_a_reference_is_found(length: int, burst: int) -> None:
    reference = frames(60)
    leaked = reference[-length:].copy()
    leaked[:, 9:] = 1  # fine codes differ
    said = np.concatenate([leaked, frames(5)])
    leak, found = ReferenceLeakDetector(reference), None
    for start in range(0, len(said), burst):
        found = leak.push(said[start : start + burst])
        if found is not None:
            break
    assert found == length


@pytest.mark.parametrize("count", [0, 1, 2, 60])
def test_what_is_new_is_no_leak(count: int) -> None:
    reference = frames(count)
    assert ReferenceLeakDetector(reference).push(frames(1)) == 0
    if count > 30:
        leak = ReferenceLeakDetector(reference)
        middle = reference[-10:-5]
        assert [leak.push(frame[None]) for frame in middle] == [None] * 5
        assert leak.push(frames(1)) == 0  # it did not reach the end
        short = ReferenceLeakDetector(reference)
        assert short.push(np.concatenate([reference[-2:], frames(1)])) == 0


levels = st.floats(-1, 1, width=32)


@given(levels, levels, st.sampled_from([0.0, 0.2, 0.5]))
def test_no_join_clicks(last: float, first: float, pause: float) -> None:
    before, after = np.full(3000, last, np.float32), np.full(3000, first, np.float32)
    gap = crossfade(before, after, pause, RATE)
    whole = np.concatenate([before, gap, after])
    assert np.abs(np.diff(whole)).max() <= max(CLICK_STEP, 0.03)
    if max(abs(last), abs(first)) > SILENCE_RMS:
        assert len(gap) >= 0 and np.abs(gap).max(initial=0) <= max(abs(last), abs(first))


def test_quiet_that_is_there_counts() -> None:
    quiet = np.zeros(round(0.15 * RATE), np.float32)
    loud = np.full(3000, 0.5, np.float32)
    assert (
        len(crossfade(np.concatenate([loud, quiet]), np.concatenate([quiet, loud]), 0.2, RATE)) == 0
    )
    gap = crossfade(np.concatenate([loud, quiet]), loud, 0.2, RATE)
    assert len(gap) == round(0.05 * RATE)
    assert len(crossfade(loud, loud, 0.0, RATE)) == 0  # the same level: nothing to lead over
