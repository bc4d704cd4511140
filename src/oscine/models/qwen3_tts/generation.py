"""Generation of one piece of text: the request to the engine, and its result."""

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
    """Settings that all generations of a call share.

    `max_frames`: of all pieces together; `max_samples`: of all audio, pauses between pieces
    included; None: no limit. `trim_silence`: whether to remove the silence before the first sound.
    """

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
        """Whether the length of a piece is limited by the length of the pieces before it."""
        return self.max_frames is not None or self.max_samples is not None


class Generation:
    """One try at speaking a piece of text.

    Iterate over `samples` for float32 arrays [n]. `reason` and `frames` are then set: why it ended,
    and after how many frames. `remaining_frames`: frames that the call has left, None for no limit.
    `unpaced`: only the complete audio is wanted, so the engine never pauses it for its reader. The
    utterance is submitted at once, so that it runs while others are read.

    Raises UsageError for a prompt that does not fit into the model.
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
        self._min_buffered_samples = round(MIN_BUFFERED_S * config.codec.sample_rate)
        self.utterance = Utterance(request, codes, guard=settings.guard, unpaced=unpaced)
        submit(self.utterance)

    @property
    def hit_remaining(self) -> bool:
        """Whether it ended because the call had no frames left: a retry cannot be better."""
        return self.reason == "length" and self.max_frames == self.remaining_frames

    def samples(self, check: CancelCheck) -> Iterator[Samples]:
        """Yield the audio as it is generated.

        `check` is called meanwhile; the generation stops if it raises.
        """
        utterance = self.utterance
        yield from utterance.pieces(
            check, lambda: self._submit(utterance), self._min_buffered_samples
        )
        result = utterance.result()
        self.reason, self.frames = result.reason, result.frames


def frame_budget(
    settings: GenerationSettings, text: str, prompt_length: int, remaining_frames: int | None
) -> int:
    """The maximum number of frames: the least of the call's, the text's and the model's limits."""
    config = settings.config
    limits = [config.generation.max_new_tokens - 1, config.max_position_embeddings - prompt_length]
    if settings.guard:
        limits.append(max_frames_for(text, config.codec.sample_rate / config.codec.hop_length))
    if remaining_frames is not None:
        limits.append(remaining_frames)
    return max(1, min(limits))  # check_request rejects a prompt that leaves no position
