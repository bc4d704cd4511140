"""A model's engine: reached by work that has it alone, and replaced where its device is lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import oscine
from oscine.errors import DeviceLostError
from oscine.models.resident import Alone

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"


class Engine:
    """Loses its device in the first `losses` calls."""

    def __init__(self, device: str, losses: int = 0) -> None:
        self.device, self.losses = device, losses
        self.timings = {"made": 1.0}

    def trace(self) -> dict[str, tuple[int, float]]:
        return {}

    def answer(self) -> str:
        if self.losses:
            self.losses -= 1
            raise DeviceLostError(self.device, "on purpose")
        return self.device


def test_work_is_done_over_on_a_new_engine() -> None:
    made = iter([Engine("second", 1), Engine("third")])
    model = Alone(Engine("first", 1), "name", lambda: next(made))
    timings = model.timings
    assert model.run(Engine.answer) == "third"
    assert model.current() is model.decoder and model.device == "third"
    assert model.timings is timings  # which go on


def test_without_another_engine_the_loss_is_the_callers() -> None:
    model = Alone(Engine("first", 1), "name")
    with pytest.raises(DeviceLostError):
        model.run(Engine.answer)
    assert model.run(Engine.answer) == "first"


def test_work_has_the_engine_alone() -> None:
    model, inside, most = Alone(Engine("one"), "name"), 0, 0
    ready = threading.Barrier(4)

    def work(engine: Engine) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(1000):
            engine.answer()
        model.run(Engine.answer)  # work may hold more work
        inside -= 1

    def caller() -> None:
        ready.wait()
        for _ in range(5):
            model.run(work)

    threads = [threading.Thread(target=caller) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


#: What the models offer their callers, in README or on the command line.
OF_ALL = {"name", "device", "timings"}
OF_TRANSCRIBERS = {
    *("transcribe", "transcribe_async", "transcribe_many", "stream", "listen"),
    *("encode", "multilingual", "recordings_at_once"),
}
#: For the names of openai-whisper: oscine.compat.whisper.
OF_WINDOWS = {"decode_window", "window_language", "languages"}
OFFERED = {
    "whisper_en": OF_TRANSCRIBERS | {"align", "detect_language", "tokenizer", *OF_WINDOWS},
    "parakeet_tdt": OF_TRANSCRIBERS | {"spelling"},
    "qwen3_tts/custom_voice/ckpt": {
        *("speak", "speak_async", "stream", "voice_of", "save_voice"),
        *("kind", "voices", "languages", "abilities", "folder", "tokenizer"),
    },
}
#: How its streams, the commands and the tools reach the engine of a model.
ENGINE = {"decoder", "engine", "runner", "current", "lock", "run", "surviving", "forget"}


@pytest.mark.parametrize("name", OFFERED)
def test_a_model_offers_its_callers_nothing_else(name: str) -> None:
    model = oscine.load(GOLDENS / name, "cpu")
    public = {each for each in dir(model) if not each.startswith("_")}
    assert public - ENGINE == OFFERED[name] | OF_ALL
