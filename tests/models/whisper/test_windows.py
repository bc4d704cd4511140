"""Windows on the engine: which are encoded, and room for a batch of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscine.audio.io import open_source
from oscine.audio.windows import Features
from oscine.errors import DeviceMemoryError
from oscine.models.whisper.windows import ensure_encoded, reserve

from .conftest import CONFIG, ScriptedDecoder


def features() -> Features:
    noise = np.random.default_rng(0).normal(0, 0.1, 48_000).astype(np.float32)
    return Features(open_source(noise), CONFIG.n_mels, CONFIG.window_frames)


def engine() -> Any:
    return ScriptedDecoder(CONFIG, 0, [])


def test_what_the_engine_holds_is_not_encoded_again() -> None:
    one, other, held = features(), features(), engine()
    ensure_encoded(held, one, [(0, 100), (100, 100)])
    ensure_encoded(held, one, [(0, 100), (100, 100)])
    assert len(held.mels) == 2
    for windows in ([(0, 100)], [(100, 100)], [(100, 50)]):
        before = len(held.mels)
        ensure_encoded(held, one, windows)
        assert len(held.mels) == before + 1
    ensure_encoded(held, other, [(100, 50)])  # of another recording
    ensure_encoded(held, one, [(100, 50)])
    ensure_encoded(held, one, [(100, 50)], silence=True)
    assert len(held.mels) == 8


def test_after_a_failure_nothing_is_held() -> None:
    one, held = features(), engine()
    ensure_encoded(held, one, [(0, 100)])
    encode = held.encode

    def fail(mels: Any) -> None:
        raise RuntimeError("unplugged")

    held.encode = fail
    with pytest.raises(RuntimeError):
        ensure_encoded(held, one, [(100, 100)])
    held.encode = encode
    ensure_encoded(held, one, [(0, 100)])
    assert len(held.mels) == 2


def test_a_batch_is_halved_until_it_fits(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[tuple[int, int]] = []

    class Small(ScriptedDecoder):
        def reserve(self, windows: int, lines: int) -> None:
            asked.append((windows, lines))
            if windows > most:
                raise DeviceMemoryError("a card", "has no more room")

    held, most = Small(CONFIG, 0, []), 2
    assert reserve(8, 5, held) == 2
    assert asked == [(8, 40), (4, 20), (2, 10)]
    assert caplog.text.count("going on with batches of") == 2
    assert reserve("auto", 1, held) == 1  # of three
    assert reserve(None, 1, held) == 1
    most = 0
    with pytest.raises(DeviceMemoryError):
        reserve(2, 1, held)
