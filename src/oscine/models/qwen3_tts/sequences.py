"""Utterances: what the engine is asked for, how the device is told, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.engine.sequence import Check, StreamedSequence, cancelled
from oscine.errors import DeviceError, UsageError
from oscine.models.qwen3_tts.config import Qwen3TtsConfig, Sampling
from oscine.models.qwen3_tts.prompt import Prompt, PromptDraft

SUPPRESSED = 1024  # ids at the end of the talker's vocabulary that are never codes, the end apart

#: Why an utterance ended, by what stopped it on the device.
STOPS = {ops.STOP_END: "end", ops.STOP_LENGTH: "length"}

#: Seconds of audio that a reader may leave untaken before its utterance gives up its slot, and down
#: to which it must have taken them before the utterance runs again.
MOST_WAITING, LEAST_WAITING = 30.0, 5.0

Codes = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that one utterance depends on; nothing is read from elsewhere.

    seed: any integer, of which 32 bits count. max_frames: most frames of G codes, at least 1;
    upstream's max_new_tokens less one, as it never sounds the last token of a spent budget.
    """

    prompt: Prompt | PromptDraft
    talker: Sampling
    predictor: Sampling
    seed: int
    max_frames: int
    min_frames: int = 2  # before which the end may not come; upstream's min_new_tokens

    @property
    def length(self) -> int:
        """Rows of the prompt."""
        return self.prompt.length if isinstance(self.prompt, PromptDraft) else len(self.prompt.rows)

    @property
    def texts(self) -> int:
        """Rows of text that the talker reads while it speaks."""
        return self.prompt.texts if isinstance(self.prompt, PromptDraft) else len(self.prompt.text)

    @property
    def positions(self) -> int:
        """Places in the cache that it may take."""
        return self.length + self.max_frames


@dataclass(frozen=True, slots=True)
class Said:
    """How an utterance ended, and after how many frames.

    reason: "end", "length" (its limit), "silence" or "repetition" (a guard stopped it).
    """

    reason: str
    frames: int


class Utterance(StreamedSequence[Said, NDArray[Any]]):
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
        request: Request,
        reference: Codes | None = None,
        *,
        guarded: bool = False,
        sounds: bool = True,
        whole: bool = False,
    ) -> None:
        super().__init__(batch_key="speak")
        self.request, self.reference, self.guarded = request, reference, guarded
        self.sounds, self.whole = sounds, whole
        self.first_piece: float | None = None  # of perf_counter: when it was made
        self.parked = False  # it has given up its slot, as its reader is slow
        self.known: Codes = np.zeros((0, 0), np.uint32)  # frames of this run, and of the one before
        self.heard = 0  # frames that what was handed over is made of
        self.handed = self.taken = 0  # samples, or frames of codes, by the engine and by the reader
        self._skipped = 0  # of what this run hands over again: what was handed over before

    # -- the engine's -------------------------------------------------------------------------

    def begin_again(self) -> None:
        """A run from the prompt begins; what was handed over before is not handed over again."""
        self._skipped, self.parked = self.handed, False
        self.known = self.known[: self.heard]

    def agrees(self, at: int, frames: Codes) -> bool:
        """Note frames [n, G] at a place of this run; whether they are those of the run before."""
        before = self.known[at : at + len(frames)]
        same = not len(before) or np.array_equal(before, frames[: len(before)])
        if len(before) < len(frames):
            self.known = np.concatenate([*([self.known] if at else []), frames[len(before) :]])
        return same

    def hand_over(self, piece: NDArray[Any], frames: int) -> None:
        """The next samples of this run, or codes; those that the reader has had are left out.

        frames: of this run, which all that was handed over by now is made of.
        """
        skipped = min(self._skipped, len(piece))
        self._skipped -= skipped
        piece = piece[skipped:]
        if len(piece):
            self.heard = max(self.heard, frames)
            self.first_piece = self.first_piece or perf_counter()
            self.handed += len(piece)
            self.push(piece)

    @property
    def untaken(self) -> int:
        """What was handed over and its reader has not taken yet: samples, or frames of codes."""
        return self.handed - self.taken

    # -- the reader's -------------------------------------------------------------------------

    def cancel(self) -> bool:
        """As Sequence.cancel; where it has no slot, the engine has nothing to stop."""
        found = super().cancel()
        if self.parked:
            self.fail(cancelled())
        return found

    def pieces(
        self, check: Check | None = None, resume: Callable[[], object] | None = None, least: int = 0
    ) -> Iterator[NDArray[Any]]:
        """As StreamedSequence.pieces; `resume` is called where the utterance has given up its slot
        and no more than `least` samples are left to take."""

        def looked() -> None:
            if check is not None:
                check()
            if self.parked and self.untaken <= least and resume is not None:
                self.parked = False
                resume()

        for piece in super().pieces(looked):
            self.taken += len(piece)
            yield piece


def differs(device: str) -> DeviceError:
    """An utterance that was begun again says something else than what was handed over."""
    return DeviceError(
        f"{device}: the speech after the loss of the device differs from what was heard before; "
        "speak the text again"
    )


def check_request(request: Request, config: Qwen3TtsConfig) -> None:
    """Refuse what the model cannot hold. Raises UsageError.

    How to sample has been checked where it was read: options.py, config.read_generation.
    """
    width = config.talker.width
    if isinstance(request.prompt, Prompt):
        rows, text = request.prompt.rows, request.prompt.text
        if rows.ndim != 2 or rows.shape[1] != width or not len(rows):
            raise UsageError(f"a prompt must be [1.., {width}], not {list(rows.shape)}")
        if text.ndim != 2 or text.shape[1] != width or not len(text):
            raise UsageError(f"rows of text must be [1.., {width}], not {list(text.shape)}")
    if request.max_frames < 1:
        raise UsageError(f"max_frames must be at least 1, not {request.max_frames}")
    if request.positions > config.context:
        raise UsageError(
            f"a prompt of {request.length} positions and {request.max_frames} frames do not fit "
            f"into the model's {config.context} positions; shorten the text or lower max_frames"
        )


def rules_of(request: Request, config: Qwen3TtsConfig) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """The rules of the talker's head and of the predictor's: each [1] of ops.SAMPLING_PARAMS."""
    talker = rules(request.talker, config.vocabulary)
    talker["end"] = config.codec_ids.eos
    talker["suppress"] = max(0, config.vocabulary - SUPPRESSED)
    talker["minimum"] = request.min_frames
    predictor = rules(request.predictor, config.codes)
    predictor["repetition_penalty"] = 1
    return talker, predictor


def rules(sampling: Sampling, vocabulary: int) -> NDArray[np.void]:
    """[1] of ops.SAMPLING_PARAMS, without an end and with nothing suppressed."""
    found = np.zeros(1, ops.SAMPLING_PARAMS)
    for name in ("end", "suppress"):
        found[name] = vocabulary
    found["top_k"] = min(sampling.top_k, vocabulary)
    found["temperature"] = sampling.temperature if sampling.do_sample else 0
    found["top_p"] = sampling.top_p
    found["repetition_penalty"] = sampling.repetition_penalty
    return found


def initial_state(request: Request, slot: int = 0) -> NDArray[np.void]:
    """The state before the prompt of an utterance whose memory is `slot`: [1] of
    ops.TALKER_STATE."""
    state = np.zeros(1, ops.TALKER_STATE)
    state["length"] = request.length
    state["limit"] = request.max_frames
    state["texts"] = request.texts
    state["seed"] = request.seed & 0xFFFFFFFF
    state["slot"] = slot
    return state
