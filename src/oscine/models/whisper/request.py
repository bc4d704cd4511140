"""What a decoding pass is asked, what it answers, and how the device is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.engine.runner import OnDevice
from oscine.models.whisper.config import WhisperConfig

REPEAT_LIMIT = 8  # equal tokens in a row that end a window: never speech
ANY_TIMESTAMP = 0xFFFFFFFF >> 1
Check = Callable[[int, int], None]
STOPS = {ops.STOP_END: "end", ops.STOP_REPEAT: "repeat", ops.STOP_LENGTH: "length"}


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
    beams: int = 1  # more than one: beam search, only at temperature 0
    pool: int = 1  # beams that must have ended before the search does
    repetition_penalty: float = 1.0
    no_repeat_ngram: int = 0
    stop_loops: bool = False  # end a row early whose text has become a loop; never with beams
    seed: int = 0

    @property
    def width(self) -> int:
        """Lines that the request takes."""
        return max(self.samples, self.beams)

    @property
    def penalised(self) -> bool:
        """Whether what was said changes what may follow."""
        return self.repetition_penalty != 1 or self.no_repeat_ngram > 0

    def alike(self, other: Request) -> bool:
        """Whether both can be decoded side by side: all but prompt, seed and limit."""
        own = {"prompt", "sot", "seed", "limit"}
        shared = [field.name for field in fields(self) if field.name not in own]
        return all(getattr(self, name) == getattr(other, name) for name in shared)


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


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Where forced tokens look: what word times are made of. R tokens, F positions of 20 ms."""

    weights: NDArray[np.float32]  # [A, R, F], of A alignment heads; each row sums to 1
    probabilities: NDArray[np.float32]  # [R - 1]: of token r + 1 at row r, among text ids


class Engine(OnDevice, Protocol):
    """What executor.Executor needs of decode.Decoder."""

    config: WhisperConfig
    held: object  # the EncoderInputs that are encoded on the device; None: no known ones

    def reserve(self, windows: int, lines: int) -> None: ...
    def batch_that_fits(self) -> int: ...
    def encode(self, mels: Sequence[NDArray[np.float32]]) -> None: ...
    def encode_audio(self, mel: NDArray[np.float32]) -> NDArray[np.float32]: ...
    def decode(
        self,
        requests: Sequence[Request],
        check: Check | None = None,
        windows: Sequence[int] = (),
    ) -> tuple[tuple[Decoded, ...], ...]: ...
    def align(self, prompt: Sequence[int], end: int, frames: int, window: int = 0) -> Alignment: ...
    def detect(
        self, request: Request, ids: Sequence[int], window: int = 0
    ) -> tuple[int, NDArray[np.float32]]: ...


def initial_state(
    requests: Sequence[Request], windows: Sequence[int], groups: int, width: int
) -> NDArray[np.void]:
    """The state of `width` lines a group before the prompt: [groups · width] of ops.STATE.

    `windows`: for each request, which of the encoded windows. Groups that there is no request for
    are done from the start.
    """
    state = np.zeros((groups, width), ops.STATE)
    state["done"], state["slot"] = ops.STOP_END, np.arange(groups * width).reshape(groups, width)
    for lines, request, window in zip(state, requests, windows, strict=False):
        lines["done"] = 0
        lines["length"] = len(request.prompt)
        lines["limit"] = request.limit
        lines["after_pair"] = 1  # the opening timestamp is to be followed by text
        lines["sot"] = request.sot
        lines["temperature"] = request.temperature
        # Of Python's integers: NumPy's have 32 bits in a browser, and on Windows before NumPy 2.
        lines["seed"] = [(request.seed + line * 0x9E3779B9) & 0xFFFFFFFF for line in range(width)]
        lines["window"] = window
    return state.reshape(-1)


def initial_origins(
    requests: Sequence[Request], groups: int, width: int, context: int
) -> NDArray[np.uint32]:
    """[groups · width, C]: a prompt is in the slot of its group's first line, the rest where it
    grows."""
    lines = np.arange(groups * width, dtype=np.uint32)[:, None]
    lengths = np.zeros(groups, int)
    lengths[: len(requests)] = [len(request.prompt) for request in requests]
    forced = np.arange(context)[None, :] < np.repeat(lengths, width)[:, None]
    origins: NDArray[np.uint32] = np.where(forced, lines - lines % width, lines)
    return origins


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
    # A beam that repeats itself is left to the others to beat.
    rules["repeat_limit"] = 0 if request.beams > 1 else REPEAT_LIMIT
    rules["no_repeat_ngram"] = request.no_repeat_ngram
    rules["repetition_penalty"] = request.repetition_penalty
    return rules


def mask_of(request: Request, vocabulary: int) -> NDArray[np.uint32]:
    """The request's suppression lists as bits: [V]."""
    mask = np.zeros(vocabulary, np.uint32)
    mask[list(request.suppress)] |= ops.SUPPRESS
    mask[list(request.suppress_first)] |= ops.SUPPRESS_FIRST
    return mask
