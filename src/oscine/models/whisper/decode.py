"""One window's decoding: prefill the prompt, then bursts of steps that the device drives itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """Everything one pass over an encoded window depends on; nothing is read from elsewhere."""

    prompt: tuple[int, ...]  # all forced tokens, at least one, fewer than n_text_ctx
    sot: int  # index in prompt of <|startoftranscript|>
    suppress: tuple[int, ...]  # ids never picked
    suppress_first: tuple[int, ...]  # ids not picked as first token
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
