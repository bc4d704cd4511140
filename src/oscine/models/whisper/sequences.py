"""What Whisper asks of a device: to decode a window, to detect its language, to align its text."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oscine.engine.sequence import EncoderInput, Sequence
from oscine.models.whisper.repetition import is_endless
from oscine.models.whisper.tokens import Tokens

LOOK = 16  # tokens between two looks for a loop: the same, whenever the engine polls


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
        """Rows that the request takes."""
        return max(self.samples, self.beams)

    @property
    def penalised(self) -> bool:
        """Whether what was said changes what may follow."""
        return self.repetition_penalty != 1 or self.no_repeat_ngram > 0


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


class Decode(Sequence[tuple[Decoded, ...]]):
    """A window at one temperature. Its result: the rows of its samples, or its beams."""

    audio: EncoderInput

    def __init__(self, audio: EncoderInput, request: Request) -> None:
        pool = request.pool if request.beams > 1 else 0
        super().__init__(audio, request.width, ("text", request.width, pool))
        self.request = request
        self.loops: list[int] = [0] * request.width  # tokens of rows that ended as loops; 0: none
        self._looked = [0] * request.width

    def restart(self) -> None:
        super().restart()
        self.loops, self._looked = [0] * self.rows, [0] * self.rows

    def find_loops(self, rows: Many[tuple[int, ...]]) -> None:
        """Look whether the text of each row, so far, has become an endless loop."""
        for number, tokens in enumerate(rows):
            while not self.loops[number] and self._looked[number] + LOOK <= len(tokens):
                self._looked[number] += LOOK
                if is_endless(tokens[: self._looked[number]], self.request.end):
                    self.loops[number] = self._looked[number]


class Detect(Sequence[NDArray[np.float32]]):
    """Its result: the share of each of `tokens.languages` in a window [languages], of sum 1.

    `tokens` are those of a multilingual model.
    """

    audio: EncoderInput

    def __init__(self, audio: EncoderInput, tokens: Tokens) -> None:
        super().__init__(audio, batch_key=("detect",))
        self.ids = list(tokens.languages.values())
        self.start = tokens.start


class Align(Sequence[Alignment]):
    """Where the tokens of a prompt look in a window, and how likely each is.

    `prompt`: all tokens, forced one after another; `end`: the first id that is not text;
    `frames`: positions of 20 ms that hold sound.
    """

    audio: EncoderInput

    def __init__(self, audio: EncoderInput, prompt: tuple[int, ...], end: int, frames: int) -> None:
        super().__init__(audio, batch_key=("align",))
        self.prompt, self.end, self.frames = prompt, end, frames
