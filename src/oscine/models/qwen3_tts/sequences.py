"""TalkerState: what the engine is asked for, how the device is told, and what comes back."""

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

SPECIAL_IDS = 1024  # ids at the end of the talker's vocabulary that are never codes, the end apart

#: Why an utterance ended, by what stopped it on the device.
FINISH_REASONS = {ops.STOP_END: "end", ops.STOP_LENGTH: "length"}

#: Seconds of audio that a reader may leave untaken before its utterance gives up its slot, and down
#: to which it must have taken them before the utterance runs again.
MAX_BUFFERED_S, MIN_BUFFERED_S = 30.0, 5.0

Codes = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class UtteranceRequest:
    """Everything that one utterance depends on; nothing is read from elsewhere.

    seed: any integer, of which 32 bits count. max_frames: most frames of G codes, at least 1;
    upstream's max_new_tokens less one, as it never sounds the last token of a spent budget.
    """

    prompt: Prompt | PromptDraft
    talker: SamplingParams
    code_predictor: SamplingParams
    seed: int
    max_frames: int
    min_frames: int = 2  # before which the end may not come; upstream's min_new_tokens

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
        """Rows of text that the talker reads while it speaks."""
        return (
            self.prompt.trailing_text_rows
            if isinstance(self.prompt, PromptDraft)
            else len(self.prompt.trailing_text)
        )

    @property
    def positions(self) -> int:
        """Places in the cache that it may take."""
        return self.prompt_length + self.max_frames


@dataclass(frozen=True, slots=True)
class UtteranceResult:
    """How an utterance ended, and after how many frames.

    reason: "end", "length" (its limit), "silence" or "repetition" (a guard stopped it).
    """

    reason: str
    frames: int


class Utterance(StreamedSequence[UtteranceResult, NDArray[Any]]):
    """One attempt at one piece of text: samples [n] float32 as they come, or codes [n, G] uint32.

    Args:
        request: What is said, and how.
        reference: Codes [R, G] that condition the codec before it begins.
        guarded: Whether silence, a loop of frames and a reference that leaks are looked for.
        sounds: Whether its pieces are samples, not codes.
        whole: Whether all of it is wanted and nothing before: it is never paused for its reader.
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
        self.first_piece: float | None = None  # of perf_counter: when it was made
        self.preempted = False  # it has given up its slot, as its reader is slow
        self.known_codes: Codes = np.zeros(
            (0, 0), np.uint32
        )  # frames of this run, and of the one before
        self.delivered_frames = 0  # frames that what was handed over is made of
        self.delivered = self.consumed = (
            0  # samples, or frames of codes, by the engine and by the reader
        )
        self._to_skip = 0  # of what this run hands over again: what was handed over before

    # -- the engine's -------------------------------------------------------------------------

    def rewind(self) -> None:
        """A run from the prompt begins; what was handed over before is not handed over again."""
        self._to_skip, self.preempted = self.delivered, False
        self.known_codes = self.known_codes[: self.delivered_frames]

    def matches_previous_run(self, start: int, frames: Codes) -> bool:
        """Note frames [n, G] at a place of this run; whether they are those of the run before."""
        before = self.known_codes[start : start + len(frames)]
        same = not len(before) or np.array_equal(before, frames[: len(before)])
        if len(before) < len(frames):
            self.known_codes = np.concatenate(
                [*([self.known_codes] if start else []), frames[len(before) :]]
            )
        return same

    def deliver(self, piece: NDArray[Any], frames: int) -> None:
        """The next samples of this run, or codes; those that the reader has had are left out.

        frames: of this run, which all that was handed over by now is made of.
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
        """What was handed over and its reader has not taken yet: samples, or frames of codes."""
        return self.delivered - self.consumed

    # -- the reader's -------------------------------------------------------------------------

    def cancel(self) -> bool:
        """As Sequence.cancel; where it has no slot, the engine has nothing to stop."""
        found = super().cancel()
        if self.preempted:
            self.fail(cancelled())
        return found

    def pieces(
        self,
        check: CancelCheck | None = None,
        resume: Callable[[], object] | None = None,
        min_buffered: int = 0,
    ) -> Iterator[NDArray[Any]]:
        """As StreamedSequence.pieces; `resume` is called where the utterance has given up its slot
        and no more than `least` samples are left to take."""

        def looked() -> None:
            if check is not None:
                check()
            if self.preempted and self.buffered <= min_buffered and resume is not None:
                self.preempted = False
                resume()

        for piece in super().pieces(looked):
            self.consumed += len(piece)
            yield piece


def speech_changed(device: str) -> DeviceError:
    """An utterance that was begun again says something else than what was handed over."""
    return DeviceError(
        f"{device}: the speech after the loss of the device differs from what was heard before; "
        "speak the text again"
    )


def check_request(request: UtteranceRequest, config: Qwen3TtsConfig) -> None:
    """Refuse what the model cannot hold. Raises UsageError.

    How to sample has been checked where it was read: options.py, config.read_generation.
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
    """The rules of the talker's head and of the predictor's: each [1] of ops.SAMPLING_PARAMS."""
    talker = pack_params(request.talker, config.vocab_size)
    talker["end"] = config.codec_ids.eos
    talker["suppress"] = max(0, config.vocab_size - SPECIAL_IDS)
    talker["minimum"] = request.min_frames
    code_predictor = pack_params(request.code_predictor, config.codebook_size)
    code_predictor["repetition_penalty"] = 1
    return talker, code_predictor


def pack_params(sampling: SamplingParams, vocabulary: int) -> NDArray[np.void]:
    """[1] of ops.SAMPLING_PARAMS, without an end and with nothing suppressed."""
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
