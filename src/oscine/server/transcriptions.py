"""/v1/audio/transcriptions and /v1/audio/translations: a recording to text in OpenAI's formats."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from oscine import formats
from oscine.audio.io import open_source
from oscine.options.aliases import OPENAI_VAD_FIELDS
from oscine.options.layout import Layout
from oscine.options.transcribe import TranscribeOptions
from oscine.server.errors import UPLOAD, invalid, named_options, unsupported
from oscine.server.fields import Fields, checked
from oscine.server.gate import Job
from oscine.text.languages import LANGUAGES
from oscine.types import Segment, Transcript

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
MEDIA_TYPES: Mapping[str, str] = {
    "text": "text/plain; charset=utf-8",
    "srt": "text/plain; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}
GRANULARITIES = ("word", "segment")
#: Fields of OpenAI's API without a counterpart here.
UNSUPPORTED: Mapping[str, str] = {
    "include": "probabilities of tokens are not kept; words have a probability in verbose_json",
    "known_speaker_names": "speakers are not told apart; split_channels tells channels apart",
    "known_speaker_references": "speakers are not told apart; split_channels tells channels apart",
}
TOKENS_PER_S = 10  # by which usage counts audio, as OpenAI does


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """What a client asks for.

    `model`: its name for it. `options`: those of the model's `stream`. `spellings`: options -> the
    fields that set them, for messages.
    """

    model: str
    response_format: str
    stream: bool
    granularities: tuple[str, ...]
    options: Mapping[str, Any]
    layout: Layout
    spellings: Mapping[str, str] = field(default_factory=dict)


def read_request(fields: Fields, task: str, max_audio_seconds: float) -> TranscriptionRequest:
    """The request of a form. `task`: that of the route; a recording may be `max_audio_seconds`.

    Raises ApiError, which names the field that is wrong, unknown or not supported.
    """
    model = fields.required_text("model")
    response_format = _read_format(fields)
    stream = fields.flag("stream", False)
    if stream and response_format in formats.SUBTITLE_FORMATS:
        raise invalid("stream", f"stream does not go with response_format {response_format}")
    granularities = _read_granularities(fields, response_format)
    options, spellings = _read_options(fields, task)
    layout_options, rest = fields.options(Layout), fields.rest()
    spellings |= {name: name for name in (*layout_options, *rest)}
    with named_options(spellings):
        layout = Layout(**layout_options)
        if "word" in granularities or layout.needing_words:
            options.setdefault("word_timestamps", True)
            spellings.setdefault("word_timestamps", "timestamp_granularities")
        plain = checked(TranscribeOptions, options | rest)
    _check_formats(response_format, stream, granularities, layout, plain)
    options["max_audio_seconds"] = min(plain.max_audio_seconds or math.inf, max_audio_seconds)
    return TranscriptionRequest(
        model, response_format, stream, granularities, options, layout, spellings
    )


def _check_formats(
    response_format: str,
    stream: bool,
    granularities: tuple[str, ...],
    layout: Layout,
    options: TranscribeOptions,
) -> None:
    """Raise ApiError for options that do not go with the form of the answer."""
    if layout.requested and response_format not in formats.SUBTITLE_FORMATS:
        name = layout.requested[0]
        raise invalid(name, f"{name} is for response_format srt and vtt")
    if options.split_channels and stream:
        raise invalid("split_channels", "split_channels does not go with stream")
    if "word" in granularities and not options.word_timestamps:
        raise invalid("word_timestamps", "word_timestamps contradicts timestamp_granularities")


def _read_format(fields: Fields) -> str:
    name = "response_format"
    chosen = fields.choice(name, (*FORMATS, "diarized_json"), "json")
    if chosen == "diarized_json":
        reason = "speakers are not told apart"
        raise invalid(name, f"{name} {chosen} is not supported: {reason}", "unsupported_value")
    return chosen


def _read_granularities(fields: Fields, response_format: str) -> tuple[str, ...]:
    name = "timestamp_granularities"
    given = tuple(fields.texts(name))
    for each in given:
        if each not in GRANULARITIES:
            raise invalid(name, f"{name} {each[:40]!r} is not one of {', '.join(GRANULARITIES)}")
    if given and response_format != "verbose_json":
        raise invalid(name, f"{name} is for response_format verbose_json")
    return given or ("segment",)


def _read_options(fields: Fields, task: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The options of a request, and the fields that set them: OpenAI's, or of the same names."""
    for name, reason in UNSUPPORTED.items():
        if fields.has(name):
            raise unsupported(name, reason)
    options: dict[str, Any] = {}
    spellings: dict[str, str] = {}
    for option, spelling, value in _openai_options(fields):
        if option in options:
            raise invalid(spelling, f"{spelling} does not go with {spellings[option]}")
        options[option], spellings[option] = value, spelling
    for name, value in fields.options(TranscribeOptions).items():
        if name in options:
            raise invalid(name, f"{name} does not go with {spellings[name]}")
        options[name], spellings[name] = value, name
    if task == "translate" and options.setdefault("task", task) != task:
        raise invalid("task", "task must be translate on this route")
    return options, spellings


def _openai_options(fields: Fields) -> Iterator[tuple[str, str, Any]]:
    """(option, field, value) of OpenAI's fields."""
    prompt, keywords = fields.text("prompt"), fields.texts("keywords")
    if prompt is not None and prompt.strip():
        yield "initial_prompt", "prompt", prompt
    if keywords:
        yield "hotwords", "keywords", ", ".join(keywords)
    languages = fields.texts("languages")
    if len(languages) > 1:
        raise unsupported("languages", "give the one language that is spoken, or none")
    if languages:
        yield "language", "languages", languages[0]
    temperature = fields.take("temperature")
    if isinstance(temperature, list):  # several, to try in turn
        yield "temperature", "temperature", temperature
    elif value := Fields({"temperature": temperature}).number("temperature", 0.0, 1.0):
        yield "temperature", "temperature", value  # at 0 thresholds may raise it, as by default
    for option, value in _vad_options(fields.mapping("chunking_strategy")).items():
        yield option, "chunking_strategy", value


def _vad_options(strategy: str | dict[str, Any] | None) -> dict[str, Any]:
    """The options of a chunking strategy: auto, or an object of type server_vad."""
    name = "chunking_strategy"
    if strategy is None or strategy == "auto":
        return {}
    if isinstance(strategy, str) or strategy.get("type") != "server_vad":
        raise invalid(name, f"{name} must be auto or an object of type server_vad")
    for key in strategy:
        if key not in (*OPENAI_VAD_FIELDS, "type"):
            raise invalid(
                name, f"{name}: {key[:40]!r} is not one of {', '.join(OPENAI_VAD_FIELDS)}"
            )
    return {option: strategy[key] for key, option in OPENAI_VAD_FIELDS.items() if key in strategy}


# -- the work, in a thread --------------------------------------------------------------------


def transcribe(
    model: Any, file: BinaryIO, request: TranscriptionRequest
) -> Callable[[Job], Transcript]:
    """The work of a request: it puts each piece of the text, and returns the transcript.

    It closes the file.
    """

    def work(job: Job) -> Transcript:
        with closing(file):
            with named_options(request.spellings, request.options):
                source = open_source(file, name=UPLOAD)
                running = model.stream(source, cancel=job.should_stop, **request.options)
            for delta in text_deltas(segment.text for segment in running):
                if request.stream:
                    job.put(delta)
            transcript: Transcript = running.transcript()
            return transcript

    return work


def text_deltas(texts: Iterable[str]) -> Iterator[str]:
    """Pieces of the stripped text of segments; no piece is empty or ends in white space."""
    pending, begun = "", False
    for text in texts:
        text = pending + text if begun else text.lstrip()
        delta = text.rstrip()
        pending = text[len(delta) :]
        if delta:
            begun = True
            yield delta


# -- answers ----------------------------------------------------------------------------------


def body_of(
    transcript: Transcript, request: TranscriptionRequest, warnings: Sequence[str]
) -> tuple[bytes, str]:
    """The body of an answer and its media type. Raises ApiError."""
    name = request.response_format
    if name not in MEDIA_TYPES:
        content = json.dumps(to_json(transcript, request, warnings), ensure_ascii=False)
        return content.encode("utf-8", "replace"), "application/json"
    if name == "text":
        text = f"{transcript.text.strip()}\n"
    else:
        with named_options(request.spellings):
            text = formats.render(transcript, name, request.layout)
    return text.encode("utf-8", "replace"), MEDIA_TYPES[name]


def to_json(
    transcript: Transcript, request: TranscriptionRequest, warnings: Sequence[str]
) -> dict[str, Any]:
    """The object of json and verbose_json; the latter has the warnings of the work."""
    text = transcript.text.strip()
    usage = {"type": "duration", "seconds": math.ceil(transcript.duration)}
    if request.response_format != "verbose_json":
        languages = [{"code": transcript.language}] if transcript.language else []
        return {"text": text, "languages": languages, "usage": usage}
    code = transcript.language
    row: dict[str, Any] = {
        "task": request.options.get("task", "transcribe"),
        "language": "english" if is_translation(request) else LANGUAGES.get(code, code),
        "language_code": code,
        "duration": transcript.duration,
        "text": text,
    }
    if "segment" in request.granularities:
        row["segments"] = [segment.to_dict() for segment in transcript.segments]
    if "word" in request.granularities:
        row["words"] = words_of(transcript.segments)
    return {**row, "usage": usage, "x_oscine": details_of(transcript, warnings)}


def is_translation(request: TranscriptionRequest) -> bool:
    """Whether the text is in English whatever was spoken."""
    return bool(request.options.get("task") == "translate")


def words_of(segments: Iterable[Segment]) -> list[dict[str, Any]]:
    """All words with their times in seconds, without the spaces between them."""
    return [
        {
            "word": word.word.strip(),
            "start": word.start,
            "end": word.end,
            "probability": word.probability,
        }
        for segment in segments
        for word in segment.words or ()
    ]


def details_of(transcript: Transcript, warnings: Sequence[str]) -> dict[str, Any]:
    """What OpenAI's object has no place for: model, device, speed, coverage and warnings."""
    seconds = transcript.timings.get("total", 0.0) / 1000
    row: dict[str, Any] = {"model": transcript.model, "device": transcript.device}
    if transcript.duration:
        row["real_time_factor"] = round(seconds / transcript.duration, 4)
    if transcript.coverage is not None:
        row["coverage"] = {
            "speech": transcript.coverage.speech,
            "without_text": transcript.coverage.without_text,
        }
    if warnings:
        row["warnings"] = list(warnings)
    return row


def done_event(
    text: str, transcript: Transcript, request: TranscriptionRequest, warnings: Sequence[str]
) -> dict[str, Any]:
    """The last event of a stream; `text` is the sum of its deltas."""
    heard = math.ceil(transcript.duration * TOKENS_PER_S)
    written = sum(len(segment.tokens) for segment in transcript.segments)
    usage = {
        "type": "tokens",
        "input_tokens": heard,
        "output_tokens": written,
        "total_tokens": heard + written,
        "input_token_details": {"audio_tokens": heard, "text_tokens": 0},
    }
    event = {**to_json(transcript, request, warnings), "usage": usage}
    return {"type": "transcript.text.done", **event, "text": text}
