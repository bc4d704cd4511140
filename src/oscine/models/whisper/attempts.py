"""Windows to tokens: prompts, requests, and attempts at rising temperatures while a result is poor.

Source: whisper/transcribe.py, decode_with_fallback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oscine.audio.mel import FRAMES_PER_SECOND
from oscine.models.whisper.cut import SECONDS_PER_TIMESTAMP
from oscine.models.whisper.fallback import Outcome, best, is_poor, least_poor
from oscine.models.whisper.prompt import History, build_prompt, fit_prefix
from oscine.models.whisper.request import Check, Decoded, Engine, Request
from oscine.models.whisper.tokens import TextSide, suppressed, suppressed_first
from oscine.options.transcribe import BEST_OF, DecodingOptions
from oscine.text.compression import compression_ratio
from oscine.text.whisper import Tokenizer

MOST_TOKENS = 440  # picked in one window, whatever the text context allows


@dataclass(frozen=True, slots=True)
class Job:
    """A window to decode, in frames of what is listened to, and what it is told beforehand."""

    seek: int
    size: int
    language: str
    history: tuple[int, ...]


class Attempts:
    """What all windows of one recording have in common."""

    def __init__(self, options: DecodingOptions, text: TextSide) -> None:
        tokenizer, tokens, config = text.tokenizer, text.tokens, text.config
        self._options, self._tokenizer = options, tokenizer
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
        """That of a recording not yet begun; hotwords take their room from it."""
        return History(
            _encode(self._tokenizer, self._options.initial_prompt),
            self._config.n_text_ctx // 2 - 1 - len(self._hotwords),
            self._options.carry_initial_prompt,
        )

    def run(self, jobs: Sequence[Job], engine: Engine, check: Check) -> list[Outcome]:
        """Each window's tokens at the first temperature whose result is not poor.

        Job n listens to the engine's encoded window n. `check` is called while it decodes, and may
        raise to stop.
        """
        tried: list[list[Outcome]] = [[] for _ in jobs]
        open_jobs = list(range(len(jobs)))
        for attempt, temperature in enumerate(self._options.temperature):
            requests = [self._request(jobs[at], at, temperature, attempt) for at in open_jobs]
            for at, rows in zip(open_jobs, engine.decode(requests, check), strict=True):
                tried[at].append(self._outcome(rows, temperature))
            open_jobs = [at for at in open_jobs if is_poor(tried[at][-1], self._options)]
            if not open_jobs:
                break
        for at in open_jobs:
            tried[at].append(least_poor(tried[at], self._options))
        return [outcomes[-1] for outcomes in tried]

    def _outcome(self, rows: Sequence[Decoded], temperature: float) -> Outcome:
        row = best(rows, self._options.length_penalty)
        return Outcome(
            tokens=row.tokens,
            temperature=temperature,
            avg_logprob=row.avg_logprob,
            no_speech_prob=row.no_speech_prob,
            compression_ratio=compression_ratio(self._tokenizer.decode(row.tokens).strip()),
            stop=row.stop,
        )

    def _request(self, job: Job, window: int, temperature: float, attempt: int) -> Request:
        options, tokens, context = self._options, self._tokens, self._config.n_text_ctx
        timestamps = not options.without_timestamps
        start = tokens.start_sequence(job.language, options.task, timestamps)
        before = (*self._hotwords, *job.history)
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
            seed=(options.seed * 0x9E3779B1 + job.seek * 16 + attempt) & 0xFFFFFFFF,
            window=window,
        )


def _encode(tokenizer: Tokenizer, text: str | None) -> tuple[int, ...]:
    """A prompt's text as ids, with the leading space that words in mid-sentence have.

    A blank text is none: the space alone would have the model end where it begins.
    """
    words = "" if text is None else text.strip()
    return tokenizer.encode(" " + words) if words else ()
