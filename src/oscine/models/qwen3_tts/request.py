"""What the loop over frames is asked, and how the device is told."""

from __future__ import annotations

from dataclasses import dataclass

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


def check_request(request: Request, config: Qwen3TtsConfig) -> None:
    """Refuse what the model cannot hold. Raises UsageError.

    How to sample has been checked where it was read: options.py, sizes.read_generation.
    """
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
    for name in ("end", "suppress"):
        found[name] = vocabulary
    found["top_k"] = min(sampling.top_k, vocabulary)
    found["temperature"] = sampling.temperature if sampling.do_sample else 0
    found["top_p"] = sampling.top_p
    found["repetition_penalty"] = sampling.repetition_penalty
    return found


def initial_state(request: Request, slot: int = 0) -> NDArray[np.void]:
    """The state before the prompt of an utterance whose memory is `slot`: [1] of ops.UTTERANCE."""
    state = np.zeros(1, ops.UTTERANCE)
    state["length"] = len(request.prompt.rows)
    state["limit"] = request.max_frames
    state["texts"] = len(request.prompt.text)
    state["seed"] = request.seed & 0xFFFFFFFF
    state["slot"] = slot
    return state
