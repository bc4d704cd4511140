"""A model that is loaded with `deterministic` gives one result under any load, bit for bit."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.audio.io import decode
from oscine.errors import DeviceLostError
from oscine.fleet.model import open_fleet
from oscine.ops.webgpu import Gpu

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
CHECKPOINTS = {
    "whisper": GOLDENS / "whisper_multi",
    "parakeet": GOLDENS / "parakeet_tdt",
    "ctc": GOLDENS / "parakeet_ctc",
    "qwen3_tts": GOLDENS / "qwen3_tts" / "custom_voice" / "ckpt",
}
NUMBERS = {"cpu": range(6), "gpu": (0, 3, 6)}  # a GPU compiles kernels for each length
TIMES = {"cpu": 9, "gpu": 2}


def sound(number: int) -> np.ndarray:
    """Speech of another length for each number."""
    part = decode(GOLDENS / "audio" / "parakeet_tdt.wav").samples
    return np.tile(np.roll(part, 4000 * number), 1 + number % 3)


def speak(model: Any, number: int) -> Any:
    """The samples of a text."""
    text, frames = f"Sentence {number} is here. " * (1 + number % 3), 12 + 3 * number
    return model.speak(text, voice="ryan", seed=number, max_frames=frames).samples.tobytes()


def speak_long(model: Any, times: int) -> None:
    """Make room for a long text, of which only the beginning is taken."""
    frames = model.stream("Long.", voice="ryan", seed=1, max_frames=300 * times, guard=False)
    next(iter(frames))
    frames.close()


def whisper(model: Any, number: int) -> Any:
    """All numbers of a transcript, at temperatures that differ."""
    how: dict[str, Any] = {"temperature": (0.0, 0.7)[number % 2], "seed": number, "language": "en"}
    heard = model.transcribe(
        sound(number), word_timestamps=number % 3 == 1, vad_filter=False, **how
    )
    return [astuple(segment) for segment in heard.segments]


def parakeet(model: Any, number: int) -> Any:
    """All numbers of a transcript."""
    heard = model.transcribe(sound(number), vad_filter=False)
    return [astuple(segment) for segment in heard.segments]


def listen_long(model: Any, times: int) -> None:
    """Make room for a long recording."""
    model.transcribe(np.tile(sound(0), times), vad_filter=False)


FAMILIES: dict[str, tuple[Callable[[Any, int], Any], Callable[[Any, int], None]]] = {
    "whisper": (whisper, listen_long),
    "parakeet": (parakeet, listen_long),
    "ctc": (parakeet, listen_long),
    "qwen3_tts": (speak, speak_long),
}


def alone_and_under_load(family: str, model: Any, device: str) -> tuple[list[Any], list[Any]]:
    """The result of each request alone, then in a batch with all others."""
    ask, grow = FAMILIES[family]
    numbers = NUMBERS[device]
    alone = [ask(model, number) for number in numbers]
    ready = threading.Barrier(len(numbers) + 1)

    def beside(work: Callable[[Any, int], Any], number: int) -> Any:
        ready.wait()
        return work(model, number)

    with ThreadPoolExecutor(len(numbers) + 1) as pool:
        grown = pool.submit(beside, grow, TIMES[device])
        found = list(pool.map(lambda number: beside(ask, number), numbers))
        grown.result()
    return alone, found


@pytest.mark.parametrize("family", FAMILIES)
def test_a_result_under_load_is_the_result_alone_bit_for_bit(family: str) -> None:
    """Without the option it differs in the last digits."""
    model = oscine.load(CHECKPOINTS[family], "cpu", deterministic=True)
    alone, found = alone_and_under_load(family, model, "cpu")
    assert found == alone
    assert model.engine.occupancy.max_sequences <= 1


@pytest.mark.gpu
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "ctc"])
def test_a_gpu_computes_side_by_side_what_it_computes_alone(family: str) -> None:
    model = oscine.load(CHECKPOINTS[family], "gpu", deterministic=True)
    alone, found = alone_and_under_load(family, model, "gpu")
    assert found == alone
    assert model.engine.fixed_rows == Gpu.preferred_batch
    assert model.engine.occupancy.multi_caller_bursts


def test_each_process_of_a_fleet_is_loaded_so() -> None:
    with open_fleet(
        ["cpu"], str(CHECKPOINTS["parakeet"]), "auto", offline=True, deterministic=True
    ) as model:
        alone, found = alone_and_under_load("parakeet", model, "cpu")
    assert found == alone


@pytest.mark.parametrize("family", FAMILIES)
def test_a_runner_that_is_made_again_after_a_loss_is_so_too(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oscine.backends.LOSS_COUNTS", Counter())
    model = oscine.load(CHECKPOINTS[family], "cpu", deterministic=True)
    ask, _ = FAMILIES[family]
    before, alone = model.runner, ask(model, 0)
    losses = [DeviceLostError("NumPy", "taken away by the test")]

    def lose(runner: Any) -> None:
        if losses:
            raise losses.pop()

    model.engine.call(lose)
    assert model.runner is not before and model.engine.fixed_rows == 1
    assert ask(model, 0) == alone
    if family == "qwen3_tts":
        assert (
            model.runner.backend.batch_invariant
            and model.runner.utterance_executor.codec.one_voice_per_chunk
        )
    elif family != "whisper":
        assert model.runner.encoder.batch_invariant
