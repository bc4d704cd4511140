"""What a speech model can be asked for, and one-line errors for requests it cannot fulfil.

Capabilities of released models are known before they are downloaded; those of other models are read
from their configuration. Both are checked by the same code, so that no mistake costs a download.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oscine.errors import UsageError
from oscine.models.qwen3_tts.config import Qwen3TtsConfig, TtsModelType
from oscine.models.qwen3_tts.prompt import SIZE_WITHOUT_INSTRUCT
from oscine.models.qwen3_tts.voices import Voice, VoiceFolder, check_reference_text, describe_size
from oscine.options.checks import abbreviate
from oscine.options.speak import DEFAULT_VOICE as DEFAULT_VOICE
from oscine.options.speak import SpeakOptions
from oscine.text.languages import AUTO, LANGUAGES, find_language
from oscine.text.qwen import check_characters

log = logging.getLogger(__name__)

TYPE_PURPOSES: Mapping[TtsModelType, str] = {
    "custom_voice": "speaks with its own voices",
    "voice_design": "designs a voice from a description",
    "base": "clones the voice of a recording",
}
#: The name of a model type in messages, and a released model of it.
TYPE_TITLES: Mapping[TtsModelType, str] = {
    "custom_voice": "custom voice",
    "voice_design": "voice design",
    "base": "base",
}
EXAMPLE_MODELS: Mapping[TtsModelType, str] = {
    "custom_voice": "qwen3-tts-0.6b-custom-voice",
    "voice_design": "qwen3-tts-1.7b-voice-design",
    "base": "qwen3-tts-0.6b-base",
}
INSTRUCT_MODEL = "qwen3-tts-1.7b-custom-voice"
BASE_MODELS = {"0b6": "qwen3-tts-0.6b-base", "1b7": "qwen3-tts-1.7b-base"}
#: The model types that accept each argument.
SUPPORTED_TYPES: Mapping[str, tuple[TtsModelType, ...]] = {
    "voice": ("custom_voice", "base"),
    "instruct": ("voice_design", "custom_voice"),
    "reference": ("base",),
    "reference_text": ("base",),
    "x_vector_only": ("base",),
    "reference_silence": ("base",),
}


@dataclass(frozen=True, slots=True, eq=False)
class VoiceRequest:
    """A checked request. `speaker`: one of the model's own voices; `voice`: a saved voice."""

    language: str
    instruct: str | None = None
    speaker: str | None = None
    voice: Voice | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model can be asked for.

    `name`: the model's name in messages. `size`: "0b6" or "1b7". `speakers`: the model's own voices
    in lower case, each with its dialect or None. `languages`: sorted, without dialects.
    """

    name: str
    kind: TtsModelType
    size: str
    speakers: Mapping[str, str | None]
    languages: tuple[str, ...]

    @classmethod
    def from_config(cls, config: Qwen3TtsConfig, name: str) -> Capabilities:
        """The capabilities that a configuration states."""
        speakers = {name: config.spk_is_dialect.get(name) for name in sorted(config.spk_id)}
        return cls(
            name, config.tts_model_type, config.tts_model_size, speakers, config.supported_languages
        )

    @property
    def default_voice(self) -> str | None:
        """The voice that the command uses by default: ryan, else the first; None if there are no
        voices.
        """
        return DEFAULT_VOICE if DEFAULT_VOICE in self.speakers else next(iter(self.speakers), None)

    def check(
        self,
        saved: VoiceFolder,
        options: SpeakOptions,
        *,
        voice: str | Path | Voice | None = None,
        language: str | None = "auto",
        instruct: str | None = None,
        reference: Any = None,
        reference_text: str | None = None,
    ) -> VoiceRequest:
        """Check the arguments of a request, without computing anything.

        Raises UsageError for arguments that this model does not support, CheckpointError for a
        damaged voice.
        """
        name = normalize_language(language)
        if name not in ("auto", *self.languages):
            known = ", ".join(self.languages)
            raise UsageError(
                f"{self.name} does not speak {language!r}; it speaks {known} (or auto)"
            )
        if instruct is not None and not isinstance(instruct, str):
            raise UsageError(f"instruct must be text, not {abbreviate(instruct)}")
        check_characters(instruct or "", "instruct")
        if voice is not None and not isinstance(voice, str | Path | Voice):
            raise UsageError(f"voice must be a name, a path or a Voice, not {abbreviate(voice)}")
        instruct = instruct if instruct and instruct.strip() else None
        self._check_supported(
            voice=voice, instruct=instruct, reference=reference, reference_text=reference_text,
            x_vector_only=options.x_vector_only or None,
            reference_silence=options.reference_silence or None,
        )  # fmt: skip
        if self.kind == "base":
            cloned = self._find_saved_voice(saved, options, voice, reference, reference_text)
            return VoiceRequest(name, voice=cloned)
        if self.kind == "voice_design":
            return VoiceRequest(name, instruct)
        if (
            instruct and self.size == SIZE_WITHOUT_INSTRUCT
        ):  # upstream leaves it out of the prompt too
            log.warning(
                "%s does not support instruct, which is ignored; use %s", self.name, INSTRUCT_MODEL
            )
            instruct = None
        return VoiceRequest(name, instruct, self._find_speaker(saved, voice))

    def accepts_voice(self, voice: Voice) -> bool:
        """Whether a saved voice was made by a base model of the same size, as far as sizes are
        known.
        """
        known = voice.size in BASE_MODELS and self.size in BASE_MODELS
        return voice.size == self.size or not known

    def require_cloning(self) -> None:
        """Raise UsageError for a model that cannot clone a voice from a recording."""
        if self.kind != "base":
            raise UsageError(
                f"{self.name} {TYPE_PURPOSES[self.kind]} and cannot clone others; use a base "
                f"model, such as {EXAMPLE_MODELS['base']}"
            )

    def _check_supported(self, **arguments: object) -> None:
        for name, value in arguments.items():
            supported = SUPPORTED_TYPES[name]
            if value is None or self.kind in supported:
                continue
            title, purpose = TYPE_TITLES[self.kind], TYPE_PURPOSES[self.kind]
            other, example = TYPE_TITLES[supported[0]], EXAMPLE_MODELS[supported[0]]
            raise UsageError(
                f"{self.name} is a {title} model, which {purpose}: it takes no {name}; leave that "
                f"out, or use a {other} model, such as {example}"
            )

    def _find_speaker(self, saved: VoiceFolder, voice: str | Path | Voice | None) -> str:
        """The key of one of the model's own voices, in any case."""
        known = ", ".join(self.speakers)
        if isinstance(voice, Voice | Path):
            raise UsageError(f"{self.name} speaks with its own voices: {known}")
        if voice is None:
            raise UsageError(f"a voice is needed; {self.name} has {known}")
        name = voice.strip().lower()
        if name in self.speakers:
            return name
        if saved.has(voice):
            base = BASE_MODELS.get(saved.load(voice).size, EXAMPLE_MODELS["base"])
            raise UsageError(
                f"{voice!r} is a saved voice, which needs a base model: {base}; {self.name} has "
                f"{known}"
            )
        problem = f"there is no voice {voice!r}" if name else "the name of the voice is empty"
        raise UsageError(f"{problem}; {self.name} has {known}")

    def _find_saved_voice(
        self,
        saved: VoiceFolder,
        options: SpeakOptions,
        voice: str | Path | Voice | None,
        reference: Any,
        text: str | None,
    ) -> Voice | None:
        """The requested saved voice, or None if the voice is to be cloned from `reference`."""
        if voice is not None and reference is not None:
            raise UsageError("give a reference or a voice, not both")
        if reference is not None:
            if options.x_vector_only is False and text is None:
                raise UsageError(
                    "a reference without reference_text, its transcript, can only be used with "
                    "x_vector_only"
                )
            if text is not None:
                check_reference_text(text, "reference_text")
            return None
        argument = "reference_text" if text is not None else "reference_silence"
        if text is not None or options.reference_silence:
            raise UsageError(f"{argument} needs a reference")
        if voice is None:
            known = ", ".join(saved.names()) or "none yet"
            raise UsageError(
                f"{self.name} is a base model, which clones voices: give a reference, which is a "
                f"recording, or a voice that was saved (saved: {known})"
            )
        found = voice if isinstance(voice, Voice) else saved.load(voice)
        if not self.accepts_voice(found):
            raise UsageError(
                f"voice {found.name!r} was made with {describe_size(found)}; {self.name} is of "
                "another size: save the voice again with it"
            )
        return found


def normalize_language(language: str | None) -> str:
    """A language as models name it: "en-GB" is "english", "Deutsch" is "german", None is "auto".

    An unknown language is returned unchanged; `Capabilities.check` rejects it and lists the model's
    languages. Raises UsageError if it is not a str.
    """
    if language is None:
        return "auto"
    if not isinstance(language, str):
        raise UsageError(f"language must be text such as english, en or auto, not {language!r}")
    name = language.strip().lower()
    if name in ("", *AUTO):
        return "auto"
    code = find_language(name)
    return name if code is None else LANGUAGES[code]
