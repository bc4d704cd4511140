"""Chunks of audio as sequences of the engine, and their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oscine.engine.sequence import EncoderInput, Sequence
from oscine.errors import UsageError
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.hotwords import ContextGraph
from oscine.ops import TRANSDUCER_STEP

#: Encoder frames (left, right) of local attention; None: global.
AttentionWindow: TypeAlias = tuple[int, int] | None
#: First encoder frame, end (exclusive).
Span: TypeAlias = tuple[int, int]
ENCODED: Literal["encoded"] = "encoded"
#: `batch_key` of an encoder input: the attention window, or ENCODED for encoder output.
EncodingMode: TypeAlias = AttentionWindow | Literal["encoded"]


@dataclass(frozen=True, slots=True, eq=False)
class DecoderState:
    """State of the decoder at the end of a chunk, with which the next chunk continues.

    hidden and cell [Y, P] of the Y layers of the prediction network, before the last token;
    float32.
    """

    hidden: NDArray[np.float32]
    cell: NDArray[np.float32]
    last_token: int  # the last token emitted; the blank if there is none
    skip_frames: int  # frames of the next chunk that the last duration skips
    graph_node: int  # node of the context graph, valid for the same graph only

    def check(self, vocab_size: int, nodes: int) -> None:
        """Raise UsageError for an id or node out of range, or a negative number of frames."""
        for what, value, end in (
            ("token", self.last_token, vocab_size + 1),
            ("node", self.graph_node, nodes),
        ):
            if not 0 <= value < end:
                raise UsageError(f"decoder state: {what} {value} is not 0 to {end - 1}")
        if self.skip_frames < 0:
            raise UsageError(f"decoder state: cannot skip {self.skip_frames} frames")


@dataclass(frozen=True, slots=True)
class Emission:
    """An emitted token, its first encoder frame in the span, and its duration in frames."""

    token: int
    frame: int
    duration: int
    probability: float  # softmax over tokens and blank, without boosting


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """The result of a chunk. `decisions` [N] of ops.DECISION is the trace, with blanks."""

    emissions: tuple[Emission, ...]
    decisions: NDArray[np.void]
    decoder_state: DecoderState | None  # None for CTC, and without return_state


class Chunk(Sequence[Hypothesis]):
    """Encoder frames of an input to decode: one sequence of the engine.

    Args:
        audio: A mel [n, n_mels] whose `batch_key` is an AttentionWindow, or encoder output [T, d]
            whose `batch_key` is ENCODED.
        span: Encoder frames to decode, first (inclusive) to last (exclusive); None: all.
        context_graph: Hotwords to boost.
        decoder_state: State at the end of the preceding audio; None: the initial state.
        return_state: Whether the result has the decoder state at the end of the chunk.
    """

    audio: EncoderInput

    def __init__(
        self,
        audio: EncoderInput,
        span: Span | None = None,
        context_graph: ContextGraph | None = None,
        decoder_state: DecoderState | None = None,
        return_state: bool = False,
    ) -> None:
        super().__init__(audio)
        self.span, self.context_graph = span, context_graph
        self.decoder_state, self.return_state = decoder_state, return_state

    def check(self, config: ParakeetConfig, supports_hotwords: bool) -> None:
        """Raise UsageError if the audio, span, hotwords or state do not fit the model."""
        check_audio(self.audio, config)
        start, stop = self.frames(config)
        if not 0 <= start <= stop <= encoder_frames(self.audio, config.subsampling_factor):
            raise UsageError(f"encoder frames {start} to {stop} are outside the audio")
        if self.context_graph is not None:
            if not supports_hotwords:
                raise UsageError("this model's CTC head does not support hotwords")
            self.context_graph.check()
        if self.decoder_state is not None:
            # Without hotwords the node is not used.
            nodes = (
                len(self.context_graph.nodes)
                if self.context_graph
                else self.decoder_state.graph_node + 1
            )
            self.decoder_state.check(config.vocab_size, nodes)

    def frames(self, config: ParakeetConfig) -> Span:
        """The span of encoder frames to decode."""
        return self.span or (0, encoder_frames(self.audio, config.subsampling_factor))


def check_audio(audio: EncoderInput, config: ParakeetConfig) -> None:
    """Raise UsageError for features of another width, or without frames."""
    what, wanted = "a mel", config.n_mels
    if audio.batch_key == ENCODED:
        what, wanted = "an encoding", config.d_model
    shape = audio.features.shape
    if len(shape) != 2 or shape[1] != wanted or not shape[0]:
        raise UsageError(f"{what} must be [1.., {wanted}], not {shape}")


def encoder_frames(audio: EncoderInput, factor: int) -> int:
    """Number of encoder frames of an input."""
    return len(audio.features) if audio.batch_key == ENCODED else -(-len(audio.features) // factor)


def transducer_params(config: ParakeetConfig) -> NDArray[np.uint32]:
    """Parameters of the op `transducer_step`: vocab_size, max_symbols, then the durations."""
    return np.array([config.vocab_size, config.max_symbols, *config.durations], np.uint32)


def to_emissions(decisions: NDArray[np.void], config: ParakeetConfig) -> tuple[Emission, ...]:
    """The tokens among the decisions; a token's duration is the number of frames advanced.

    Without durations a token lasts one frame. Source: transformers generation of ParakeetForTDT.
    """
    return tuple(
        Emission(
            int(look["token"]),
            int(look["frame"]),
            int(look["advanced"]) if config.durations else 1,
            float(look["probability"]),
        )
        for look in decisions[decisions["token"] != config.blank_id]
    )


def ctc_collapse(frames: NDArray[np.float32], blank: int) -> tuple[Emission, ...]:
    """CTC: merge runs of one token and drop blanks; frames [T, 2] of id and probability.

    A run lasts all its frames and has the highest probability among them.
    """
    ids = frames[:, 0].astype(int)
    edges = np.flatnonzero(np.diff(ids)) + 1
    starts, stops = [0, *edges.tolist()], [*edges.tolist(), len(ids)]
    return tuple(
        Emission(int(ids[start]), start, stop - start, float(frames[start:stop, 1].max()))
        for start, stop in zip(starts, stops, strict=True)
        if stop > start and ids[start] != blank
    )


def empty_decisions() -> NDArray[np.void]:
    """The decisions of a CTC result: none."""
    return np.zeros(0, TRANSDUCER_STEP)
