"""One attempt at one piece of text: what is asked of the engine, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from oscine.engine.sequence import CancelCheck
from oscine.models.qwen3_tts.conditioning import Conditioning
from oscine.models.qwen3_tts.config import Qwen3TtsConfig, SamplingParams
from oscine.models.qwen3_tts.guards import max_frames_for
from oscine.models.qwen3_tts.prompt import Tokenizer
from oscine.models.qwen3_tts.sequences import (
    MIN_BUFFERED_S,
    Utterance,
    UtteranceRequest,
    check_request,
)
from oscine.types import Samples

Submit = Callable[[Utterance], object]

NO_SAMPLES: Samples = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """What all attempts of a call have in common. `most_frames`: of all pieces; `most_samples`: of
    all audio, the quiet between pieces too; None: any. `trim`: no quiet before the first sound."""

    config: Qwen3TtsConfig
    tokenizer: Tokenizer
    conditioning: Conditioning
    talker: SamplingParams
    code_predictor: SamplingParams
    seed: int
    max_frames: int | None
    max_samples: int | None
    guard: bool
    trim_silence: bool = False

    @property
    def has_limit(self) -> bool:
        """Whether how long a piece may be depends on the pieces before it."""
        return self.max_frames is not None or self.max_samples is not None


class Generation:
    """Iterate over `samples` for arrays [n]; `reason` then says how it ended, `frames` how many
    there were.

    `left`: most frames, None for any. `capped`: that many were reached, so that another try would
    be no better. `whole`: all of it is wanted, and nothing before. The utterance is the engine's
    from the beginning, so that it runs while others are listened to. Raises UsageError for what
    the model cannot hold.
    """

    def __init__(
        self,
        settings: GenerationSettings,
        text: str,
        seed: int,
        remaining_frames: int | None,
        submit: Submit,
        *,
        unpaced: bool = False,
    ) -> None:
        self.remaining_frames, self._submit = remaining_frames, submit
        self.reason: str | None = None
        self.frames = 0
        config, conditioning = settings.config, settings.conditioning
        draft = conditioning.draft(config, settings.tokenizer, text)
        self.max_frames = frame_budget(settings, text, draft.length, remaining_frames)
        request = UtteranceRequest(
            draft, settings.talker, settings.code_predictor, seed, self.max_frames
        )
        check_request(request, config)
        reference = conditioning.reference
        codes = None if reference is None else reference.codes
        self._min_buffered = round(MIN_BUFFERED_S * config.codec.sample_rate)
        self.utterance = Utterance(request, codes, guard=settings.guard, unpaced=unpaced)
        submit(self.utterance)

    @property
    def hit_remaining(self) -> bool:
        """Whether it ended at the most frames that were left."""
        return self.reason == "length" and self.max_frames == self.remaining_frames

    def samples(self, check: CancelCheck) -> Iterator[Samples]:
        """The audio as it comes; `check` is called meanwhile and may raise, which stops it."""
        utterance = self.utterance
        yield from utterance.pieces(check, lambda: self._submit(utterance), self._min_buffered)
        said = utterance.result()
        self.reason, self.frames = said.reason, said.frames


def frame_budget(
    settings: GenerationSettings, text: str, prompt_length: int, remaining_frames: int | None
) -> int:
    """Most frames of an attempt: as asked for, as the text allows, as there are positions."""
    config = settings.config
    limits = [config.generation.max_new_tokens - 1, config.max_position_embeddings - prompt_length]
    if settings.guard:
        limits.append(max_frames_for(text, config.codec.sample_rate / config.codec.hop_length))
    if remaining_frames is not None:
        limits.append(remaining_frames)
    return max(1, min(limits))  # 1 is refused with the reason where there is no room at all
