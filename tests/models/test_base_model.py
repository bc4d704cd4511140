"""A model's public attributes are those that are documented, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

import oscine

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"


#: The public attributes, documented in README or used by the command.
OF_ALL = {"name", "device", "timings"}
OF_TRANSCRIBERS = {
    *("transcribe", "transcribe_async", "transcribe_many", "stream", "listen"),
    *("encode", "multilingual", "recordings_at_once"),
}
#: For the names of openai-whisper: oscine.compat.whisper.
OF_WINDOWS = {"decode_window", "window_language", "languages"}
OFFERED = {
    "whisper_en": OF_TRANSCRIBERS | {"align", "detect_language", "tokenizer", *OF_WINDOWS},
    "parakeet_tdt": OF_TRANSCRIBERS | {"tokenizer"},
    "qwen3_tts/custom_voice/ckpt": {
        *("speak", "speak_async", "stream", "voice_of", "save_voice"),
        *("kind", "voices", "languages", "capabilities", "folder", "tokenizer"),
    },
}
#: How its streams, the commands and the tools reach the engine of a model.
ENGINE = {"engine", "runner", "trace"}


@pytest.mark.parametrize("name", OFFERED)
def test_a_model_offers_its_callers_nothing_else(name: str) -> None:
    model = oscine.load(GOLDENS / name, "cpu")
    public = {each for each in dir(model) if not each.startswith("_")}
    assert public - ENGINE == OFFERED[name] | OF_ALL
