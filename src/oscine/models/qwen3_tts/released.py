"""Qwen's models that speak and are known by name, each with its codec, and what they can do.

The sizes are those of the tensors.
"""

from __future__ import annotations

from typing import Literal

from oscine.family import Release

#: What their configurations state, and the codec's, a model of its own in a folder below.
MODEL_TYPE, CODEC_TYPE = "qwen3_tts", "qwen3_tts_tokenizer_12hz"
CODEC_FOLDER = "speech_tokenizer"

#: What all of them speak.
LANGUAGES = (
    *("chinese", "english", "french", "german", "italian"),
    *("japanese", "korean", "portuguese", "russian", "spanish"),
)
_COUNT = str(len(LANGUAGES))

MODELS: dict[str, Release] = {
    "qwen3-tts-0.6b-base": Release("Qwen/Qwen3-TTS-12Hz-0.6B-Base", 2512, _COUNT),
    "qwen3-tts-0.6b-custom-voice": Release("Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice", 2494, _COUNT),
    "qwen3-tts-1.7b-base": Release("Qwen/Qwen3-TTS-12Hz-1.7B-Base", 4540, _COUNT),
    "qwen3-tts-1.7b-custom-voice": Release("Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice", 4516, _COUNT),
    "qwen3-tts-1.7b-voice-design": Release("Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign", 4516, _COUNT),
}
#: What each is for, and the size its configuration states, which a saved voice must have too.
TTS_MODELS: dict[str, tuple[Literal["base", "custom_voice", "voice_design"], str]] = {
    "qwen3-tts-0.6b-base": ("base", "0b6"),
    "qwen3-tts-0.6b-custom-voice": ("custom_voice", "0b6"),
    "qwen3-tts-1.7b-base": ("base", "1b7"),
    "qwen3-tts-1.7b-custom-voice": ("custom_voice", "1b7"),
    "qwen3-tts-1.7b-voice-design": ("voice_design", "1b7"),
}
#: Whose voices the custom voice models have, and the dialect of those who speak one.
SPEAKERS: dict[str, str | None] = {
    **{"aiden": None, "dylan": "beijing_dialect", "eric": "sichuan_dialect", "ono_anna": None},
    **{"ryan": None, "serena": None, "sohee": None, "uncle_fu": None, "vivian": None},
}

#: What speaks where no model is named: the smallest that has voices of its own.
DEFAULT = "qwen3-tts-0.6b-custom-voice"
#: And what takes the voice of a recording: speakers of their own cannot be lent another voice.
DEFAULT_CLONER = "qwen3-tts-0.6b-base"
