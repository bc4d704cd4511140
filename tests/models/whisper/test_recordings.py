"""Real weights on real recordings, in NumPy: words, tokens, languages, cancelling."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from oscine import load
from oscine.errors import Cancelled
from oscine.models.whisper.pipeline import Whisper

pytestmark = pytest.mark.weights

# What openai-whisper and transformers give for the same weights, greedy.
JFK = {
    "tiny.en": [
        50363, 843, 523, 616, 5891, 3399, 1265, 407, 644, 534, 1499, 460, 466, 329, 345, 50763,
        50763, 1265, 644, 345, 460, 466, 329, 534, 1499, 13, 50913,
    ],
    "base": [
        50364, 400, 370, 452, 7177, 6280, 11, 1029, 406, 437, 428, 1941, 393, 360, 337, 291, 11,
        1029, 437, 291, 393, 360, 337, 428, 1941, 13, 50914,
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def model(weights: dict[str, Path]) -> Callable[[str], Whisper]:
    return cache(lambda name: load(weights[name], device="cpu"))


@pytest.mark.parametrize("name", ["tiny.en", "base"])
def test_our_own_recording(model: Callable[[str], Whisper], name: str, example: Path) -> None:
    result = model(name).transcribe(example, temperature=0)
    assert result.text.strip() == example.with_suffix(".txt").read_text("utf-8").strip()
    assert result.language == "en"
    assert 7.5 < result.segments[-1].end <= result.duration


@pytest.mark.parametrize("name", JFK)
def test_tokens_of_the_upstream_programs(
    model: Callable[[str], Whisper], name: str, shared_audio: Path
) -> None:
    result = model(name).transcribe(shared_audio / "jfk.flac", temperature=0)
    assert [token for segment in result.segments for token in segment.tokens] == JFK[name]


def test_language_of_another_language(model: Callable[[str], Whisper], shared_audio: Path) -> None:
    code, shares = model("base").detect_language(shared_audio / "coqui_ru.wav")
    assert code == "ru"
    assert len(shares) == 99
    assert sum(shares.values()) == pytest.approx(1, abs=1e-4)


def test_cancelled_within_a_burst(
    model: Callable[[str], Whisper], example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, submitted = model("tiny.en").engine, []
    whole = engine.submit

    def submit(sequence: Any, caller: Any = None) -> Any:
        submitted.append(sequence)
        return whole(sequence, caller)

    monkeypatch.setattr(engine, "submit", submit)
    timings = engine.runner.timings
    before = timings.get("encode", 0)
    with pytest.raises(Cancelled):  # asked for once the window is encoded
        model("tiny.en").transcribe(example, cancel=lambda: timings.get("encode", 0) > before)
    (decoding,) = submitted
    with pytest.raises(Cancelled):  # its text never came
        decoding.result()
    monkeypatch.undo()
    assert engine.call(lambda runner: None) is None  # and the engine is there for the next
    assert engine.running == 0
