"""What `oscine serve` gives the server: how models are described, loaded and unloaded."""

from __future__ import annotations

import gc
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from oscine.cli.serve import ServedModels
from oscine.errors import UsageError
from oscine.options.serve import ServeOptions

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
WHISPER = str(GOLDENS / "whisper_multi")
SPEECH = str(GOLDENS / "qwen3_tts" / "custom_voice" / "ckpt")


def models(device: str) -> ServedModels:
    return ServedModels(ServeOptions.of(device=device, offline=True))


def test_models_are_described_without_being_loaded() -> None:
    described = {name: models("cpu").describe(name) for name in (WHISPER, SPEECH, "tiny.en")}
    assert [task for task, _ in described.values()] == ["transcribe", "speak", "transcribe"]
    size = (GOLDENS / "whisper_multi" / "model.safetensors").stat().st_size
    assert size < described[WHISPER][1] < 10 * size
    assert models("cpu").describe("qwen3-tts-0.6b-base")[0] == "speak"
    assert models("cpu").describe(str(GOLDENS / "audio")) == (None, pytest.approx(1e6, abs=1e8))


def check_unloading(device: str, example: Path) -> None:
    served = models(device)
    loaded: Any = served.load(WHISPER)
    text = loaded.transcribe(example, sample_len=4, temperature=0).text
    assert served.memory_used(loaded) > 100_000
    backend = loaded.engine.runner.backend
    held = [weakref.ref(each) for each in (loaded.engine.runner, backend, backend.budget)]
    del backend
    owned = [loaded]
    del loaded
    served.unload(owned.pop())
    for _ in range(100):  # the thread of the device may be in its last iteration
        gc.collect()
        if not any(each() for each in held):
            break
        time.sleep(0.05)
    assert [each() for each in held] == [None] * 3
    again: Any = served.load(WHISPER)
    assert again.transcribe(example, sample_len=4, temperature=0).text == text


def test_an_unloaded_model_leaves_no_memory(example: Path) -> None:
    check_unloading("cpu", example)


@pytest.mark.gpu
def test_an_unloaded_model_leaves_no_memory_on_a_gpu(example: Path) -> None:
    check_unloading("gpu", example)


@pytest.mark.parametrize("given", ["much", "50%", "0", "-1GB"])
def test_a_limit_that_is_no_size(given: str) -> None:
    with pytest.raises(UsageError, match="max_memory must be a size"):
        ServeOptions.of(max_memory=given)
    assert ServeOptions.of(max_memory="1.5GB").max_memory == 1_500_000_000
