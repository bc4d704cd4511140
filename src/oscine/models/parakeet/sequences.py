"""Chunks of audio as sequences of the engine, and what they say."""

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

AttentionWindow: TypeAlias = (
    tuple[int, int] | None
)  # frames to both sides that a frame attends to; None: all
Span: TypeAlias = tuple[int, int]  # encoder frames from, up to but without
ENCODED: Literal["encoded"] = "encoded"
EncodingMode: TypeAlias = (
    AttentionWindow | Literal["encoded"]
)  # of an encoder input; ENCODED: it is encoded already


@dataclass(frozen=True, slots=True, eq=False)
class DecoderState:
    """What the end of one piece of audio tells the next: the network before the last label.

    hidden and cell [Y, P] of the prediction network's Y layers, float32.
    """

    hidden: NDArray[np.float32]
    cell: NDArray[np.float32]
    last_token: int  # the label emitted last, the blank if none was
    skip_frames: int  # frames of the next piece that the last duration reaches over
    graph_node: int  # of the tree of boosted phrases; only good for the same tree

    def check(self, labels: int, nodes: int) -> None:
        """Refuse what is neither a label nor the blank, or no node of a tree of `nodes`.

        Raises UsageError.
        """
        for what, value, end in (
            ("label", self.last_token, labels + 1),
            ("node", self.graph_node, nodes),
        ):
            if not 0 <= value < end:
                raise UsageError(f"{what} {value} was carried on; there are 0 to {end - 1}")
        if self.skip_frames < 0:
            raise UsageError(f"{self.skip_frames} frames cannot be skipped")


@dataclass(frozen=True, slots=True)
class Emission:
    """A label, and the frames it begins at and lasts, from the beginning of the span on."""

    token: int
    frame: int
    duration: int
    probability: float  # softmax over labels and blank, without boosting


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """What a chunk says. `decisions` [N] of ops.TRANSDUCER_STEP, blanks too: the trace of the
    loop."""

    emissions: tuple[Emission, ...]
    decisions: NDArray[np.void]
    decoder_state: DecoderState | None  # None for CTC, and where it was not asked for


class Chunk(Sequence[Hypothesis]):
    """Frames of an encoder input to decode.

    Args:
        audio: A mel [n, n_mels] whose `how` is an AttentionWindow, or encoder output [T, d] whose
            `how` is ENCODED.
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
        """Raise UsageError for what its model or its audio has not."""
        check_audio(self.audio, config)
        start, stop = self.frames(config)
        if not 0 <= start <= stop <= encoder_frames(self.audio, config.subsampling_factor):
            raise UsageError(f"no such encoded frames: {start} to {stop}")
        if self.context_graph is not None:
            if not supports_hotwords:
                raise UsageError("this model's CTC head cannot boost phrases")
            self.context_graph.check()
        if self.decoder_state is not None:
            # Without phrases the node is not used.
            nodes = (
                len(self.context_graph.nodes)
                if self.context_graph
                else self.decoder_state.graph_node + 1
            )
            self.decoder_state.check(config.vocab_size, nodes)

    def frames(self, config: ParakeetConfig) -> Span:
        """The encoder frames that it decodes."""
        return self.span or (0, encoder_frames(self.audio, config.subsampling_factor))


def check_audio(audio: EncoderInput, config: ParakeetConfig) -> None:
    """Refuse features of another width, or none. Raises UsageError."""
    what, wanted = "a mel", config.n_mels
    if audio.how == ENCODED:
        what, wanted = "an encoding", config.d_model
    shape = audio.features.shape
    if len(shape) != 2 or shape[1] != wanted or not shape[0]:
        raise UsageError(f"{what} must be [1.., {wanted}], not {shape}")


def encoder_frames(audio: EncoderInput, factor: int) -> int:
    """The number of frames that an input is encoded to."""
    return len(audio.features) if audio.how == ENCODED else -(-len(audio.features) // factor)


def transducer_params(config: ParakeetConfig) -> NDArray[np.uint32]:
    """As TransducerOps.transducer_step wants them."""
    return np.array([config.vocab_size, config.max_symbols, *config.durations], np.uint32)


def to_emissions(decisions: NDArray[np.void], config: ParakeetConfig) -> tuple[Emission, ...]:
    """The labels among the decisions: as long as they moved time on, by force too.

    Without durations a label lasts one frame. Source: transformers generation of ParakeetForTDT.
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
    """CTC: runs of one label as one, blanks left out; [T, 2] of id and probability.

    A run lasts all its frames and is as probable as the likeliest of them.
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
    """Of CTC, which has none."""
    return np.zeros(0, TRANSDUCER_STEP)
