"""What the loop over frames is asked, and how the device is told."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.errors import UsageError
from oscine.models.qwen3_tts.config import Qwen3TtsConfig, Sampling
from oscine.models.qwen3_tts.prompt import Prompt

SUPPRESSED = 1024  # ids at the end of the talker's vocabulary that are never codes, the end apart

#: finish_reason of a Run by what stopped it on the device.
STOPS = {ops.STOP_END: "end", ops.STOP_LENGTH: "length"}


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that one utterance depends on; nothing is read from elsewhere.

    seed: any integer, of which 32 bits count. max_frames: most frames of G codes, at least 1;
    upstream's max_new_tokens less one, as it never sounds the last token of a spent budget.
    """

    prompt: Prompt
    talker: Sampling
    predictor: Sampling
    seed: int
    max_frames: int
    min_frames: int = 2  # before which the end may not come; upstream's min_new_tokens


def check_sampling(sampling: Sampling, prefix: str = "") -> None:
    """Refuse what is no way to choose; prefix of the options' names ("subtalker_"). UsageError."""

    def refuse(name: str, value: float, wanted: str) -> None:
        raise UsageError(f"{prefix}{name} must be {wanted}, not {value}")

    if not (sampling.temperature > 0 and isfinite(sampling.temperature)):
        refuse("temperature", sampling.temperature, "above 0 (greedy: do_sample=False)")
    if not 0 < sampling.top_p <= 1:
        refuse("top_p", sampling.top_p, "above 0 and at most 1")
    if isinstance(sampling.top_k, bool) or not isinstance(sampling.top_k, int):
        refuse("top_k", sampling.top_k, "a whole number, 0 for all")
    if sampling.top_k < 0:
        refuse("top_k", sampling.top_k, "at least 0, which is all")
    penalty = sampling.repetition_penalty
    if not (penalty > 0 and isfinite(penalty)):
        refuse("repetition_penalty", penalty, "above 0; 1 is none")


def check_request(request: Request, config: Qwen3TtsConfig) -> None:
    """Refuse what the model cannot hold or what means nothing. Raises UsageError."""
    check_sampling(request.talker)
    check_sampling(request.predictor, "subtalker_")
    rows, text = request.prompt.rows, request.prompt.text
    width = config.talker.width
    if rows.ndim != 2 or rows.shape[1] != width or not len(rows):
        raise UsageError(f"a prompt must be [1.., {width}], not {list(rows.shape)}")
    if text.ndim != 2 or text.shape[1] != width or not len(text):
        raise UsageError(f"rows of text must be [1.., {width}], not {list(text.shape)}")
    if request.max_frames < 1:
        raise UsageError(f"max_frames must be at least 1, not {request.max_frames}")
    if len(rows) + request.max_frames > config.context:
        raise UsageError(
            f"a prompt of {len(rows)} positions and {request.max_frames} frames do not fit into "
            f"the model's {config.context} positions; shorten the text or lower max_frames"
        )


def rules_of(request: Request, config: Qwen3TtsConfig) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """The rules of the talker's head and of the predictor's: each [1] of ops.SAMPLING."""
    talker = rules(request.talker, config.vocabulary)
    talker["end"] = config.codec_ids.eos
    talker["suppress"] = max(0, config.vocabulary - SUPPRESSED)
    talker["minimum"] = request.min_frames
    predictor = rules(request.predictor, config.codes)
    predictor["repetition_penalty"] = 1
    return talker, predictor


def rules(sampling: Sampling, vocabulary: int) -> NDArray[np.void]:
    """[1] of ops.SAMPLING, without an end and with nothing suppressed."""
    found = np.zeros(1, ops.SAMPLING)
    for name in ("vocabulary", "end", "suppress"):
        found[name] = vocabulary
    found["top_k"] = min(sampling.top_k, vocabulary)
    found["temperature"] = sampling.temperature if sampling.do_sample else 0
    found["top_p"] = sampling.top_p
    found["repetition_penalty"] = sampling.repetition_penalty
    return found


def initial_state(request: Request) -> NDArray[np.void]:
    """The line before its prompt: [1] of ops.UTTERANCE."""
    state = np.zeros(1, ops.UTTERANCE)
    state["length"] = len(request.prompt.rows)
    state["limit"] = request.max_frames
    state["texts"] = len(request.prompt.text)
    state["seed"] = request.seed & 0xFFFFFFFF
    return state
