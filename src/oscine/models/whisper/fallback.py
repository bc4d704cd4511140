"""A window's tokens: its prompt, its requests, attempts at rising temperatures while they are poor.

Source: whisper/transcribe.py (decode_with_fallback, should_skip) and MaximumLikelihoodRanker in
whisper/decoding.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.engine.sequence import EncoderInput
from oscine.engine.steps import Steps
from oscine.models.whisper.prompt import History, build_prompt, fit_prefix
from oscine.models.whisper.sequences import Decode, Decoded, Request
from oscine.models.whisper.tokens import (
    SECONDS_PER_TIMESTAMP,
    TextSide,
    suppressed,
    suppressed_first,
)
from oscine.options.transcribe import BEST_OF, DecodingOptions, FallbackThresholds
from oscine.text.compression import compression_ratio
from oscine.text.whisper import Tokenizer

MOST_TOKENS = 440  # picked in one window, whatever the text context allows


@dataclass(frozen=True, slots=True)
class Window:
    """A window to decode, in frames of the speech, and the tokens before its own."""

    audio: EncoderInput
    seek: int
    size: int
    language: str
    history: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DecodingResult:
    """One attempt at a window."""

    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    no_speech_prob: float
    compression_ratio: float
    stop: str


class Requests:
    """Makes the requests of all windows of a recording, which have its options in common.

    Raises UsageError where the options leave a window no token.
    """

    def __init__(self, options: DecodingOptions, text: TextSide) -> None:
        tokenizer, tokens, config = text.tokenizer, text.tokens, text.config
        self.options, self.tokenizer = options, tokenizer
        self._tokens, self._config = tokens, config
        self._suppress = suppressed(options.suppress_tokens, tokenizer, tokens, config)
        self._suppress_first = (
            suppressed_first(tokenizer, tokens, config) if options.suppress_blank else ()
        )
        prefix = _encode(tokenizer, options.prefix)
        self._prefix = fit_prefix(prefix, config.n_text_ctx, options.sample_len)
        room = config.n_text_ctx // 2 - 1
        self._hotwords = _encode(tokenizer, options.hotwords)[:room]

    def history(self) -> History:
        """The history of a recording before its first window; hotwords take their room from it."""
        return History(
            _encode(self.tokenizer, self.options.initial_prompt),
            self._config.n_text_ctx // 2 - 1 - len(self._hotwords),
            self.options.carry_initial_prompt,
        )

    def request(self, window: Window, temperature: float, attempt: int) -> Request:
        """The request of a window's attempt, counted from 0, at a temperature."""
        options, tokens, context = self.options, self._tokens, self._config.n_text_ctx
        timestamps = not options.without_timestamps
        start = tokens.start_sequence(window.language, options.task, timestamps)
        before = (*self._hotwords, *window.history)
        prompt, sot = build_prompt(before, start, self._prefix, tokens.start_of_previous, context)
        initial = options.max_initial_timestamp
        if initial is not None:
            initial = min(initial, self._config.window_frames / FRAMES_PER_SECOND)
        beams = options.beams if temperature == 0 else 1
        return Request(
            prompt=prompt,
            sot=sot,
            suppress=self._suppress,
            suppress_first=self._suppress_first,
            end=tokens.end,
            timestamp_begin=tokens.timestamp_begin,
            no_timestamps=tokens.no_timestamps,
            no_speech=tokens.no_speech,
            timestamps=timestamps,
            max_initial_timestamp=(
                None if initial is None else round(initial / SECONDS_PER_TIMESTAMP)
            ),
            limit=min(options.sample_len or context // 2, context - len(prompt), MOST_TOKENS),
            temperature=temperature,
            samples=(options.best_of or BEST_OF) if temperature > 0 else 1,
            beams=beams,
            pool=round(beams * (options.patience or 1.0)),
            repetition_penalty=options.repetition_penalty,
            no_repeat_ngram=min(options.no_repeat_ngram_size, context),
            # Only where a repetitive result is rejected: the rest of a loop then has no use.
            stop_loops=options.compression_ratio_threshold is not None and beams == 1,
            # Another window or attempt, other random numbers; the same run again, the same.
            seed=(options.seed * 0x9E3779B1 + window.seek * 16 + attempt) & 0xFFFFFFFF,
        )


def decode_with_fallback(window: Window, requests: Requests) -> Steps[DecodingResult]:
    """The window's tokens at the first temperature whose result is not poor."""
    options, results = requests.options, []
    for attempt, temperature in enumerate(options.temperature):
        rows = yield Decode(window.audio, requests.request(window, temperature, attempt))
        row = best(rows, options.length_penalty)
        text = requests.tokenizer.decode(row.tokens).strip()
        result = DecodingResult(
            tokens=row.tokens,
            temperature=temperature,
            avg_logprob=row.avg_logprob,
            no_speech_prob=row.no_speech_prob,
            compression_ratio=compression_ratio(text),
            stop=row.stop,
        )
        if not needs_fallback(result, options):
            return result
        results.append(result)
    return best_of_failed(results, options)


def best(rows: Sequence[Decoded], length_penalty: float | None = None) -> Decoded:
    """The row of highest log-probability for its length, in which end-of-text is not counted.

    A token's mean; with a penalty α of 0 to 1, divided by ((5 + length) / 6)^α (Google NMT).
    """

    def score(row: Decoded) -> float:
        length = len(row.tokens)
        if length_penalty is None:
            return row.sum_logprob / max(1, length)
        return float(row.sum_logprob / ((5 + length) / 6) ** length_penalty)

    return max(rows, key=score)


def best_of_failed(
    results: Sequence[DecodingResult], thresholds: FallbackThresholds
) -> DecodingResult:
    """The most likely result that does not repeat itself, or of all where each does.

    Source: faster_whisper/transcribe.py, generate_with_fallback.
    """
    sound = [result for result in results if not is_repetitive(result, thresholds)]
    return max(sound or results, key=lambda result: result.avg_logprob)


def needs_fallback(result: DecodingResult, thresholds: FallbackThresholds) -> bool:
    """Whether to try again at the next temperature."""
    unlikely = _is_unlikely(result, thresholds)
    silent = unlikely and _may_be_silence(result, thresholds)
    return (is_repetitive(result, thresholds) or unlikely) and not silent


def is_repetitive(result: DecodingResult, thresholds: FallbackThresholds) -> bool:
    """Whether the text says the same again and again."""
    ratio = thresholds.compression_ratio_threshold
    return ratio is not None and (result.compression_ratio > ratio or result.stop == "repeat")


def is_silence(result: DecodingResult, thresholds: FallbackThresholds) -> bool:
    """Whether to drop the window: no speech is likely, and the text is not convincing."""
    threshold = thresholds.logprob_threshold
    convincing = threshold is not None and result.avg_logprob > threshold
    return _may_be_silence(result, thresholds) and not convincing


def _is_unlikely(result: DecodingResult, thresholds: FallbackThresholds) -> bool:
    threshold = thresholds.logprob_threshold
    return threshold is not None and result.avg_logprob < threshold


def _may_be_silence(result: DecodingResult, thresholds: FallbackThresholds) -> bool:
    threshold = thresholds.no_speech_threshold
    return threshold is not None and result.no_speech_prob > threshold


def _encode(tokenizer: Tokenizer, text: str | None) -> tuple[int, ...]:
    """A prompt's text as ids, with the leading space that words in mid-sentence have.

    A blank text is none: the space alone would have the model end where it begins.
    """
    words = "" if text is None else text.strip()
    return tokenizer.encode(" " + words) if words else ()
