"""One window whose log-mel the caller has made: its language, and what it says.

Source: whisper/decoding.py, detect_language and decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oscine.engine.sequence import EncoderInput
from oscine.engine.steps import Steps
from oscine.errors import NonFiniteError
from oscine.models.whisper.fallback import Requests, Window, decode_with_fallback
from oscine.models.whisper.language import language_probs, most_likely
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
    mel: NDArray[np.float32], text: TextSide
) -> Steps[tuple[str, dict[str, float]]]:
    """The code of the language of a mel [frames, n_mels], and the probability of each code."""
    shares = yield from language_probs(_input(mel), text.tokens)
    return most_likely(shares), shares


def decode_window(
    mel: NDArray[np.float32], prompt: Sequence[int], text: TextSide, options: DecodingOptions
) -> Steps[DecodedWindow]:
    """Decode a mel [frames, n_mels]. `prompt`: ids of the text before it, else initial_prompt."""
    audio = _input(mel)
    language, shares = options.language or "en", None
    if options.language is None and text.tokens.multilingual:
        shares = yield from language_probs(audio, text.tokens)
        language = most_likely(shares)
    requests = Requests(options, text)
    history = tuple(prompt)[-(text.config.n_text_ctx // 2 - 1) :] or requests.history().prompt()
    window = Window(audio, 0, len(mel), language, history)
    result = yield from decode_with_fallback(window, requests)
    return DecodedWindow(
        language=language,
        language_probs=shares,
        tokens=result.tokens,
        text=text.tokenizer.decode(result.tokens).strip(),
        avg_logprob=result.avg_logprob,
        no_speech_prob=result.no_speech_prob,
        temperature=result.temperature,
        compression_ratio=result.compression_ratio,
    )


def _input(mel: NDArray[np.float32]) -> EncoderInput:
    """Raises NonFiniteError."""
    if not np.isfinite(mel).all():
        raise NonFiniteError("the log-mel contains non-finite numbers")
    return EncoderInput(mel)
