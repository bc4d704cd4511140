"""/v1/audio/speech and /v1/audio/voices: a text to speech, which leaves as it is made."""

from __future__ import annotations

import base64
import binascii
import io
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, Protocol

import oscine
from oscine.audio.io import open_source
from oscine.audio.write import AudioWriter, format_of
from oscine.options import hints_for, options_of
from oscine.options.command import SpeakCommand
from oscine.options.speak import SpeakOptions, VoiceOptions
from oscine.server.catalog import Catalog, ServedModel
from oscine.server.errors import ApiError, invalid, named_options, unsupported
from oscine.server.fields import Fields, checked
from oscine.server.gate import Job

#: Response format -> media type; pcm has 16-bit samples without a header.
MEDIA_TYPES: Mapping[str, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
#: OpenAI's voices, which its clients name; each means a voice of the model.
OPENAI_VOICES = (
    *("alloy", "ash", "ballad", "coral", "echo", "fable", "onyx"),
    *("nova", "sage", "shimmer", "verse", "marin", "cedar"),
)
DEFAULT = "default"  # the voice that a model takes where none is named
MAX_INPUT_CHARACTERS = 100_000
MAX_VOICES = 64  # that clients have made
TOKENS_PER_S = 10  # by which usage counts audio


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """What a client asks for.

    `options`: those of the model's `stream`. `spellings`: options -> the fields that set them.
    `mark`: state in the file's metadata that the speech is synthetic.
    """

    model: str
    text: str
    voice: str
    response_format: str
    events: bool
    stream: bool
    mark: bool
    options: Mapping[str, Any]
    spellings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpeechResult:
    """How speech ended: as oscine.models.speech.Speech has it, and its length in seconds."""

    duration: float
    finish_reason: str
    seed: int


def read_request(fields: Fields) -> SpeechRequest:
    """The request of a JSON body.

    Raises ApiError, which names the field that is wrong, unknown or not supported.
    """
    model, text = fields.required_text("model"), fields.required_text("input")
    if len(text) > MAX_INPUT_CHARACTERS:
        count = f"{len(text)} characters, of which {MAX_INPUT_CHARACTERS} are allowed"
        raise invalid("input", f"input has {count}", "string_above_max_length")
    voice = fields.take("voice", DEFAULT)
    if isinstance(voice, dict) and set(voice) == {"id"}:
        voice = voice["id"]
    if not isinstance(voice, str):
        raise invalid("voice", 'voice must be a name or {"id": NAME}')
    response_format = fields.choice("response_format", tuple(MEDIA_TYPES), "mp3")
    with named_options({"format": "response_format"}):
        format_of(io.BytesIO(), response_format)
    if fields.number("speed", 0.25, 4.0) not in (None, 1.0):
        raise unsupported("speed", hints_for(SpeakOptions)["speed"])
    events = fields.choice("stream_format", ("audio", "sse"), "audio") == "sse"
    stream = fields.flag("stream", True)
    if events and not stream:
        raise invalid("stream", "stream=false does not go with stream_format sse")
    command = fields.options(SpeakCommand, "mark", "plain")
    for name, value in command.items():
        command[name] = Fields({name: value}).flag(name, True)
    options, spellings = _read_options(fields)
    return SpeechRequest(
        model,
        oscine.plain_text(text) if command.get("plain") else text,
        voice,
        response_format,
        events,
        stream,
        command.get("mark", True),
        options,
        spellings,
    )


def _read_options(fields: Fields) -> tuple[dict[str, Any], dict[str, str]]:
    """The options of a request and the fields that set them."""
    instructions = fields.text("instructions")
    options = fields.options(VoiceOptions)
    own = fields.options(SpeakOptions)
    rest = fields.rest()
    spellings = {name: name for name in ("voice", *options, *own, *rest)}
    if instructions is not None and instructions.strip():
        if "instruct" in options:
            raise invalid("instruct", "instruct does not go with instructions, which means it")
        options["instruct"], spellings["instruct"] = instructions, "instructions"
    if "reference" in options:
        options["reference"] = decode_recording(options["reference"])
    with named_options(spellings):
        checked(SpeakOptions, own | rest)
    return options | own, spellings


def decode_recording(given: Any) -> bytes:
    """The bytes of a data URL, or of base64 alone. Raises ApiError for a path or an address."""
    text = given if isinstance(given, str) else ""
    head, comma, body = text.partition(",")
    if text.startswith("data:") and not (comma and head.endswith(";base64")):
        body = ""
    try:
        data = base64.b64decode(body if comma else text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data:
        raise invalid("reference", "reference must be a recording in base64, or as a data URL")
    return data


# -- voices -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MadeVoice:
    """A voice that a client has made of a recording or a description, for one model."""

    id: str
    name: str
    kind: Literal["audio_sample", "prompt"]
    model: str
    options: Mapping[str, Any]  # by which the model speaks with it
    created: int = field(default_factory=lambda: int(time.time()))

    def to_dict(self) -> dict[str, Any]:
        """OpenAI's voice object."""
        row: dict[str, Any] = {
            "id": self.id,
            "object": "audio.voice",
            "created_at": self.created,
            "name": self.name,
            "type": self.kind,
            "model": self.model,
        }
        return row | ({"prompt": self.options["instruct"]} if self.kind == "prompt" else {})


class Voices:
    """The voices of the models, and those that clients make, which last as long as the server."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._made: dict[str, MadeVoice] = {}

    def listing(self) -> list[dict[str, Any]]:
        """All voices: of the models, of clients, and OpenAI's names where they mean one."""
        rows: list[dict[str, Any]] = []
        for served in self._catalog.models.values():
            if served.model is None or served.task != "speak":
                continue
            names = own_voices(served.model)
            for name in (*names, *(OPENAI_VOICES if names else ()), DEFAULT):
                rows.append({"id": name, "name": name, "model": served.id})
        return rows + [voice.to_dict() for voice in self._made.values()]

    def options_for(self, served: ServedModel, voice: str) -> Mapping[str, Any]:
        """The options by which a model speaks with a voice. Raises ApiError: 404 for no voice.

        A name is looked up and never reaches the model otherwise: there it could be a path.
        """
        made = self._made.get(voice)
        if made is not None and made.model == served.id:
            return made.options
        names, default = own_voices(served.model), served.model.capabilities.default_voice
        if voice in ("", DEFAULT):
            return {} if default is None else {"voice": default}
        for name in (voice, voice.lower()):
            if name in names:
                return {"voice": name}
        if names and voice.lower() in OPENAI_VOICES:
            first = names.index(default) if default in names else 0
            return {"voice": names[(first + OPENAI_VOICES.index(voice.lower())) % len(names)]}
        known = ", ".join((*names, DEFAULT))
        message = f"there is no voice {voice[:100]!r}; {served.id} has {known}"
        raise ApiError(404, message, "voice_not_found", param="voice")

    def model_for(self, kind: str, name: str | None) -> str:
        """The name of the model that makes voices of recordings (base) or descriptions
        (voice_design): `name`, or the first that is loaded. Raises ApiError if there is none.
        """
        if name not in (None, "auto"):
            return str(name)
        for served in self._catalog.models.values():
            if served.model is not None and served.task == "speak":
                if served.model.capabilities.kind == kind:
                    return served.id
        purpose = "clones recordings" if kind == "base" else "designs voices"
        raise unsupported("type", f"no model that {purpose} is loaded; name one by model")

    def add(self, served: ServedModel, name: str, kind: Any, options: Mapping[str, Any]) -> Any:
        """Keep a voice that a client has made. Raises ApiError if there are too many."""
        if len(self._made) >= MAX_VOICES:
            raise ApiError(400, f"there are {MAX_VOICES} voices; delete one", "too_many_voices")
        made = MadeVoice(f"voice_{secrets.token_hex(8)}", name, kind, served.id, options)
        self._made[made.id] = made
        return made

    def remove(self, id: str) -> None:
        """Forget a voice that a client has made. Raises ApiError: 404."""
        if self._made.pop(id, None) is None:
            raise ApiError(
                404, f"no client has made a voice {id[:100]!r}", "voice_not_found", param="id"
            )


def own_voices(model: Any) -> tuple[str, ...]:
    """The voices that a model has of its own or saved, by name."""
    return tuple(getattr(model, "voices", None) or model.capabilities.speakers)


# -- the work, in a thread --------------------------------------------------------------------


def clone(
    model: Any, file: BinaryIO, text: str | None, silence: float, max_audio_seconds: float
) -> Callable[[Job], Any]:
    """The work that makes a voice of a recording: it returns the voice, and closes the file."""
    spellings = {"reference_text": "reference_text", "silence": "reference_silence"}

    def work(job: Job) -> Any:
        with closing(file), named_options(spellings):
            source = open_source(file, name="audio_sample").with_max_duration(max_audio_seconds)
            return model.voice_of(source, text, silence=silence)

    return work


class ChunkWriter:
    """A binary file that cannot seek: it keeps what an encoder writes until it is taken."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: Any) -> int:
        """Keep bytes."""
        self._data += data
        return len(data)

    def take(self) -> bytes:
        """The bytes since the last call."""
        taken, self._data = bytes(self._data), bytearray()
        return taken


class TextSource(Protocol):
    """A text that comes in parts, which is told the sample rate of its speech."""

    rate: int

    def __iter__(self) -> Iterator[str]: ...


def speak(
    model: Any,
    request: SpeechRequest,
    voice_options: Mapping[str, Any],
    max_audio_seconds: float,
    parts: TextSource | None = None,
) -> Callable[[Job], SpeechResult]:
    """The work of a request: it puts the bytes of the file, and returns how the speech ended.

    `max_audio_seconds`: of a reference recording. `parts`: the text, where it comes in parts.
    """
    spellings = {**request.spellings, "text": "input"}

    def work(job: Job) -> SpeechResult:
        options = {**request.options, **voice_options}
        if isinstance(options.get("reference"), bytes):
            source = open_source(options["reference"], name="reference")
            options["reference"] = source.with_max_duration(max_audio_seconds)
        with named_options(spellings, options):
            _check_instruct(model, options)
            text = request.text if parts is None else parts
            stream = model.stream(text, cancel=job.should_stop, **options)
            if parts is not None:
                parts.rate = stream.rate
            with closing(stream):
                write = _write_stream if request.stream else _write_whole
                return write(job, stream, request)

    return work


def _check_instruct(model: Any, options: Mapping[str, Any]) -> None:
    """Raise ApiError where a model would ignore the instructions, of which it only logs."""
    saved = getattr(model, "folder", None)
    if options.get("instruct") is None or saved is None:
        return
    how = {name: options[name] for name in options_of(VoiceOptions) if name in options}
    plain = {name: value for name, value in options.items() if name not in how}
    if model.capabilities.check(saved, SpeakOptions.of(**plain), **how).instruct is None:
        raise unsupported("instructions", f"{model.name} does not follow instructions")


def _write_stream(job: Job, stream: Any, request: SpeechRequest) -> SpeechResult:
    """Put the bytes of each piece of audio once it is encoded."""
    chunks: Any = ChunkWriter()
    comment = stream.mark if request.mark else None
    with AudioWriter(chunks, stream.rate, request.response_format, comment=comment) as writer:
        for audio in stream:
            writer.write(audio.samples)
            if data := chunks.take():
                job.put(data)
    if not writer.count:
        raise ApiError(500, "the model has generated no speech", "no_speech")
    if data := chunks.take():
        job.put(data)
    return SpeechResult(writer.duration, stream.finish_reason or "end", stream.seed)


def _write_whole(job: Job, stream: Any, request: SpeechRequest) -> SpeechResult:
    """Put the whole file, whose header has its true length."""
    speech, file = stream.speech(), io.BytesIO()
    if not len(speech.samples):
        raise ApiError(500, "the model has generated no speech", "no_speech")
    speech.save(file, request.response_format, mark=request.mark)
    job.put(file.getvalue())
    return SpeechResult(speech.duration, speech.finish_reason, speech.seed)


def usage_of(request: SpeechRequest, result: SpeechResult) -> dict[str, int]:
    """OpenAI's usage: characters of the text, and audio by its length."""
    spoken = round(result.duration * TOKENS_PER_S)
    return {
        "input_tokens": len(request.text),
        "output_tokens": spoken,
        "total_tokens": len(request.text) + spoken,
    }
