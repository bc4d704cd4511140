"""The routes: what they read, which work they start, and how its result is answered."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match
from starlette.websockets import WebSocket

import oscine
from oscine.errors import OscineError
from oscine.family import Task
from oscine.options.serve import ServeOptions
from oscine.server import schema, speech, transcriptions
from oscine.server.catalog import Catalog, ServedModel
from oscine.server.errors import UPLOAD, ApiError, ClientGoneError, invalid, to_api_error
from oscine.server.fields import read_form, read_json
from oscine.server.front import Front
from oscine.server.gate import END, Gate, Job, Receive
from oscine.server.metrics import Gauges, Metrics
from oscine.server.speech import Voices
from oscine.server.speech_stream import SpeechSession, TextParts

PING_S = 15.0  # between two comments of a silent stream, which proxies would close
#: Headers that keep proxies from buffering a stream.
STREAM_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


class Server:
    """The state of a running server, and the functions of its routes."""

    def __init__(self, options: ServeOptions, catalog: Catalog, keys: tuple[str, ...] = ()) -> None:
        self.options, self.catalog = options, catalog
        self.gate = Gate(options.max_requests, options.timeout)
        self.metrics = Metrics()
        self.voices = Voices(catalog)
        self.app = Front(self._routes(), options, keys, self.metrics)

    def _routes(self) -> Any:
        app = FastAPI(
            title="oscine",
            version=oscine.__version__,
            docs_url=None,  # its page loads scripts of other servers
            redoc_url=None,
        )
        form, texts = schema.transcription_body(), schema.TEXT_TYPES
        self._add(app, "POST", "/v1/audio/transcriptions", self.transcribe, form, texts)
        self._add(app, "POST", "/v1/audio/translations", self.translate, form, texts)
        sounds = schema.SPEECH_TYPES
        self._add(app, "POST", "/v1/audio/speech", self.speak, schema.speech_body(), sounds)
        app.add_api_websocket_route("/v1/audio/speech/stream", self.stream_speech)
        self._add(app, "GET", "/v1/audio/voices", self.list_voices)
        self._add(app, "POST", "/v1/audio/voices", self.make_voice, schema.voice_body())
        self._add(app, "DELETE", "/v1/audio/voices/{id}", self.delete_voice)
        self._add(app, "GET", "/v1/models", self.list_models)
        self._add(app, "GET", "/v1/audio/models", self.list_models)
        self._add(app, "GET", "/v1/models/{name:path}", self.show_model)
        self._add(app, "GET", "/health", self.health)
        self._add(app, "GET", "/health/ready", self.health_ready)
        self._add(app, "GET", "/metrics", self.show_metrics, media_types=("text/plain",))
        kinds = (ApiError, OscineError, HTTPException, ClientGoneError, ClientDisconnect)
        for kind in (*kinds, Exception):
            app.add_exception_handler(kind, answer_error)
        return app

    def _add(
        self,
        app: Any,
        method: str,
        path: str,
        function: Callable[..., Any],
        body: dict[str, Any] | None = None,
        media_types: Sequence[str] = (schema.JSON,),
    ) -> None:
        """Add a route. `body` describes what it receives, `media_types` what it answers."""
        app.add_api_route(
            path,
            function,
            methods=[method],
            response_model=None,
            response_class=Response,
            responses=schema.responses(media_types),
            openapi_extra=None if body is None else {"requestBody": body},
        )

    # -- work ---------------------------------------------------------------------------------

    async def use(self, model: str, task: Task) -> ServedModel:
        """A model that a client names, loaded. Raises ApiError."""
        return await self.catalog.use(model, task, self.options.timeout)

    def start(
        self, served: ServedModel, work: Callable[[Job], Any], receive: Receive | None
    ) -> Job:
        """Start work with a model that is in use, which is released at its end. Raises ApiError."""
        try:
            return self.gate.start(work, receive, served.release)
        except BaseException:
            served.release()
            raise

    # -- speech to text -----------------------------------------------------------------------

    async def transcribe(self, request: Request) -> Response:
        """Transcribe a recording."""
        return await self._transcribe(request, "transcribe")

    async def translate(self, request: Request) -> Response:
        """Translate a recording to English text."""
        return await self._transcribe(request, "translate")

    async def _transcribe(self, request: Request, task: str) -> Response:
        self.gate.check()
        fields = await read_form(request)
        try:
            wanted = transcriptions.read_request(fields, task, self.options.max_audio_seconds)
            file = fields.file(UPLOAD)
            served = await self.use(wanted.model, "transcribe")
            work = transcriptions.transcribe(served.model, file, wanted)
            job = self.start(served, work, request.receive)
        except BaseException:
            fields.close()
            raise
        if wanted.stream:
            first = await job.next(PING_S)  # an error before it is a status
            return _event_stream(self._text_events(job, first, wanted))
        transcript = await job.wait()
        self.metrics.audio_seconds += transcript.duration
        content, media_type = transcriptions.body_of(transcript, wanted, job.warnings)
        return Response(content, media_type=media_type)

    async def _text_events(
        self, job: Job, first: Any, wanted: transcriptions.TranscriptionRequest
    ) -> AsyncIterator[dict[str, Any] | None]:
        """The events of a transcription; None: a sign of life."""
        text, item = "", first
        try:
            while item is not END:
                if item is None:
                    yield None
                else:
                    text += item
                    yield {"type": "transcript.text.delta", "delta": item}
                item = await job.next(PING_S)
            self.metrics.audio_seconds += job.result.duration
            yield transcriptions.done_event(text, job.result, wanted, job.warnings)
        finally:
            job.close()

    # -- text to speech -----------------------------------------------------------------------

    async def speak(self, request: Request) -> Response:
        """Speak a text."""
        self.gate.check()
        wanted = speech.read_request(await read_json(request))
        job = await self.start_speech(wanted, request.receive)
        try:
            first = await job.next()  # an error before the first audio is a status
        except BaseException:
            job.close()
            raise
        if wanted.events:
            return _event_stream(self._audio_events(job, first, wanted))
        media_type = speech.MEDIA_TYPES[wanted.response_format]
        if not wanted.stream:
            await job.wait()
            self.metrics.speech_seconds += job.result.duration
            headers = {
                "X-Oscine-Seed": str(job.result.seed),
                "X-Oscine-Finish-Reason": job.result.finish_reason,
            }
            return Response(first, media_type=media_type, headers=headers)
        return StreamingResponse(
            self._audio_bytes(job, first), media_type=media_type, headers=STREAM_HEADERS
        )

    async def start_speech(
        self,
        wanted: speech.SpeechRequest,
        receive: Receive | None,
        parts: speech.TextSource | None = None,
    ) -> Job:
        """Start the work of a request for speech. Raises ApiError."""
        self.gate.check()
        served = await self.use(wanted.model, "speak")
        try:
            has_reference = "reference" in wanted.options
            voice = {} if has_reference else self.voices.options_for(served, wanted.voice)
        except BaseException:
            served.release()
            raise
        limit = self.options.max_audio_seconds  # of a reference
        return self.start(served, speech.speak(served.model, wanted, voice, limit, parts), receive)

    async def stream_speech(self, websocket: WebSocket) -> None:
        """Speak texts that come in parts, over a WebSocket."""

        def start(wanted: speech.SpeechRequest, parts: TextParts) -> Awaitable[Job]:
            return self.start_speech(wanted, None, parts)

        await SpeechSession(websocket, start, self.metrics).run()

    async def _audio_bytes(self, job: Job, first: Any) -> AsyncIterator[bytes]:
        """The bytes of a file as they are made; an error cuts the answer, which shows the client
        that it is not whole."""
        item = first
        try:
            while item is not END:
                yield item
                item = await job.next()
            self.metrics.speech_seconds += job.result.duration
        finally:
            job.close()

    async def _audio_events(
        self, job: Job, first: Any, wanted: speech.SpeechRequest
    ) -> AsyncIterator[dict[str, Any] | None]:
        item = first
        try:
            while item is not END:
                if item is None:
                    yield None
                else:
                    audio = base64.b64encode(item).decode("ascii")
                    yield {"type": "speech.audio.delta", "audio": audio}
                item = await job.next(PING_S)
            self.metrics.speech_seconds += job.result.duration
            yield {
                "type": "speech.audio.done",
                "usage": speech.usage_of(wanted, job.result),
                "seed": job.result.seed,
                "finish_reason": job.result.finish_reason,
            }
        finally:
            job.close()

    # -- voices -------------------------------------------------------------------------------

    async def list_voices(self) -> Response:
        """List the voices, in OpenAI's form of a list and in that of Kokoro-FastAPI."""
        rows = self.voices.listing()
        return JSONResponse({"object": "list", "data": rows, "voices": rows})

    async def make_voice(self, request: Request) -> Response:
        """Make a voice of a recording or a description, which lasts as long as the server."""
        self.gate.check()
        is_json = request.headers.get("content-type", "").startswith("application/json")
        fields = await (read_json(request) if is_json else read_form(request))
        try:
            name = fields.required_text("name")
            kind = fields.choice("type", ("audio_sample", "prompt"), "audio_sample")
            model = fields.text("model")
            if kind == "prompt":
                prompt = fields.required_text("prompt")
                _refuse_rest(fields.rest())
                served = await self.use(self.voices.model_for("voice_design", model), "speak")
                served.release()
                made = self.voices.add(served, name, kind, {"instruct": prompt})
                return JSONResponse(made.to_dict())
            fields.text("consent")  # required by OpenAI; this server keeps no records of consent
            text, silence = fields.text("reference_text"), fields.number("reference_silence", 0, 5)
            _refuse_rest(fields.rest())
            file = fields.file("audio_sample")
            served = await self.use(self.voices.model_for("base", model), "speak")
            work = speech.clone(
                served.model, file, text, silence or 0.0, self.options.max_audio_seconds
            )
            job = self.start(served, work, request.receive)
        except BaseException:
            fields.close()
            raise
        made = self.voices.add(served, name, kind, {"voice": await job.wait()})
        return JSONResponse(made.to_dict())

    async def delete_voice(self, id: str) -> Response:
        """Forget a voice that a client has made."""
        self.voices.remove(id)
        return JSONResponse({"id": id, "object": "audio.voice.deleted", "deleted": True})

    # -- models and state ---------------------------------------------------------------------

    async def list_models(self) -> Response:
        """List the models."""
        rows = [served.to_dict() for served in self.catalog.models.values()]
        return JSONResponse({"object": "list", "data": rows, "models": rows})

    async def show_model(self, name: str) -> Response:
        """Describe a model, by any of its names."""
        served = self.catalog.lookup(name)
        if served is None:
            raise ApiError(
                404, f"model {name[:100]!r} is not served here", "model_not_found", param="model"
            )
        return JSONResponse({**served.to_dict(), "id": name})

    async def health(self) -> Response:
        """Answer that the process is alive."""
        return JSONResponse({"status": "ok"})

    async def health_ready(self) -> Response:
        """Answer whether requests are taken: 503 while models are loaded, and while draining."""
        if self.gate.draining:
            return JSONResponse({"status": "draining"}, 503, {"Retry-After": "5"})
        if not self.catalog.ready:
            return JSONResponse({"status": "loading"}, 503, {"Retry-After": "5"})
        return JSONResponse({"status": "ready"})

    async def show_metrics(self) -> Response:
        """The counts of the server in Prometheus' format."""
        media_type = "text/plain; version=0.0.4; charset=utf-8"
        return Response(self.metrics.text(self._gauges()), media_type=media_type)

    def _gauges(self) -> Gauges:
        running = [each for each in self.catalog.models.values() if each.model is not None]
        engines = [(each, getattr(each.model, "engine", None)) for each in running]
        own = [((("model", each.id),), engine) for each, engine in engines if engine is not None]
        served = self.catalog.models.values()
        return {
            "model_loaded": (
                "Whether a model is loaded.",
                {(("model", each.id),): float(each.model is not None) for each in served},
            ),
            "model_memory_bytes": (
                "Memory that the loaded models took when they were loaded.",
                {(("model", each.id),): float(each.nbytes) for each in running},
            ),
            "requests_at_work": ("Requests at work.", {(): float(len(self.gate.jobs))}),
            "requests_limit": ("Requests that may be at work.", {(): self.gate.max_requests}),
            "sequences_running": (
                "Sequences in the engine's batch.",
                {labels: float(engine.running) for labels, engine in own},
            ),
            "sequences_waiting": (
                "Sequences in the engine's queue.",
                {labels: float(engine.waiting) for labels, engine in own},
            ),
            "sequences_mean": (
                "Mean number of sequences in a burst since the model was loaded.",
                {labels: float(engine.occupancy.mean) for labels, engine in own},
            ),
        }


def _refuse_rest(rest: Mapping[str, Any]) -> None:
    """Raise ApiError for a field that nothing has taken."""
    for name in rest:
        raise invalid(name, f"{name} is not a field of this route", "unknown_parameter")


def _event_stream(events: AsyncIterator[dict[str, Any] | None]) -> Response:
    """Server-sent events; an error is the last one, with the body that an answer would have."""

    async def lines() -> AsyncIterator[str]:
        try:
            async for event in events:
                yield ": ping\n\n" if event is None else _event(event)
        except ClientGoneError:
            return
        except Exception as error:
            yield _event({"type": "error", **to_api_error(error).body})

    return StreamingResponse(lines(), media_type="text/event-stream", headers=STREAM_HEADERS)


def _event(event: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"


async def answer_error(request: Request, error: Exception) -> Response:
    """Any error in OpenAI's form."""
    if isinstance(error, ClientGoneError | ClientDisconnect):
        return Response(status_code=499)  # the client has gone
    if isinstance(error, HTTPException):
        message = {404: "this route does not exist", 405: "this route does not take the method"}
        known = message.get(error.status_code, str(error.detail))
        answer = ApiError(error.status_code, known, headers=error.headers)
        if error.status_code == 405:
            answer.headers["Allow"] = ", ".join(sorted(methods_of(request)))
    else:
        answer = to_api_error(error)
    return JSONResponse(answer.body, answer.status, answer.headers)


def methods_of(request: Request) -> set[str]:
    """The methods of all routes with the path of a request; Starlette names those of the first."""
    routes = [each for each in request.app.routes if each.matches(request.scope)[0] != Match.NONE]
    return {method for route in routes for method in getattr(route, "methods", None) or ()}
