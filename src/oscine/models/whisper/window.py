"""One window whose log-mel the caller has made: its language, and what it says.

Source: whisper/decoding.py, detect_language and decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oscine.errors import NonFiniteError
from oscine.models.whisper.attempts import Attempts, Job
from oscine.models.whisper.language import language_probs, likeliest
from oscine.models.whisper.request import Engine
from oscine.models.whisper.tokens import TextSide
from oscine.options.transcribe import DecodingOptions


@dataclass(frozen=True, slots=True)
class DecodedWindow:
    """What one window says; `tokens` has its timestamps too. Fields as in DecodingResult."""

    language: str
    language_probs: dict[str, float] | None  # None: the language was given
    tokens: tuple[int, ...]
    text: str
    avg_logprob: float
    no_speech_prob: float
    temperature: float
    compression_ratio: float


def window_language(
    mel: NDArray[np.float32], text: TextSide, engine: Engine
) -> tuple[str, dict[str, float]]:
    """The code of the language of a mel [frames, n_mels], and the probability of each code."""
    _encode(engine, mel)
    shares = language_probs(engine, text.tokens)
    return likeliest(shares), shares


def decode_window(
    mel: NDArray[np.float32],
    prompt: Sequence[int],
    text: TextSide,
    options: DecodingOptions,
    engine: Engine,
) -> DecodedWindow:
    """Decode a mel [frames, n_mels]. `prompt`: ids of the text before it, else initial_prompt."""
    _encode(engine, mel)
    language, shares = options.language or "en", None
    if options.language is None and text.tokens.multilingual:
        shares = language_probs(engine, text.tokens)
        language = likeliest(shares)
    attempts = Attempts(options, text)
    history = tuple(prompt)[-(text.config.n_text_ctx // 2 - 1) :] or attempts.history().prompt()
    (outcome,) = attempts.run([Job(0, len(mel), language, history)], engine, lambda *_: None)
    return DecodedWindow(
        language=language,
        language_probs=shares,
        tokens=outcome.tokens,
        text=text.tokenizer.decode(outcome.tokens).strip(),
        avg_logprob=outcome.avg_logprob,
        no_speech_prob=outcome.no_speech_prob,
        temperature=outcome.temperature,
        compression_ratio=outcome.compression_ratio,
    )


def _encode(engine: Engine, mel: NDArray[np.float32]) -> None:
    """Raises NonFiniteError, and UsageError for a mel of another shape."""
    if not np.isfinite(mel).all():
        raise NonFiniteError("the log-mel contains non-finite numbers")
    engine.held = None  # no window of a recording
    engine.encode([mel])
