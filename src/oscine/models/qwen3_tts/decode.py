"""The resident engine: hear a prompt, then bursts of frames that the device drives itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.bfloat16 import BFLOAT16, widen
from oscine.errors import NonFiniteError, UsageError
from oscine.models.qwen3_tts import model
from oscine.models.qwen3_tts.codec_engine import CodecDecoder, CodecEncoder, CodecStream
from oscine.models.qwen3_tts.lines import USUAL_PROMPT, Line, Rows, TextRows, rounded_up
from oscine.models.qwen3_tts.request import STOPS, Request, check_request
from oscine.models.qwen3_tts.speaker import SpeakerEncoder
from oscine.models.qwen3_tts.weights import Qwen3TtsWeights

BURST = 4  # frames between two looks at the codes; the next burst runs while the host looks
SHORTEST, FEWEST_TEXTS = 256, 64  # positions and rows of text that there is room for at least


class Decoder:
    """Weights uploaded once, plans recorded once, memory for the longest utterance so far.

    One utterance at a time: to begin another gives up the one before. Raises DeviceError if the
    backend cannot hold or compute a model of these sizes.
    """

    def __init__(self, weights: Qwen3TtsWeights, backend: ops.Backend) -> None:
        self.config, self.backend, self.weights = weights.config, backend, weights
        self.device = backend.name
        self.timings: dict[str, float] = {}
        self.texts = TextRows(weights.text, backend)
        predictor = ops.upload(backend, weights.predictor)
        self.networks = model.Networks(
            self.config,
            ops.upload(backend, weights.talker),
            predictor,
            self.projected(predictor.project),
        )
        self.line: Line | None = None
        self.run: Run | None = None
        #: The reference codes, as bytes, that the codec began with last, and the slot of the codec
        #: that keeps its state after them.
        self.primed: tuple[bytes, int] | None = None
        # Now, while loading can still choose another backend.
        self.reserve(SHORTEST, FEWEST_TEXTS).prompt_plan(USUAL_PROMPT)
        self.embed_text([self.config.text.pad] * USUAL_PROMPT)

    @cached_property
    def codec(self) -> CodecStream:
        """Codes to waveform."""
        decoder = CodecDecoder(self.weights.decoder, self.config.codec, self.backend)
        return CodecStream(decoder)

    @cached_property
    def codec_encoder(self) -> CodecEncoder:
        """A reference to codes."""
        return CodecEncoder(self.weights.encoder, self.config.codec, self.backend)

    @cached_property
    def speaker(self) -> SpeakerEncoder:
        """A reference to a speaker's vector. Raises UsageError if the model has none."""
        if self.weights.speaker is None or self.config.speaker is None:
            raise UsageError(f"a {self.config.kind} model cannot clone voices; use a base model")
        return SpeakerEncoder(self.weights.speaker, self.config.speaker, self.backend)

    # -- rows ---------------------------------------------------------------------------------

    def embed_text(self, ids: Sequence[int]) -> Rows:
        """Projected rows of the text embedding: [n, D] float32."""
        rows = gathered(self.weights.text.embedding, np.array(ids, np.intp))
        if not len(rows):
            return np.zeros((0, self.config.talker.width), np.float32)
        return self.texts.run(rows)

    def code_row(self, code: int) -> Rows:
        """The talker's row of an id of its vocabulary: [D] float32."""
        row: Rows = gathered(self.weights.talker.embedding, np.array([code]))[0]
        return row

    def reference_rows(self, codes: NDArray[Any]) -> Rows:
        """What the talker hears of frames of codes [R, G]: the sums of their rows, [R, D]."""
        tables = (self.weights.talker.embedding, *self.weights.predictor.embeddings)
        rows = np.zeros((len(codes), self.config.talker.width), np.float32)
        for table, column in zip(tables, codes.T, strict=True):
            rows += gathered(table, column)
        return rows

    def projected(self, project: ops.Linear | None) -> tuple[ops.Tensor, ...] | None:
        """The predictor's inputs for every code it may hear, so that no frame projects them."""
        if project is None:
            return None
        backend, width = self.backend, self.config.predictor.width
        tables = (self.weights.talker.embedding, *self.weights.predictor.embeddings[:-1])
        spare = backend.zeros((max(len(table) for table in tables), self.config.talker.width))
        found: list[ops.Tensor] = []
        for table in tables:
            x = backend.view(spare, table.shape)
            backend.write(x, gathered(table, np.arange(len(table))))
            found.append(self.through(project, x, backend.zeros((len(table), width))))
        backend.release(spare)
        return tuple(found)

    def through(self, project: ops.Linear, x: ops.Tensor, y: ops.Tensor) -> ops.Tensor:
        """y, filled with what the layer makes of x."""
        backend = self.backend
        backend.record(lambda: backend.keep(backend.linear(x, project), y), name="project").run()
        return y

    # -- speaking -----------------------------------------------------------------------------

    def begin(self, request: Request) -> Run:
        """Hear the request's prompt; the run gives the frames.

        Raises UsageError for what the model has no room for, DeviceMemoryError for what the device
        has none for.
        """
        check_request(request, self.config)
        if self.run is not None:
            self.run.stop()
        prompt = request.prompt
        line = self.reserve(len(prompt.rows) + request.max_frames, len(prompt.text))
        self.run = Run(self, line, request)
        return self.run

    def reserve(self, positions: int, texts: int) -> Line:
        """Make room for so many positions and rows of text, if there is less.

        Plans are made anew then. At most what the model's positions can use.
        """
        line = self.line
        if line is None or positions > line.positions:
            most = max(texts, 0 if line is None else line.texts)
            if line is not None:
                self.line = None  # should there be no room now, there may be for less
                line.release()
            rounded = min(rounded_up(max(positions, SHORTEST)), self.config.context)
            line = Line(self.networks, self.backend, rounded, rounded_up(max(most, FEWEST_TEXTS)))
            self.line = line
        if texts > line.texts:
            line.make_room(rounded_up(texts))
        return line

    def trace(self) -> dict[str, tuple[int, float]]:
        """What the backend measured of itself: ops.Backend.trace."""
        return self.backend.trace()

    def clock(self, stage: str, milliseconds: float) -> None:
        """Add to the stage's milliseconds."""
        self.timings[stage] = self.timings.get(stage, 0.0) + milliseconds


class Run:
    """One utterance as it is spoken: iterate over it for bursts of codes [n, G] uint32.

    The first burst is one frame, each other up to BURST; bursts do not change what is said.
    finish_reason: None as long as more may come or where it was stopped, "end", or "length" after
    max_frames. timings: milliseconds of "prompt", to the first frame, and "frames", the others.
    Raises NonFiniteError if a logit is not finite.
    """

    def __init__(self, decoder: Decoder, line: Line, request: Request) -> None:
        self.decoder, self.line, self.request = decoder, line, request
        self.finish_reason: str | None = None
        self.stopped = False
        self.seen_frames = 0
        self.timings: dict[str, float] = {}
        self.asked = 1  # frames that were submitted for
        started = perf_counter()
        line.prepare(request)
        line.prefill(request.prompt.rows)
        self.pending = line.snapshot()
        self.waiting = True
        self.clock("prompt", started)

    def __iter__(self) -> Iterator[NDArray[np.uint32]]:
        while self.finish_reason is None and not self.stopped:
            burst = self.advance()
            if len(burst):
                yield burst

    def advance(self) -> NDArray[np.uint32]:
        """The next burst, and another one on its way: [n, G], empty where it has ended.

        Behind the first frame alone nothing is on its way: what makes it sound is not to wait.
        """
        started, first = perf_counter(), self.seen_frames == 0
        self.go_on()
        pending, self.waiting = self.pending, False
        if self.decoder.backend.runs_ahead and not first:
            self.go_on()
        row, codes = pending()
        done, count = int(row["done"][0]), int(row["count"][0])
        burst = codes[self.seen_frames : count].copy()
        self.seen_frames = count
        if done == ops.STOP_NONFINITE:
            self.stop()
            raise NonFiniteError.of_network("logits", self.decoder.device)
        self.finish_reason = STOPS.get(done)
        if self.finish_reason is not None:
            self.drain()
        self.clock("prompt" if first else "frames", started)
        return burst

    def go_on(self) -> None:
        """Have the next burst on its way, if none is and more frames may come.

        For those who let the first frame sound before the device turns to others.
        """
        count = min(BURST, self.request.max_frames - self.asked)
        if count > 0 and not self.waiting:
            self.line.step.run(count)
            self.asked += count
            self.pending, self.waiting = self.line.snapshot(), True

    def stop(self) -> None:
        """Let it be: no more frames come."""
        self.stopped = True
        self.drain()

    def drain(self) -> None:
        """Wait for what is on its way, so that its memory serves the next snapshot."""
        if self.waiting:
            self.waiting = False
            self.pending()

    def clock(self, stage: str, started: float) -> None:
        """Add to the stage's milliseconds, here and in the decoder."""
        passed = 1000 * (perf_counter() - started)
        self.timings[stage] = self.timings.get(stage, 0.0) + passed
        self.decoder.clock(stage, passed)


def gathered(table: NDArray[Any], ids: NDArray[Any]) -> Rows:
    """Rows of a stored table as float32: [n, D]."""
    rows = table[ids]
    return widen(rows) if rows.dtype == BFLOAT16 else rows.astype(np.float32)
