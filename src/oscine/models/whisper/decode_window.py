"""Lower-level access: decodes one window, or detects its language, from a given log-mel.

Source: whisper/decoding.py, detect_language and decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oscine.engine.generators import SequenceGenerator
from oscine.engine.sequence import EncoderInput
from oscine.errors import NonFiniteError
from oscine.models.whisper.fallback import RequestBuilder, Window, decode_with_fallback
from oscine.models.whisper.language import language_probs, most_likely_language
from oscine.models.whisper.tokens import TextDecoderInfo
from oscine.options.transcribe import DecodingOptions


@dataclass(frozen=True, slots=True)
class DecodedWindow:
    """The text of one window; `tokens` includes timestamps. Other fields as in DecodingResult."""

    language: str
    language_probs: dict[str, float] | None  # None: the language was given
    tokens: tuple[int, ...]
    text: str
    avg_logprob: float
    no_speech_prob: float
    temperature: float
    compression_ratio: float


def window_language(
    mel: NDArray[np.float32], info: TextDecoderInfo
) -> SequenceGenerator[tuple[str, dict[str, float]]]:
    """The language of a log-mel [frames, n_mels], and the probability of each language code.

    Raises NonFiniteError.
    """
    probs = yield from language_probs(_encoder_input(mel), info.special_tokens)
    return most_likely_language(probs), probs


def decode_window(
    mel: NDArray[np.float32],
    prompt: Sequence[int],
    info: TextDecoderInfo,
    options: DecodingOptions,
) -> SequenceGenerator[DecodedWindow]:
    """Decode a log-mel [frames, n_mels]. Raises NonFiniteError.

    `prompt`: ids of the text before the window; if empty, that of options.initial_prompt.
    """
    audio = _encoder_input(mel)
    language, probs = options.language or "en", None
    if options.language is None and info.special_tokens.multilingual:
        probs = yield from language_probs(audio, info.special_tokens)
        language = most_likely_language(probs)
    requests = RequestBuilder(options, info)
    history = tuple(prompt)[-(info.config.n_text_ctx // 2 - 1) :] or requests.history().prompt()
    window = Window(audio, 0, len(mel), language, history)
    result = yield from decode_with_fallback(window, requests)
    return DecodedWindow(
        language=language,
        language_probs=probs,
        tokens=result.tokens,
        text=info.tokenizer.decode(result.tokens).strip(),
        avg_logprob=result.avg_logprob,
        no_speech_prob=result.no_speech_prob,
        temperature=result.temperature,
        compression_ratio=result.compression_ratio,
    )


def _encoder_input(mel: NDArray[np.float32]) -> EncoderInput:
    if not np.isfinite(mel).all():
        raise NonFiniteError("the log-mel contains non-finite numbers")
    return EncoderInput(mel)
