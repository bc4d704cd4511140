"""Decodes a window at rising temperatures until a result passes the thresholds.

Source: whisper/transcribe.py (decode_with_fallback, should_skip) and MaximumLikelihoodRanker in
whisper/decoding.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.engine.generators import SequenceGenerator
from oscine.engine.sequence import EncoderInput
from oscine.models.whisper.prompt import PromptHistory, build_prompt, truncate_prefix
from oscine.models.whisper.sequences import DecodingRequest, DecodingSequence, Hypothesis
from oscine.models.whisper.tokens import (
    SECONDS_PER_TIMESTAMP,
    TextDecoderInfo,
    begin_suppressed_tokens,
    suppressed_tokens,
)
from oscine.options.transcribe import DEFAULT_BEST_OF, DecodingOptions, FallbackThresholds
from oscine.text.compression import compression_ratio
from oscine.text.whisper import WhisperTokenizer

MAX_NEW_TOKENS = 440  # of one window, whatever the text context allows


@dataclass(frozen=True, slots=True)
class Window:
    """A window to decode, with the tokens of the text before it."""

    audio: EncoderInput
    seek: int  # first frame, in the speech
    size: int  # frames
    language: str
    history: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DecodingResult:
    """The result of decoding a window at one temperature; fields as in openai-whisper."""

    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    no_speech_prob: float
    compression_ratio: float
    finish_reason: str  # "end", "repeat" or "length"


class RequestBuilder:
    """Builds the decoding requests of a recording's windows, which share its options.

    Raises UsageError if the options leave no room for a token.
    """

    def __init__(self, options: DecodingOptions, info: TextDecoderInfo) -> None:
        tokenizer, special_tokens, config = info.tokenizer, info.special_tokens, info.config
        self.options, self.tokenizer = options, tokenizer
        self._special_tokens, self._config = special_tokens, config
        self._suppress_tokens = suppressed_tokens(options.suppress_tokens, info)
        self._begin_suppress_tokens = (
            begin_suppressed_tokens(info) if options.suppress_blank else ()
        )
        prefix = _encode_prompt_text(tokenizer, options.prefix)
        self._prefix = truncate_prefix(prefix, config.n_text_ctx, options.sample_len)
        self._hotwords = _encode_prompt_text(tokenizer, options.hotwords)[
            : config.n_text_ctx // 2 - 1
        ]

    def history(self) -> PromptHistory:
        """The history before the first window; it leaves room for the hotwords."""
        return PromptHistory(
            _encode_prompt_text(self.tokenizer, self.options.initial_prompt),
            self._config.n_text_ctx // 2 - 1 - len(self._hotwords),
            self.options.carry_initial_prompt,
        )

    def request(self, window: Window, temperature: float, attempt: int) -> DecodingRequest:
        """The request of a window's attempt, counted from 0, at a temperature."""
        options, special_tokens, n_text_ctx = (
            self.options,
            self._special_tokens,
            self._config.n_text_ctx,
        )
        timestamps = not options.without_timestamps
        start = special_tokens.sot_sequence(window.language, options.task, timestamps)
        before = (*self._hotwords, *window.history)
        prompt, sot_index = build_prompt(
            before, start, self._prefix, special_tokens.sot_prev, n_text_ctx
        )
        max_initial = options.max_initial_timestamp
        if max_initial is not None:
            max_initial = min(max_initial, self._config.window_frames / FRAMES_PER_SECOND)
        beam_size = options.beams if temperature == 0 else 1
        return DecodingRequest(
            prompt=prompt,
            sot_index=sot_index,
            suppress_tokens=self._suppress_tokens,
            begin_suppress_tokens=self._begin_suppress_tokens,
            eot=special_tokens.eot,
            timestamp_begin=special_tokens.timestamp_begin,
            no_timestamps=special_tokens.no_timestamps,
            no_speech=special_tokens.no_speech,
            timestamps=timestamps,
            max_initial_timestamp_index=(
                None if max_initial is None else round(max_initial / SECONDS_PER_TIMESTAMP)
            ),
            max_new_tokens=min(
                options.sample_len or n_text_ctx // 2, n_text_ctx - len(prompt), MAX_NEW_TOKENS
            ),
            temperature=temperature,
            best_of=(options.best_of or DEFAULT_BEST_OF) if temperature > 0 else 1,
            beam_size=beam_size,
            max_candidates=round(beam_size * (options.patience or 1.0)),
            repetition_penalty=options.repetition_penalty,
            no_repeat_ngram_size=min(options.no_repeat_ngram_size, n_text_ctx),
            # Only if repetitive results are rejected: then the rest of a loop is never used.
            stop_loops=options.compression_ratio_threshold is not None and beam_size == 1,
            # Windows and attempts sample differently; the same run samples the same.
            seed=(options.seed * 0x9E3779B1 + window.seek * 16 + attempt) & 0xFFFFFFFF,
        )


def decode_with_fallback(
    window: Window, requests: RequestBuilder
) -> SequenceGenerator[DecodingResult]:
    """The result of the first temperature that needs no fallback, or the best of all."""
    options, results = requests.options, []
    for attempt, temperature in enumerate(options.temperature):
        hypotheses = yield DecodingSequence(
            window.audio, requests.request(window, temperature, attempt)
        )
        best = best_hypothesis(hypotheses, options.length_penalty)
        text = requests.tokenizer.decode(best.tokens).strip()
        result = DecodingResult(
            tokens=best.tokens,
            temperature=temperature,
            avg_logprob=best.avg_logprob,
            no_speech_prob=best.no_speech_prob,
            compression_ratio=compression_ratio(text),
            finish_reason=best.finish_reason,
        )
        if not needs_fallback(result, options):
            return result
        results.append(result)
    return best_of_failed(results, options)


def best_hypothesis(
    hypotheses: Sequence[Hypothesis], length_penalty: float | None = None
) -> Hypothesis:
    """The hypothesis of highest log-probability for its length, without end-of-text.

    The log-probability is divided by the length or, with a length penalty α from 0 to 1, by
    ((5 + length) / 6)^α (Google NMT).
    """

    def score(hypothesis: Hypothesis) -> float:
        length = len(hypothesis.tokens)
        if length_penalty is None:
            return hypothesis.sum_logprob / max(1, length)
        return float(hypothesis.sum_logprob / ((5 + length) / 6) ** length_penalty)

    return max(hypotheses, key=score)


def best_of_failed(
    results: Sequence[DecodingResult], thresholds: FallbackThresholds
) -> DecodingResult:
    """The result of highest avg_logprob that is not repetitive, or of all if all are.

    Source: faster_whisper/transcribe.py, generate_with_fallback.
    """
    varied = [result for result in results if not is_repetitive(result, thresholds)]
    return max(varied or results, key=lambda result: result.avg_logprob)


def needs_fallback(result: DecodingResult, thresholds: FallbackThresholds) -> bool:
    """Whether to decode again at the next temperature."""
    unlikely = _is_unlikely(result, thresholds)
    silent = unlikely and _may_be_silence(result, thresholds)
    return (is_repetitive(result, thresholds) or unlikely) and not silent


def is_repetitive(result: DecodingResult, thresholds: FallbackThresholds) -> bool:
    """Whether the text repeats itself: its compression ratio is too high, or it is a loop."""
    ratio = thresholds.compression_ratio_threshold
    return ratio is not None and (
        result.compression_ratio > ratio or result.finish_reason == "repeat"
    )


def is_silence(result: DecodingResult, thresholds: FallbackThresholds) -> bool:
    """Whether to drop the window: speech is unlikely and so is the text."""
    threshold = thresholds.logprob_threshold
    is_likely = threshold is not None and result.avg_logprob > threshold
    return _may_be_silence(result, thresholds) and not is_likely


def _is_unlikely(result: DecodingResult, thresholds: FallbackThresholds) -> bool:
    threshold = thresholds.logprob_threshold
    return threshold is not None and result.avg_logprob < threshold


def _may_be_silence(result: DecodingResult, thresholds: FallbackThresholds) -> bool:
    threshold = thresholds.no_speech_threshold
    return threshold is not None and result.no_speech_prob > threshold


def _encode_prompt_text(tokenizer: WhisperTokenizer, text: str | None) -> tuple[int, ...]:
    """A prompt's text as ids, with the leading space of words within a sentence.

    Blank text gives no ids: after a space alone, the model would end the transcript at once.
    """
    words = "" if text is None else text.strip()
    return tokenizer.encode(" " + words) if words else ()
