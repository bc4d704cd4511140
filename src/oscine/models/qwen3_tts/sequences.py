"""Utterances: requests to the engine, their state on the device, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.engine.sequence import CancelCheck, StreamedSequence, cancelled
from oscine.errors import DeviceError, UsageError
from oscine.models.qwen3_tts.config import Qwen3TtsConfig, SamplingParams
from oscine.models.qwen3_tts.prompt import Prompt, PromptDraft

SPECIAL_IDS = (
    1024  # ids at the end of the talker's vocabulary; only the end of sequence is ever sampled
)

#: Why an utterance ended, by the stop reason on the device.
FINISH_REASONS = {ops.STOP_END: "end", ops.STOP_LENGTH: "length"}

#: Seconds of unread audio above which an utterance is preempted, and below which it is resumed.
MAX_BUFFERED_S, MIN_BUFFERED_S = 30.0, 5.0

Codes = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class UtteranceRequest:
    """Everything that an utterance depends on.

    seed: any integer, of which the low 32 bits are used. max_frames: the most frames of G codes, at
    least 1; upstream's max_new_tokens less one, since upstream drops the last token when the limit
    is reached.
    """

    prompt: Prompt | PromptDraft
    talker: SamplingParams
    code_predictor: SamplingParams
    seed: int
    max_frames: int
    min_frames: int = 2  # the end is not sampled before; upstream's min_new_tokens

    @property
    def prompt_length(self) -> int:
        """Rows of the prompt."""
        return (
            self.prompt.length
            if isinstance(self.prompt, PromptDraft)
            else len(self.prompt.embeddings)
        )

    @property
    def trailing_text_rows(self) -> int:
        """Rows of text that are added to generated frames."""
        return (
            self.prompt.trailing_text_rows
            if isinstance(self.prompt, PromptDraft)
            else len(self.prompt.trailing_text)
        )

    @property
    def positions(self) -> int:
        """Positions of the KV cache that it may use."""
        return self.prompt_length + self.max_frames


@dataclass(frozen=True, slots=True)
class UtteranceResult:
    """How an utterance ended, and after how many frames.

    reason: "end", "length" (its limit), "silence" or "repetition" (stopped by a guard).
    """

    reason: str
    frames: int


class Utterance(StreamedSequence[UtteranceResult, NDArray[Any]]):
    """One generation of one piece of text: float32 samples [n] as they are decoded, or codes [n, G]
    uint32.

    Args:
        request: What to generate.
        reference: Codes [R, G] that the codec decodes first, without output.
        guard: Whether to detect silence, repetition loops and a leaking reference.
        returns_audio: Whether pieces are samples rather than codes.
        unpaced: Whether only the complete result is wanted: it is never preempted for its reader.
    """

    def __init__(
        self,
        request: UtteranceRequest,
        reference: Codes | None = None,
        *,
        guard: bool = False,
        returns_audio: bool = True,
        unpaced: bool = False,
    ) -> None:
        super().__init__(batch_key="speak")
        self.request, self.reference, self.guard = request, reference, guard
        self.returns_audio, self.unpaced = returns_audio, unpaced
        self.first_piece: float | None = None  # perf_counter() of the first piece
        self.preempted = False  # it has lost its slot, since its reader is slow
        self.known_codes: Codes = np.zeros(
            (0, 0), np.uint32
        )  # frames of this run, and of the run before
        self.delivered_frames = 0  # frames that the delivered pieces were decoded from
        self.delivered = self.consumed = 0  # samples, or frames of codes
        self._to_skip = 0  # delivered by the run before; not delivered again

    # -- the engine's -------------------------------------------------------------------------

    def rewind(self) -> None:
        """Start a new run from the prompt; pieces that were delivered before are not delivered
        again.
        """
        self._to_skip, self.preempted = self.delivered, False
        self.known_codes = self.known_codes[: self.delivered_frames]

    def matches_previous_run(self, start: int, frames: Codes) -> bool:
        """Record frames [n, G] from `start` of this run; whether they equal those of the run
        before.
        """
        before = self.known_codes[start : start + len(frames)]
        same = not len(before) or np.array_equal(before, frames[: len(before)])
        if len(before) < len(frames):
            self.known_codes = np.concatenate(
                [*([self.known_codes] if start else []), frames[len(before) :]]
            )
        return same

    def deliver(self, piece: NDArray[Any], frames: int) -> None:
        """Deliver the next samples or codes of this run, less those that were delivered before.

        frames: of this run, from which all pieces so far were decoded.
        """
        skipped = min(self._to_skip, len(piece))
        self._to_skip -= skipped
        piece = piece[skipped:]
        if len(piece):
            self.delivered_frames = max(self.delivered_frames, frames)
            self.first_piece = self.first_piece or perf_counter()
            self.delivered += len(piece)
            self.push(piece)

    @property
    def buffered(self) -> int:
        """Delivered and not yet consumed: samples, or frames of codes."""
        return self.delivered - self.consumed

    # -- the reader's -------------------------------------------------------------------------

    def cancel(self) -> bool:
        """Cancel the sequence; a preempted one ends at once, since the engine is not running it."""
        found = super().cancel()
        if self.preempted:
            self.fail(cancelled())
        return found

    def pieces(
        self,
        check: CancelCheck | None = None,
        resume_preempted: Callable[[], object] | None = None,
        min_buffered_samples: int = 0,
    ) -> Iterator[NDArray[Any]]:
        """Yield the pieces as they are delivered; raises the error that the utterance ended with.

        `resume_preempted` is called if the utterance was preempted and at most
        `min_buffered_samples` samples are left.
        """

        def check_and_resume() -> None:
            if check is not None:
                check()
            low = self.buffered <= min_buffered_samples
            if self.preempted and low and resume_preempted is not None:
                self.preempted = False
                resume_preempted()

        for piece in super().pieces(check_and_resume):
            self.consumed += len(piece)
            yield piece


def speech_changed(device: str) -> DeviceError:
    """The error for an utterance whose rerun differs from the frames that were delivered before."""
    return DeviceError(
        f"{device}: the speech after the loss of the device differs from the audio before; "
        "speak the text again"
    )


def check_request(request: UtteranceRequest, config: Qwen3TtsConfig) -> None:
    """Raise UsageError for a request that does not fit into the model.

    Sampling parameters were checked where they were read: options.py, config.read_generation.
    """
    width = config.talker.hidden_size
    if isinstance(request.prompt, Prompt):
        rows, text = request.prompt.embeddings, request.prompt.trailing_text
        if rows.ndim != 2 or rows.shape[1] != width or not len(rows):
            raise UsageError(f"a prompt must be [1.., {width}], not {list(rows.shape)}")
        if text.ndim != 2 or text.shape[1] != width or not len(text):
            raise UsageError(f"rows of text must be [1.., {width}], not {list(text.shape)}")
    if request.max_frames < 1:
        raise UsageError(f"max_frames must be at least 1, not {request.max_frames}")
    if request.positions > config.max_position_embeddings:
        raise UsageError(
            f"a prompt of {request.prompt_length} positions and {request.max_frames} frames do not "
            f"fit into the model's {config.max_position_embeddings} positions; shorten the text or "
            "lower max_frames"
        )


def pack_sampling_params(
    request: UtteranceRequest, config: Qwen3TtsConfig
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Sampling parameters of the talker's head and of the code predictor's: [1] of
    ops.SAMPLING_PARAMS each.
    """
    talker = pack_params(request.talker, config.vocab_size)
    talker["end"] = config.codec_ids.eos
    talker["suppress"] = max(0, config.vocab_size - SPECIAL_IDS)
    talker["minimum"] = request.min_frames
    code_predictor = pack_params(request.code_predictor, config.codebook_size)
    code_predictor["repetition_penalty"] = 1
    return talker, code_predictor


def pack_params(sampling: SamplingParams, vocabulary: int) -> NDArray[np.void]:
    """[1] of ops.SAMPLING_PARAMS, with no end of sequence and nothing suppressed."""
    found = np.zeros(1, ops.SAMPLING_PARAMS)
    for name in ("end", "suppress"):
        found[name] = vocabulary
    found["top_k"] = min(sampling.top_k, vocabulary)
    found["temperature"] = sampling.temperature if sampling.do_sample else 0
    found["top_p"] = sampling.top_p
    found["repetition_penalty"] = sampling.repetition_penalty
    return found


def initial_state(request: UtteranceRequest, slot: int = 0) -> NDArray[np.void]:
    """State [1] of ops.TALKER_STATE of an utterance in `slot`, before its prompt is run."""
    state = np.zeros(1, ops.TALKER_STATE)
    state["length"] = request.prompt_length
    state["limit"] = request.max_frames
    state["texts"] = request.trailing_text_rows
    state["seed"] = request.seed & 0xFFFFFFFF
    state["slot"] = slot
    return state
