"""The bodies of requests and answers for /openapi.json, made from the records of the options."""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType
from typing import Any, get_args, get_origin

from oscine.options import Option, options_of
from oscine.options.command import SpeakCommand
from oscine.options.layout import Layout
from oscine.options.speak import SpeakOptions, VoiceOptions
from oscine.options.transcribe import TranscribeOptions
from oscine.server import speech, transcriptions

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
FILE: Schema = {"type": "string", "format": "binary"}
JSON = "application/json"
EVENTS = "text/event-stream"
#: Media types of transcriptions and of speech.
TEXT_TYPES = (JSON, "text/plain", "text/vtt", EVENTS)
SPEECH_TYPES = (*speech.MEDIA_TYPES.values(), EVENTS)
OPTIONAL_TEXT: Schema = {"type": ["string", "null"]}
ERROR: Schema = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": TEXT,
                "type": TEXT,
                "param": OPTIONAL_TEXT,
                "code": OPTIONAL_TEXT,
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def transcription_body() -> Schema:
    """The multipart form of transcriptions and translations."""
    own = properties(TranscribeOptions, Layout)
    fields: dict[str, Schema] = {
        **own,
        "file": FILE,
        "model": TEXT,
        "prompt": TEXT,
        "keywords[]": TEXTS,
        "languages[]": TEXTS,
        "response_format": {"type": "string", "enum": list(transcriptions.FORMATS)},
        "temperature": {"type": "number", "minimum": 0, "maximum": 1},
        "timestamp_granularities[]": {
            "type": "array",
            "items": {"type": "string", "enum": list(transcriptions.GRANULARITIES)},
        },
        "chunking_strategy": TEXT,
        "stream": {"type": "boolean"},
    }
    return _body("multipart/form-data", fields, ("file", "model"))


def speech_body() -> Schema:
    """The JSON of speech."""
    command = options_of(SpeakCommand)
    own = properties(VoiceOptions, SpeakOptions)
    fields: dict[str, Schema] = {
        **own,
        **{name: _property(command[name]) for name in ("mark", "plain")},
        "model": TEXT,
        "input": {"type": "string", "maxLength": speech.MAX_INPUT_CHARACTERS},
        "voice": {"anyOf": [TEXT, {"type": "object", "properties": {"id": TEXT}}]},
        "instructions": TEXT,
        "response_format": {"type": "string", "enum": list(speech.MEDIA_TYPES)},
        "speed": {"type": "number", "enum": [1]},
        "stream_format": {"type": "string", "enum": ["audio", "sse"]},
        "stream": {"type": "boolean"},
    }
    return _body(JSON, fields, ("model", "input"))


def voice_body() -> Schema:
    """The form of a voice to make."""
    fields: dict[str, Schema] = {
        "name": TEXT,
        "type": {"type": "string", "enum": ["audio_sample", "prompt"]},
        "audio_sample": FILE,
        "consent": TEXT,
        "prompt": TEXT,
        "model": TEXT,
        "reference_text": TEXT,
        "reference_silence": {"type": "number", "minimum": 0, "maximum": 5},
    }
    return _body("multipart/form-data", fields, ("name",))


def responses(media_types: Iterable[str]) -> dict[int | str, Schema]:
    """The answers of a route by status: content of one of the types, or an error."""
    content = {
        each: {"schema": {"type": "object"} if each == JSON else FILE if "audio" in each else TEXT}
        for each in media_types
    }
    error = {JSON: {"schema": ERROR}}
    return {
        200: {"description": "The result.", "content": content},
        "4XX": {"description": "The request is refused.", "content": error},
        "5XX": {"description": "The server cannot answer; see docs/serve.md.", "content": error},
    }


def _body(media_type: str, fields: dict[str, Schema], required: Iterable[str]) -> Schema:
    content = {"type": "object", "properties": fields, "required": list(required)}
    return {
        "required": True,
        "content": {media_type: {"schema": {**content, "additionalProperties": False}}},
    }


def properties(*kinds: type[Any]) -> dict[str, Schema]:
    """The schemas of the options of classes, by name."""
    return {name: _property(each) for kind in kinds for name, each in options_of(kind).items()}


def _property(record: Option) -> Schema:
    """The schema of an option: its type as far as JSON has it, and its help."""
    kinds = [kind for kind in get_args(record.type) or (record.type,) if kind is not NoneType]
    row: Schema = {"description": record.help}
    if get_origin(record.type) is None or get_origin(record.type) is not tuple:
        if kinds and all(kind in JSON_TYPES for kind in kinds):
            types = [JSON_TYPES[kind] for kind in kinds]
            row["type"] = types[0] if len(types) == 1 else types
        elif kinds and all(isinstance(kind, str) for kind in kinds):
            row |= {"type": "string", "enum": kinds}
    return row
