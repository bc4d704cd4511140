"""Audio as it comes to words as they are said: buffered streaming of a model that is trained whole.

Source: NeMo examples/asr/asr_chunked_inference/rnnt/speech_to_text_streaming_infer_rnnt.py: the
encoder hears what was, a chunk and what comes after it; only the chunk is decoded, by a decoder
that goes on from where it was. Each buffer is normalised by itself, as upstream does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from oscine.audio.mel import HOP, SAMPLE_RATE
from oscine.audio.mel_nemo import log_mel
from oscine.engine.sequence import EncoderInput
from oscine.engine.steps import Steps, Submit, run
from oscine.models.live_audio import check_latency, live_updates
from oscine.models.parakeet.boost import Phrases
from oscine.models.parakeet.sequences import Carried, Chunk, Decoded, Emission
from oscine.models.parakeet.words import (
    Spoken,
    TextSide,
    Timing,
    Token,
    spoken_words,
    tokens_of,
)
from oscine.types import Samples, Update, Word

LATENCY = 2.0  # seconds
LEAST_LATENCY, MOST_LATENCY = 0.16, 30.0  # two encoder frames; what a buffer can be
BEFORE = 10.0  # seconds that are heard again with every chunk
SETTLED = 50  # frames of 10 ms without a label after which a word goes on no more


class Listener:
    """One stream of audio: push samples, then finish. Seconds count from the first sample.

    Half of the latency is waited for a chunk, half for what comes after it. Memory and the work for
    each chunk do not grow.
    """

    def __init__(
        self, submit: Submit, text: TextSide, latency: float, phrases: Phrases | None
    ) -> None:
        self.submit, self.phrases = submit, phrases
        self.tokenizer, self.config, self.factor = (
            text.tokenizer,
            text.config,
            text.config.subsampling_factor,
        )
        frame = self.factor * HOP / SAMPLE_RATE
        self.chunk = max(1, int(latency / 2 / frame))  # encoder frames
        self.after = max(1, int(latency / frame) - self.chunk)
        self.before = max(1, round(BEFORE / frame))
        self.samples = np.zeros(0, np.float32)
        self.begin = 0  # encoder frame that the samples begin with
        self.done = 0  # encoder frames that are decoded
        self.carried: Carried | None = None
        self.last: Emission | None = None  # of a CTC head, at the end of what is decoded
        self.pending: list[Token] = []  # of a word that may go on
        self.timing = Timing(text.tokenizer, timeless=bool(text.config.durations))

    @property
    def heard(self) -> int:
        """Samples so far."""
        return self.begin * self.factor * HOP + len(self.samples)

    def push(self, samples: Samples) -> Iterator[Update]:
        """Take samples [n] at 16 kHz; an update for every chunk that is complete."""
        waiting = np.concatenate([self.samples, samples])
        while True:
            reach = (self.done + self.chunk + self.after - self.begin) * self.factor * HOP
            if len(waiting) < reach:
                break
            self.samples, rest = waiting[:reach], waiting[reach:]
            yield self.hear(self.chunk)
            waiting = np.concatenate([self.samples, rest])
        self.samples = waiting

    def finish(self) -> Iterator[Update]:
        """What is left, as final; one update."""
        yield self.hear(None)

    def hear(self, chunk: int | None) -> Update:
        """Decode so many encoder frames after what is done; None: all that there are, finally."""
        mel = log_mel(self.samples, self.config.n_mels)
        limit = self.begin * self.factor + len(mel)
        total = -(-len(mel) // self.factor)
        start = min(self.done - self.begin, total)
        stop = total if chunk is None else start + chunk
        final: list[Emission] = []
        guess: list[Emission] = []
        if start < stop:
            audio = EncoderInput(mel, self.config.attention_window)
            final, guess = run(self.submit, self.decode(audio, start, stop, total))
        tokens = self.placed(final, self.begin + start, limit)
        self.done = self.begin + stop
        spoken = spoken_words([*self.pending, *tokens], self.tokenizer)
        ahead = self.placed(guess, self.done, limit)
        settled = self.settled(spoken, chunk is None)
        self.pending = [token for word in spoken[settled:] for token in word]
        update = Update(
            final=tuple(self.timing.word(word) for word in spoken[:settled]),
            partial=self.guessed([*self.pending, *ahead]),
            heard=self.heard / SAMPLE_RATE,
        )
        self.forget()
        return update

    def decode(
        self, audio: EncoderInput, start: int, stop: int, total: int
    ) -> Steps[tuple[list[Emission], list[Emission]]]:
        """The labels of frames `start` to `stop` of a buffer, and a guess at those after them."""
        found: Decoded = yield Chunk(audio, (start, stop), self.phrases, self.carried, carry=True)
        ahead: tuple[Emission, ...] = ()
        if stop < total:
            guess: Decoded = yield Chunk(audio, (stop, total), self.phrases, found.carried)
            ahead = guess.emissions
        final = continued(self.last, found.emissions, found.carried)
        last = final[-1] if final else None
        self.carried = found.carried
        runs_on = last is not None and last.frame + last.duration == stop - start
        self.last = last if runs_on else None
        return final, continued(self.last, ahead, found.carried)

    def placed(self, emissions: Iterable[Emission], first: int, limit: int) -> list[Token]:
        """Emissions of frames that begin with `first`, in frames of the whole stream."""
        return tokens_of(emissions, self.tokenizer, first * self.factor, self.factor, limit)

    def settled(self, spoken: list[Spoken], final: bool) -> int:
        """How many words go on no more: all but the last, and that too after a pause.

        Spaces at the end may belong to a mark that is still to come, and so to the word before.
        """
        if not spoken:
            return 0
        quiet = self.done * self.factor - spoken[-1][-1].end >= SETTLED
        if final or quiet:
            return len(spoken)
        blank = all(self.tokenizer.is_blank(token.id) for token in spoken[-1])
        return max(0, len(spoken) - 1 - blank)

    def guessed(self, tokens: list[Token]) -> tuple[Word, ...]:
        """Words that may change yet; the next ones are timed as if these had not been."""
        timing = self.timing.copy()
        return tuple(timing.word(word) for word in spoken_words(tokens, self.tokenizer))

    def forget(self) -> None:
        """Let go of samples that are heard no more."""
        spare = self.done - self.before - self.begin
        if spare > 0:
            self.samples = self.samples[spare * self.factor * HOP :].copy()
            self.begin += spare


def continued(
    last: Emission | None, emissions: tuple[Emission, ...], carried: Carried | None
) -> list[Emission]:
    """A CTC head's run of one label that goes on over the border of a chunk is said once."""
    if carried is not None or last is None or not emissions or emissions[0].frame > 0:
        return list(emissions)
    return list(emissions[1:]) if emissions[0].token == last.token else list(emissions)


def listen(
    submit: Submit,
    text: TextSide,
    pieces: Iterable[Any],
    latency: float,
    phrases: Phrases | None,
    cancelled: Callable[[], bool] | None,
) -> Iterator[Update]:
    """See Parakeet.listen."""
    check_latency(latency, LEAST_LATENCY, MOST_LATENCY)
    yield from live_updates(Listener(submit, text, latency, phrases), pieces, cancelled)
