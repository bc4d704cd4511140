"""What a model that speaks can be asked for, and one line for all that it cannot.

Of released models that is known before they are fetched, of others once their configuration is
read. The checks are the same for both, so that no mistake costs a download.
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
from oscine.text.qwen import checked_text

log = logging.getLogger(__name__)

TYPE_PURPOSES: Mapping[TtsModelType, str] = {
    "custom_voice": "speaks with its own voices",
    "voice_design": "makes up a voice from a description",
    "base": "clones the voice of a recording",
}
#: What a kind is called, and released models of it.
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
#: Which kinds take what.
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
    """What is asked for, checked. `speaker`: one of the model's own; `voice`: one to be cloned."""

    language: str
    instruct: str | None = None
    speaker: str | None = None
    voice: Voice | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`name`: as messages call the model. `size`: "0b6" or "1b7". `speakers`: its own voices in
    lower case, and the dialect of those who speak one. `languages`: without dialects, sorted."""

    name: str
    kind: TtsModelType
    size: str
    speakers: Mapping[str, str | None]
    languages: tuple[str, ...]

    @classmethod
    def from_config(cls, config: Qwen3TtsConfig, name: str) -> Capabilities:
        """As a configuration states them."""
        speakers = {name: config.spk_is_dialect.get(name) for name in sorted(config.spk_id)}
        return cls(
            name, config.tts_model_type, config.tts_model_size, speakers, config.supported_languages
        )

    @property
    def default_voice(self) -> str | None:
        """Whom the command has speak where nobody is named: ryan, else the first; None without."""
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
        """Who is to speak and how; nothing is computed for it.

        Raises UsageError for what this model cannot do, CheckpointError for a damaged voice.
        """
        name = normalize_language(language)
        if name not in ("auto", *self.languages):
            known = ", ".join(self.languages)
            raise UsageError(
                f"{self.name} does not speak {language!r}; it speaks {known} (or auto)"
            )
        if instruct is not None and not isinstance(instruct, str):
            raise UsageError(f"instruct must be text, not {abbreviate(instruct)}")
        checked_text(instruct or "", "instruct")
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
        ):  # as upstream: it is left out of the prompt
            log.warning("%s heeds no instruct: it is left out; use %s", self.name, INSTRUCT_MODEL)
            instruct = None
        return VoiceRequest(name, instruct, self._find_speaker(saved, voice))

    def accepts_voice(self, voice: Voice) -> bool:
        """Whether a saved voice was made by a base model of the same size, as far as is known."""
        known = voice.size in BASE_MODELS and self.size in BASE_MODELS
        return voice.size == self.size or not known

    def require_cloning(self) -> None:
        """Raise UsageError for a model that takes the voice of no recording."""
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
        """One of the model's own voices, in whatever case it is written."""
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
        """The saved voice that is asked for; None where it is to be made of the reference."""
        if voice is not None and reference is not None:
            raise UsageError("give a reference or a voice, not both")
        if reference is not None:
            if options.x_vector_only is False and text is None:
                raise UsageError(
                    "a reference without reference_text, the words that are said in it, can only "
                    "be used with x_vector_only"
                )
            if text is not None:
                check_reference_text(text, "reference_text")
            return None
        given = "reference_text" if text is not None else "reference_silence"
        if text is not None or options.reference_silence:
            raise UsageError(f"{given} goes with a reference, and there is none")
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
    """A language as models know it, of any name or code of it: "en-GB" is "english", "Deutsch" is
    "german".

    A language that is not known is left as it is, to be refused where the model's are known.
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
