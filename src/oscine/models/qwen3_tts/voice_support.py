"""Functions that commands call before a Qwen3-TTS is loaded: saved voices and capabilities."""

from __future__ import annotations

from oscine import hub
from oscine.family import VoiceSupport
from oscine.models.qwen3_tts.capabilities import Capabilities
from oscine.models.qwen3_tts.config import read_config
from oscine.models.qwen3_tts.released import CODEC_FOLDER, LANGUAGES, SPEAKERS, TTS_MODELS
from oscine.models.qwen3_tts.voices import VoiceFolder, check_reference_text
from oscine.weights import Checkpoint, read_checkpoint


def voice_folder() -> VoiceFolder:
    """The saved voices of this machine's user."""
    return VoiceFolder(hub.home() / "voices")


def released_capabilities(name: str) -> Capabilities:
    """Capabilities of a model that is known by name, whether or not it is downloaded."""
    kind, size = TTS_MODELS[name]
    return Capabilities(name, kind, size, SPEAKERS if kind == "custom_voice" else {}, LANGUAGES)


def read_capabilities(checkpoint: Checkpoint, name: str) -> Capabilities:
    """Capabilities of any model, from its configuration. Raises CheckpointError."""
    codec = read_checkpoint(checkpoint.folder / CODEC_FOLDER)
    return Capabilities.from_config(read_config(checkpoint, codec), name)


VOICE_SUPPORT = VoiceSupport(
    voice_folder, check_reference_text, released_capabilities, read_capabilities
)
