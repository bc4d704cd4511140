"""What commands ask of Qwen3-TTS before a model is loaded: voices, and what a model can do."""

from __future__ import annotations

from oscine import hub
from oscine.family import VoiceSupport
from oscine.models.qwen3_tts.capabilities import Capabilities
from oscine.models.qwen3_tts.config import read_config
from oscine.models.qwen3_tts.released import CODEC_FOLDER, LANGUAGES, SPEAKERS, TTS_MODELS
from oscine.models.qwen3_tts.voices import VoiceFolder, check_reference_text
from oscine.weights import Checkpoint, read_checkpoint


def voice_folder() -> VoiceFolder:
    """The voices of this machine's user."""
    return VoiceFolder(hub.home() / "voices")


def released_capabilities(name: str) -> Capabilities:
    """What a model that is known by name can be asked for, whether or not it is here."""
    kind, size = TTS_MODELS[name]
    return Capabilities(name, kind, size, SPEAKERS if kind == "custom_voice" else {}, LANGUAGES)


def read_capabilities(checkpoint: Checkpoint, name: str) -> Capabilities:
    """What a model can be asked for, by its configuration. Raises CheckpointError."""
    codec = read_checkpoint(checkpoint.folder / CODEC_FOLDER)
    return Capabilities.from_config(read_config(checkpoint, codec), name)


SPEAKING = VoiceSupport(
    voice_folder, check_reference_text, released_capabilities, read_capabilities
)
