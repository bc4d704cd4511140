"""One attempt at one piece of text: what is asked of the engine, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from oscine.engine.sequence import Check
from oscine.models.qwen3_tts.conditioning import Conditioning
from oscine.models.qwen3_tts.config import Qwen3TtsConfig, Sampling
from oscine.models.qwen3_tts.guards import budget
from oscine.models.qwen3_tts.prompt import Tokenizer
from oscine.models.qwen3_tts.sequences import (
    LEAST_WAITING,
    Request,
    Utterance,
    check_request,
)
from oscine.types import Samples

Submit = Callable[[Utterance], object]

NOTHING: Samples = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class Settings:
    """What all attempts of a call have in common. `most_frames`: of all pieces; `most_samples`: of
    all audio, the quiet between pieces too; None: any. `trim`: no quiet before the first sound."""

    config: Qwen3TtsConfig
    tokenizer: Tokenizer
    conditioning: Conditioning
    talker: Sampling
    predictor: Sampling
    seed: int
    most_frames: int | None
    most_samples: int | None
    guard: bool
    trim: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether how long a piece may be depends on the pieces before it."""
        return self.most_frames is not None or self.most_samples is not None


class Attempt:
    """Iterate over `samples` for arrays [n]; `reason` then says how it ended, `frames` how many
    there were.

    `left`: most frames, None for any. `capped`: that many were reached, so that another try would
    be no better. `whole`: all of it is wanted, and nothing before. The utterance is the engine's
    from the beginning, so that it runs while others are listened to. Raises UsageError for what
    the model cannot hold.
    """

    def __init__(
        self,
        settings: Settings,
        text: str,
        seed: int,
        left: int | None,
        submit: Submit,
        *,
        whole: bool = False,
    ) -> None:
        self.left, self._submit = left, submit
        self.reason: str | None = None
        self.frames = 0
        config, conditioning = settings.config, settings.conditioning
        draft = conditioning.draft(config, settings.tokenizer, text)
        self.limit = frame_limit(settings, text, draft.length, left)
        request = Request(draft, settings.talker, settings.predictor, seed, self.limit)
        check_request(request, config)
        reference = conditioning.reference
        codes = None if reference is None else reference.codes
        self._least = round(LEAST_WAITING * config.codec.rate)
        self.utterance = Utterance(request, codes, guarded=settings.guard, whole=whole)
        submit(self.utterance)

    @property
    def capped(self) -> bool:
        """Whether it ended at the most frames that were left."""
        return self.reason == "length" and self.limit == self.left

    def samples(self, check: Check) -> Iterator[Samples]:
        """The audio as it comes; `check` is called meanwhile and may raise, which stops it."""
        utterance = self.utterance
        yield from utterance.pieces(check, lambda: self._submit(utterance), self._least)
        said = utterance.result()
        self.reason, self.frames = said.reason, said.frames


def frame_limit(settings: Settings, text: str, positions: int, left: int | None) -> int:
    """Most frames of an attempt: as asked for, as the text allows, as there are positions."""
    config = settings.config
    most = [config.generation.max_new_tokens - 1, config.context - positions]
    if settings.guard:
        most.append(budget(text, config.codec.rate / config.codec.hop))
    if left is not None:
        most.append(left)
    return max(1, min(most))  # 1 is refused with the reason where there is no room at all
