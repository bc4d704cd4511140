"""Who speaks, and how: the same for every piece of a text."""

from __future__ import annotations

from dataclasses import dataclass

from oscine.errors import UsageError
from oscine.models.qwen3_tts.config import Qwen3TtsConfig
from oscine.models.qwen3_tts.prompt import Prompt, PromptBuilder, Reference

#: Languages by their ISO 639-1 codes.
CODES = {
    **{"zh": "chinese", "en": "english", "ja": "japanese", "ko": "korean", "de": "german"},
    **{"fr": "french", "ru": "russian", "pt": "portuguese", "es": "spanish", "it": "italian"},
}
#: What a model is for, and what to do where something else is wanted.
OWN_VOICES = "speaks with its own voices"
DESIGNED = "makes up a voice from a description"
CLONED = "clones the voice of a recording"
ASK_FOR = {
    "custom_voice": "use a CustomVoice model",
    "voice_design": "use a VoiceDesign model",
    "base": "use a Base model",
}
PURPOSE = {"custom_voice": OWN_VOICES, "voice_design": DESIGNED, "base": CLONED}


@dataclass(frozen=True, slots=True, eq=False)
class Conditioning:
    """What every prompt of a call is conditioned on, checked already.

    `streamed`: the text is heard while speaking; None: as upstream has it.
    """

    language: str
    voice: str | None = None
    instruct: str | None = None
    reference: Reference | None = None
    streamed: bool | None = None

    def prompt(self, builder: PromptBuilder, text: str) -> Prompt:
        """The prompt of one piece of the text."""
        if self.reference is not None:
            streamed = True if self.streamed is None else self.streamed
            return builder.clone(text, self.reference, self.language, streamed=streamed)
        streamed = bool(self.streamed)
        if self.voice is not None:
            return builder.custom_voice(
                text, self.voice, self.language, self.instruct, streamed=streamed
            )
        return builder.voice_design(text, self.instruct, self.language, streamed=streamed)


def language_name(language: str | None) -> str:
    """A language as models know it, of its name or code in any case: "en-GB" is "english".

    What nobody knows is left as it is, to be refused where the languages are known.
    """
    if language is None:
        return "auto"
    if not isinstance(language, str):
        raise UsageError(f"language must be text such as english, en or auto, not {language!r}")
    name = language.strip().lower()
    return CODES.get(name.replace("_", "-").partition("-")[0], name) or "auto"


def refuse(config: Qwen3TtsConfig, model: str, **given: object) -> None:
    """Raise UsageError for the first thing given that a model of this kind has no use for.

    given: what only other kinds take, by the names of arguments; None and False are not given.
    """
    takers = {
        "reference": "base",
        "reference_text": "base",
        "x_vector_only": "base",
        "reference_silence": "base",
        "voice": "custom_voice",
        "instruct": "voice_design",
    }
    for name, value in given.items():
        if value is not None and value is not False and takers[name] != config.kind:
            raise UsageError(
                f"speak({name}=...): {model} is a {config.kind} model, which "
                f"{PURPOSE[config.kind]}; leave {name} out, or {ASK_FOR[takers[name]]}"
            )
