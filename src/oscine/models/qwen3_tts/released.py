"""Released Qwen3-TTS models that are known by name, and what they support.

Megabytes include the codec.
"""

from __future__ import annotations

from typing import Literal

from oscine.family import Release

#: model_type of their configuration, and of the codec's, which is in a folder of its own.
MODEL_TYPE, CODEC_TYPE = "qwen3_tts", "qwen3_tts_tokenizer_12hz"
CODEC_FOLDER = "speech_tokenizer"

#: Languages of all released models.
LANGUAGES = (
    *("chinese", "english", "french", "german", "italian"),
    *("japanese", "korean", "portuguese", "russian", "spanish"),
)
_LANGUAGE_COUNT = str(len(LANGUAGES))

MODELS: dict[str, Release] = {
    "qwen3-tts-0.6b-base": Release("Qwen/Qwen3-TTS-12Hz-0.6B-Base", 2512, _LANGUAGE_COUNT),
    "qwen3-tts-0.6b-custom-voice": Release(
        "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice", 2494, _LANGUAGE_COUNT
    ),
    "qwen3-tts-1.7b-base": Release("Qwen/Qwen3-TTS-12Hz-1.7B-Base", 4540, _LANGUAGE_COUNT),
    "qwen3-tts-1.7b-custom-voice": Release(
        "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice", 4516, _LANGUAGE_COUNT
    ),
    "qwen3-tts-1.7b-voice-design": Release(
        "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign", 4516, _LANGUAGE_COUNT
    ),
}
#: tts_model_type and tts_model_size of each; a saved voice must be of the same size.
TTS_MODELS: dict[str, tuple[Literal["base", "custom_voice", "voice_design"], str]] = {
    "qwen3-tts-0.6b-base": ("base", "0b6"),
    "qwen3-tts-0.6b-custom-voice": ("custom_voice", "0b6"),
    "qwen3-tts-1.7b-base": ("base", "1b7"),
    "qwen3-tts-1.7b-custom-voice": ("custom_voice", "1b7"),
    "qwen3-tts-1.7b-voice-design": ("voice_design", "1b7"),
}
#: The voices of the custom voice models, each with its dialect or None.
SPEAKERS: dict[str, str | None] = {
    **{"aiden": None, "dylan": "beijing_dialect", "eric": "sichuan_dialect", "ono_anna": None},
    **{"ryan": None, "serena": None, "sohee": None, "uncle_fu": None, "vivian": None},
}

#: The default model: the smallest that has voices of its own.
DEFAULT = "qwen3-tts-0.6b-custom-voice"
#: The default model for cloning; custom voice models cannot clone.
DEFAULT_CLONER = "qwen3-tts-0.6b-base"
