"""The sequences that Whisper submits to the engine: decoding, language detection, alignment."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oscine.engine.sequence import EncoderInput, Sequence
from oscine.models.whisper.repetition import ends_in_loop
from oscine.models.whisper.tokens import SpecialTokens

LOOP_CHECK_TOKENS = 16  # tokens between two checks for a loop, however often the engine polls


@dataclass(frozen=True, slots=True)
class DecodingRequest:
    """Everything that decoding one encoded window depends on, except the audio."""

    prompt: tuple[int, ...]  # all forced tokens: at least one, fewer than n_text_ctx
    sot_index: int  # of <|startoftranscript|> in the prompt
    suppress_tokens: tuple[int, ...]  # ids that are never sampled
    begin_suppress_tokens: tuple[int, ...]  # ids that are not sampled as the first token
    eot: int  # <|endoftext|>
    timestamp_begin: int  # <|0.00|>
    no_timestamps: int  # <|notimestamps|>
    no_speech: int  # <|nospeech|>
    timestamps: bool  # True: the timestamp rules apply
    max_initial_timestamp_index: int | None  # largest first timestamp; None: any
    max_new_tokens: int
    temperature: float = 0.0
    best_of: int = 1  # independent samples; more than one only with a temperature
    beam_size: int = 1  # more than one only at temperature 0
    max_candidates: int = 1  # finished beams that end the search: beam_size · patience
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    stop_loops: bool = False  # end a row early once its text is a repetition loop; not with beams
    seed: int = 0

    @property
    def rows(self) -> int:
        """Rows of the batch that the request takes: its samples or beams."""
        return max(self.best_of, self.beam_size)

    @property
    def has_penalties(self) -> bool:
        """Whether logits depend on the tokens sampled before, beyond the network itself."""
        return self.repetition_penalty != 1 or self.no_repeat_ngram_size > 0


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The tokens of one sample or beam: text and timestamps, without prompt and end-of-text."""

    tokens: tuple[int, ...]
    sum_logprob: float  # includes end-of-text; at temperature 1
    no_speech_prob: float
    finish_reason: str  # "end", "repeat" or "length"

    @property
    def avg_logprob(self) -> float:
        """The mean log-probability, with end-of-text counted: openai whisper/decoding.py."""
        return self.sum_logprob / (len(self.tokens) + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Cross-attention of R forced tokens to F positions of 20 ms, from which words get times."""

    weights: NDArray[np.float32]  # [A, R, F] of A alignment heads; each row sums to 1
    probabilities: NDArray[np.float32]  # [R - 1]: of token r + 1 given those up to r, among text


class DecodingSequence(Sequence[tuple[Hypothesis, ...]]):
    """Decodes a window at one temperature; the result is its samples or beams."""

    audio: EncoderInput

    def __init__(self, audio: EncoderInput, request: DecodingRequest) -> None:
        max_candidates = request.max_candidates if request.beam_size > 1 else 0
        super().__init__(audio, request.rows, ("decode", request.rows, max_candidates))
        self.request = request
        self.loop_ends: list[int] = [0] * request.rows  # tokens up to a loop's end; 0: no loop
        self._checked = [0] * request.rows  # tokens that were checked for loops

    def count_restart(self) -> None:
        """Forget what was decoded, because the device was lost."""
        super().count_restart()
        self.loop_ends, self._checked = [0] * self.rows, [0] * self.rows

    def check_for_loops(self, rows: Many[tuple[int, ...]]) -> None:
        """Check the tokens of each row so far for an endless repetition loop."""
        for row, tokens in enumerate(rows):
            while not self.loop_ends[row] and self._checked[row] + LOOP_CHECK_TOKENS <= len(tokens):
                self._checked[row] += LOOP_CHECK_TOKENS
                if ends_in_loop(tokens[: self._checked[row]], self.request.eot):
                    self.loop_ends[row] = self._checked[row]


class LanguageSequence(Sequence[NDArray[np.float32]]):
    """Detects the language of a window; the result [languages] are probabilities of sum 1.

    `special_tokens`: of a multilingual model; its `languages` give the order.
    """

    audio: EncoderInput

    def __init__(self, audio: EncoderInput, special_tokens: SpecialTokens) -> None:
        super().__init__(audio, batch_key=("language",))
        self.ids = list(special_tokens.languages.values())
        self.sot = special_tokens.sot


class AlignmentSequence(Sequence[Alignment]):
    """Aligns forced tokens to a window by cross-attention; the result is an Alignment.

    `prompt`: all tokens, including end-of-text; `eot`: the first id that is not text; `frames`:
    encoder positions of 20 ms that contain audio.
    """

    audio: EncoderInput

    def __init__(self, audio: EncoderInput, prompt: tuple[int, ...], eot: int, frames: int) -> None:
        super().__init__(audio, batch_key=("align",))
        self.prompt, self.eot, self.frames = prompt, eot, frames
