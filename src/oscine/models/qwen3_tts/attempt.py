"""One attempt at one piece of text: frames to audio as they come, watched by the guards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from oscine.models.qwen3_tts.conditioning import Conditioning
from oscine.models.qwen3_tts.config import Qwen3TtsConfig, Sampling
from oscine.models.qwen3_tts.decode import Decoder
from oscine.models.qwen3_tts.guard import Leak, Repetition, Silence, budget
from oscine.models.qwen3_tts.prompt import Prompt, PromptBuilder, Tokenizer
from oscine.models.qwen3_tts.request import Request
from oscine.types import Samples

Codes = NDArray[np.uint32]
NOTHING: Samples = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class Settings:
    """What all attempts of a call have in common. `most_frames`: of all pieces; `most_samples`: of
    all audio, the quiet between pieces too; None: any. `trim`: no quiet before the first sound."""

    tokenizer: Tokenizer
    conditioning: Conditioning
    talker: Sampling
    predictor: Sampling
    seed: int
    most_frames: int | None
    most_samples: int | None
    guard: bool
    trim: bool = False


class Attempt:
    """Iterate over `samples` for arrays [n]; `reason` then says how it ended, `frames` how many
    there were.

    `left`: most frames, None for any. `capped`: that many were reached, so that another try would
    be no better.
    """

    def __init__(self, settings: Settings, text: str, seed: int, left: int | None) -> None:
        self._settings = settings
        self.text, self.seed, self.left = text, seed, left
        self.reason: str | None = None
        self.frames = 0
        self.capped = False

    def samples(self, decoder: Decoder) -> Iterator[Samples]:
        """The audio, from its beginning."""
        settings = self._settings
        prompt = settings.conditioning.prompt(
            PromptBuilder(decoder.config, settings.tokenizer, decoder), self.text
        )
        limit = self._limit(decoder.config, prompt)
        request = Request(prompt, settings.talker, settings.predictor, self.seed, limit)
        reference = settings.conditioning.reference
        codes = None if reference is None else reference.codes
        prime(decoder, codes)
        silence = Silence(decoder.config.codec.rate, decoder.config.codec.hop)
        self.reason, self.frames = None, 0
        run = decoder.begin(request)
        try:
            for samples in self._decoded(decoder, self._own(decoder, run, codes), run.go_on):
                heard = silence.push(samples) if settings.guard else samples
                if len(heard):
                    yield heard
                if settings.guard and silence.lasts:
                    self.reason = "silence"
                    return
            self.frames = run.seen_frames
            self.reason = self.reason or run.finish_reason or "length"
            self.capped = self.reason == "length" and limit == self.left
            if len(rest := silence.rest()):
                yield rest
        finally:
            self.frames = run.seen_frames
            run.stop()

    def _limit(self, config: Qwen3TtsConfig, prompt: Prompt) -> int:
        """Most frames of this attempt: as asked for, as the text allows, as there are positions."""
        most = [config.generation.max_new_tokens - 1, config.context - len(prompt.rows)]
        if self._settings.guard:
            most.append(budget(self.text, config.codec.rate / config.codec.hop))
        if self.left is not None:
            most.append(self.left)
        return max(1, min(most))  # 1 is refused with the reason where there is no room at all

    def _own(
        self, decoder: Decoder, run: Iterable[Codes], reference: Codes | None
    ) -> Iterator[Codes]:
        """Bursts of frames but for those of a reference at their beginning, until they loop."""
        leak = Leak(reference) if reference is not None and self._settings.guard else None
        repetition = Repetition()
        early: list[Codes] = []
        for codes in run:
            if leak is not None:
                early.append(codes)
                leaked = leak.push(codes)
                if leaked is None:
                    continue
                leak = None
                codes = np.concatenate(early)
                early = []
                if leaked:
                    decoder.codec.prime(codes[:leaked])
                    codes = codes[leaked:]
            if len(codes):
                yield codes
            if self._settings.guard and repetition.push(codes):
                self.reason = "repetition"
                return
        if early:
            yield np.concatenate(early)

    def _decoded(
        self, decoder: Decoder, bursts: Iterator[Codes], go_on: Callable[[], None]
    ) -> Iterator[Samples]:
        """Samples of bursts: of the first at once; of others while the next frames are made, where
        the device works by itself. There, frames follow the first while its sound is listened to.
        """
        pending: Callable[[], Samples] | None = None
        first = True
        for codes in bursts:
            if pending is not None:
                yield self._waited(decoder, pending)
            started = perf_counter()
            pending = decoder.codec.begin(codes)
            decoder.clock("codec", 1000 * (perf_counter() - started))
            if first and decoder.backend.runs_ahead:
                go_on()
            if first or not decoder.backend.runs_ahead:
                yield self._waited(decoder, pending)
                pending = None
            first = False
        if pending is not None:
            yield self._waited(decoder, pending)

    def _waited(self, decoder: Decoder, pending: Callable[[], Samples]) -> Samples:
        started = perf_counter()
        samples = pending()
        decoder.clock("codec", 1000 * (perf_counter() - started))
        return samples


def prime(decoder: Decoder, codes: Codes | None) -> None:
    """Have the codec begin again, after a reference's codes [n, G] where there are some.

    Their audio is not returned. The state after them is kept for the next piece with this voice.
    """
    codec = decoder.codec
    if codes is None:
        codec.reset()
        return
    mark = codes.tobytes()
    if decoder.primed is not None and decoder.primed[0] == mark:
        codec.restore(decoder.primed[1])
        return
    codec.reset()
    codec.prime(codes)
    if decoder.primed is not None:
        codec.forget(decoder.primed[1])
    decoder.primed = mark, codec.saved()
