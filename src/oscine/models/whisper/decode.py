"""One window's decoding: prefill the prompt, then bursts of steps that the device drives itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.errors import NonFiniteError, UsageError
from oscine.models.whisper import model
from oscine.models.whisper.weights import WhisperWeights

BURST = 16  # steps between two looks at the state; the next burst runs while the host looks
REPEAT_LIMIT = 8  # equal tokens in a row that end a window: never speech
ANY_TIMESTAMP = 0xFFFFFFFF >> 1
STOPS = {ops.STOP_END: "end", ops.STOP_REPEAT: "repeat", ops.STOP_LENGTH: "length"}

Check = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Request:
    """Everything one pass over an encoded window depends on; nothing is read from elsewhere."""

    prompt: tuple[int, ...]  # all forced tokens, at least one, fewer than n_text_ctx
    sot: int  # index in prompt of <|startoftranscript|>
    suppress: tuple[int, ...]  # ids never picked
    suppress_first: tuple[int, ...]  # ids not picked as first token
    end: int  # <|endoftext|>
    timestamp_begin: int  # <|0.00|>
    no_timestamps: int  # <|notimestamps|>
    no_speech: int  # <|nospeech|>
    timestamps: bool  # True: the timestamp rules hold
    max_initial_timestamp: int | None  # index of the largest first timestamp; None: any
    limit: int  # most tokens to pick
    temperature: float = 0.0
    samples: int = 1  # independent rows (best_of); more than one only with a temperature
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Decoded:
    """What one row picked: text and timestamp ids, without the prompt and without end-of-text."""

    tokens: tuple[int, ...]
    sum_logprob: float  # end-of-text counted, temperature not
    no_speech_prob: float
    stop: str  # "end", "repeat" or "length"

    @property
    def avg_logprob(self) -> float:
        """openai whisper/decoding.py: the sum over the tokens picked and end-of-text."""
        return self.sum_logprob / (len(self.tokens) + 1)


class Lines:
    """B rows decoded side by side over one window: their state, caches and recorded plans."""

    def __init__(self, decoder: Decoder, count: int) -> None:
        config, backend = decoder.config, decoder.backend
        self.decoder, self.count = decoder, count
        shape = (count, config.n_text_ctx, config.n_text_state)
        self.caches = [
            ops.Cache(backend.slot(shape), backend.slot(shape)) for _ in range(config.n_text_layer)
        ]
        self.state = ops.State(
            backend.slot((count,), ops.STATE),
            backend.slot((count, config.n_text_ctx), np.uint32),
        )
        self.rules = backend.slot((1,), ops.RULES)
        self.mask = backend.slot((config.n_vocab,), np.uint32)
        self.logits = backend.slot((2 * count, config.n_vocab))
        self.prompts: dict[int, tuple[ops.Tensor, ops.Plan]] = {}
        self.step = backend.record(self.trace_step, self.state, "step")

    def hidden(self, prompt: ops.Tensor | None = None) -> ops.Tensor:
        """One pass through the decoder's blocks."""
        d = self.decoder
        return model.decode(
            d.backend, d.weights, d.config, self.caches, d.memory, self.state, prompt
        )

    def trace_step(self) -> None:
        """The token picked last in, the next one out."""
        backend, w = self.decoder.backend, self.decoder.weights
        logits = model.logits(backend, w, self.hidden())
        backend.pick(logits, self.mask, self.rules, self.state)

    def trace_prompt(self, prompt: ops.Tensor) -> None:
        """The whole prompt in one pass; silence is judged where the transcript starts."""
        backend, w = self.decoder.backend, self.decoder.weights
        rows = backend.take_rows(self.hidden(prompt), self.state)
        logits = model.logits(backend, w, rows)
        backend.keep(logits, self.logits)
        backend.no_speech(logits, self.rules, self.state)
        backend.pick(logits, self.mask, self.rules, self.state)

    def prefill(self, request: Request) -> None:
        """Write the request into state, rules, mask and prompt; run the prompt's plan."""
        config, backend = self.decoder.config, self.decoder.backend
        length = min(backend.padded(len(request.prompt)), config.n_text_ctx)
        if length not in self.prompts:
            slot = backend.slot((self.count, length), np.uint32)
            plan = backend.record(lambda: self.trace_prompt(slot), self.state, "prompt")
            self.prompts[length] = slot, plan
        slot, plan = self.prompts[length]
        prompt = np.zeros((self.count, length), np.uint32)
        prompt[:, : len(request.prompt)] = request.prompt
        backend.write(slot, prompt)
        backend.write(self.state.rows, initial_state(request, self.count))
        backend.write(self.rules, rules_of(request, config.n_vocab))
        backend.write(self.mask, mask_of(request, config.n_vocab))
        plan.run()


def initial_state(request: Request, count: int) -> NDArray[np.void]:
    """The state of every row before its prompt: [count] of ops.STATE."""
    state = np.zeros(count, ops.STATE)
    state["length"] = len(request.prompt)
    state["limit"] = request.limit
    state["after_pair"] = 1  # the opening timestamp is to be followed by text
    state["sot"] = request.sot
    state["temperature"] = request.temperature
    state["seed"] = (request.seed + np.arange(count) * 0x9E3779B9) & 0xFFFFFFFF
    return state


def rules_of(request: Request, vocabulary: int) -> NDArray[np.void]:
    """The request's rules: [1] of ops.RULES."""
    rules = np.zeros(1, ops.RULES)
    initial = request.max_initial_timestamp
    rules["vocabulary"] = vocabulary
    rules["end"] = request.end
    rules["timestamp_begin"] = request.timestamp_begin
    rules["no_timestamps"] = request.no_timestamps
    rules["no_speech"] = request.no_speech
    rules["timestamps"] = request.timestamps
    rules["max_initial"] = ANY_TIMESTAMP if initial is None else initial
    rules["repeat_limit"] = REPEAT_LIMIT
    return rules


def mask_of(request: Request, vocabulary: int) -> NDArray[np.uint32]:
    """The request's suppression lists as bits: [V]."""
    mask = np.zeros(vocabulary, np.uint32)
    mask[list(request.suppress)] |= ops.SUPPRESS
    mask[list(request.suppress_first)] |= ops.SUPPRESS_FIRST
    return mask


class Decoder:
    """A resident engine: weights uploaded once, plans recorded once, one window at a time.

    Raises DeviceError if the backend cannot hold or compute a model of these sizes.
    """

    def __init__(self, weights: WhisperWeights, backend: ops.Backend) -> None:
        self.config, self.backend = weights.config, backend
        self.device = backend.name
        self.timings: dict[str, float] = {}
        config = self.config
        self.encoder = ops.upload(backend, weights.encoder)
        self.mel = backend.slot((config.window_frames, config.n_mels))
        self.audio = backend.slot((config.n_audio_ctx, config.n_audio_state))
        self.partial: dict[int | None, ops.Plan] = {}
        self.memory: list[ops.Tensor] = []
        if weights.decoder is not None:
            self.weights = ops.upload(backend, weights.decoder)
            shape = (config.n_audio_ctx, 2 * config.n_text_state)
            self.memory = [backend.slot(shape) for _ in range(config.n_text_layer)]
            self.window = backend.record(self.trace_window, name="encode")
        self.lines: dict[int, Lines] = {}
        if weights.decoder is not None:
            self.rows(1)  # now, while loading can still choose another backend

    def trace_window(self) -> None:
        """Mel to every layer's cross keys and values."""
        audio = model.encode(self.backend, self.encoder, self.config, self.mel)
        self.backend.keep(audio, self.audio)
        model.remember(self.backend, self.weights, audio, self.memory)

    def trace_encoder(self, layers: int | None) -> None:
        """Mel to the encoder's output, or that of its first blocks."""
        audio = model.encode(self.backend, self.encoder, self.config, self.mel, layers)
        self.backend.keep(audio, self.audio)

    def encode(self, mel: NDArray[np.float32]) -> None:
        """Encode one window: mel [2S, n_mels], complete."""
        started = perf_counter()
        self.check_mel(mel)
        self.backend.write(self.mel, mel)
        self.window.run()
        self.backend.snapshot(self.rows(1).state.rows)()  # wait, so that the time is its own
        self.clock("encode", started)

    def encode_audio(
        self, mel: NDArray[np.float32], layers: int | None = None
    ) -> NDArray[np.float32]:
        """The encoder alone: mel [2S, n_mels] -> [S, d]; layers as in model.encode."""
        self.check_mel(mel)
        whole = isinstance(layers, int) and 0 <= layers <= self.config.n_audio_layer
        if layers is not None and not whole:
            raise UsageError(f"layers must be 0 to {self.config.n_audio_layer}, not {layers}")
        if layers not in self.partial:
            self.partial[layers] = self.backend.record(
                lambda: self.trace_encoder(layers), name="encode"
            )
        self.backend.write(self.mel, mel)
        self.partial[layers].run()
        encoded: NDArray[np.float32] = self.backend.read(self.audio)
        return encoded

    def check_mel(self, mel: NDArray[np.float32]) -> None:
        """A window of another size would silently be read as something else."""
        expected = (self.config.window_frames, self.config.n_mels)
        if mel.shape != expected:
            raise UsageError(f"mel window must have shape {expected}, not {mel.shape}")

    def decode(self, request: Request, check: Check | None = None) -> tuple[Decoded, ...]:
        """Decode the encoded window; one result a sample row.

        `check(emitted, budget)` is called at least once a burst and may raise to stop.
        Raises NonFiniteError if the logits hold NaN or infinity, UsageError for a prompt that
        leaves no room.
        """
        started = perf_counter()
        self.check_request(request)
        lines = self.rows(request.samples)
        lines.prefill(request)
        pending = self.backend.snapshot(lines.state.rows, lines.state.tokens)
        while True:
            lines.step.run(BURST)
            ahead = self.backend.snapshot(lines.state.rows, lines.state.tokens)
            rows, tokens = pending()
            if check is not None:
                check(int(rows["count"].max()), request.limit)
            if rows["done"].all():
                break
            pending = ahead
        self.clock("decode", started)
        if (rows["done"] == ops.STOP_NONFINITE).any():
            raise NonFiniteError(
                f"non-finite logits on {self.device}; try --device cpu, or --dtype f32"
            )
        return tuple(result(row, line) for row, line in zip(rows, tokens, strict=True))

    def check_request(self, request: Request) -> None:
        """Refuse what the caches cannot hold."""
        room = self.config.n_text_ctx - len(request.prompt)
        if not request.prompt or room < 1:
            raise UsageError(
                f"a prompt must have 1 to {self.config.n_text_ctx - 1} tokens, "
                f"not {len(request.prompt)}"
            )
        if not 1 <= request.limit <= room:
            raise UsageError(
                f"{request.limit} new tokens after a prompt of {len(request.prompt)} "
                f"do not fit; the model has room for {room}"
            )

    def detect(self, request: Request, ids: Sequence[int]) -> tuple[int, NDArray[np.float32]]:
        """The likeliest of `ids` after the request's prompt, and the share of each [len(ids)].

        The request suppresses all other ids, so the choice is made on the device.
        """
        lines = self.rows(1)
        lines.prefill(request)
        rows, logits = self.backend.snapshot(lines.state.rows, lines.logits)()
        if rows["done"][0] == ops.STOP_NONFINITE:
            raise NonFiniteError(f"non-finite logits on {self.device}; try --device cpu")
        scores = logits[0, list(ids)]
        shares = np.exp(scores - scores.max())
        return int(rows["token"][0]), shares / shares.sum()

    def rows(self, count: int) -> Lines:
        """The lines for so many samples, made on first use."""
        if count not in self.lines:
            self.lines[count] = Lines(self, count)
        return self.lines[count]

    def trace(self) -> dict[str, tuple[int, float]]:
        """What the backend measured of itself: ops.Backend.trace."""
        return self.backend.trace()

    def clock(self, stage: str, started: float) -> None:
        """Add to the stage's milliseconds."""
        self.timings[stage] = self.timings.get(stage, 0.0) + 1000 * (perf_counter() - started)


def result(row: NDArray[np.void], tokens: NDArray[np.uint32]) -> Decoded:
    """One row's state as a value."""
    return Decoded(
        tokens=tuple(int(token) for token in tokens[: row["count"]]),
        sum_logprob=float(row["sum_logprob"]),
        no_speech_prob=float(row["no_speech_prob"]),
        stop=STOPS[int(row["done"])],
    )
