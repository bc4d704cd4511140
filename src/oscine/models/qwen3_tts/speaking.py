"""What commands ask of Qwen3-TTS before a model is loaded: voices, and what a model can do."""

from __future__ import annotations

from oscine import hub
from oscine.family import Speaking
from oscine.models.qwen3_tts.capabilities import Abilities
from oscine.models.qwen3_tts.config import read_config
from oscine.models.qwen3_tts.released import CODEC_FOLDER, LANGUAGES, SPEAKERS, SPEAKS
from oscine.models.qwen3_tts.voices import VoiceFolder, checked_words
from oscine.weights import Checkpoint, read_checkpoint


def saved() -> VoiceFolder:
    """The voices of this machine's user."""
    return VoiceFolder(hub.home() / "voices")


def released(name: str) -> Abilities:
    """What a model that is known by name can be asked for, whether or not it is here."""
    kind, size = SPEAKS[name]
    return Abilities(name, kind, size, SPEAKERS if kind == "custom_voice" else {}, LANGUAGES)


def abilities(checkpoint: Checkpoint, name: str) -> Abilities:
    """What a model can be asked for, by its configuration. Raises CheckpointError."""
    codec = read_checkpoint(checkpoint.folder / CODEC_FOLDER)
    return Abilities.of(read_config(checkpoint, codec), name)


SPEAKING = Speaking(saved, checked_words, released, abilities)
