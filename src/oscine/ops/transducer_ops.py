"""What decodes transducers (RNN-T, TDT) and CTC, of the vocabulary: the device walks frames.

A row of the batch is one sequence of frames. A step of the loop runs the prediction network for
rows that emitted a label in the step before, joins it with the next F frames of each row, and lets
`pick_labels` walk over those frames: past blanks, up to a label or the end of the block. Looking at
F frames changes nothing but the number of steps, as the prediction network sees labels alone.

A sequence keeps its memory and its decisions at track.slot, whichever row of a batch it is in. So
rows start, end and change places while their neighbours run, and no memory moves.

Shapes: B rows, S slots, F frames of a block, T frames, V labels, blank = V, n durations, P width of
the prediction network, J width of the joint, Y layers of it.
Source: NeMo rnnt_greedy_decoding.py and tdt_label_looping.py (label looping, arXiv 2406.06220).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oscine.ops.types import Linear, Tensor

#: One look at one frame: kernels/label_pick.wgsl.
DECISION_FIELDS: tuple[tuple[str, type], ...] = (
    ("frame", np.uint32),
    ("token", np.uint32),  # a label, or the blank
    ("duration", np.uint32),  # in frames, as chosen; 0 without durations
    ("advanced", np.uint32),  # frames moved on: also by a blank of duration 0, and by force
    ("probability", np.float32),  # softmax over labels and blank, without boosting
)
DECISION = np.dtype([(name, kind) for name, kind in DECISION_FIELDS])

#: A node of the tree of boosted phrases (Aho-Corasick): kernels/_boost.wgsl.
NODE_FIELDS: tuple[tuple[str, type], ...] = (
    ("first", np.uint32),  # its arcs
    ("count", np.uint32),
    ("fail", np.uint32),  # the node of the longest other beginning that ends here; a root's: itself
    ("back", np.float32),  # what it costs to fall back there
)
NODE = np.dtype([(name, kind) for name, kind in NODE_FIELDS])

#: Arcs of a node come in the order of their labels.
ARC_FIELDS: tuple[tuple[str, type], ...] = (
    ("token", np.uint32),
    ("node", np.uint32),  # where it leads
    ("bonus", np.float32),
)
ARC = np.dtype([(name, kind) for name, kind in ARC_FIELDS])

RULES_HEAD = 2  # words of a transducer's rules before its durations: V, most_symbols


class Cell(Protocol):
    """One LSTM layer: input [4P, P] with the sum of both biases, hidden [4P, P]; gates i f g o."""

    @property
    def input(self) -> Linear: ...

    @property
    def hidden(self) -> Linear: ...


@dataclass(frozen=True, slots=True)
class Track:
    """State rows [B] of TRACK, and what the sequences decided, [S, room] of DECISION."""

    rows: Tensor
    decisions: Tensor


@dataclass(frozen=True, slots=True)
class Memory:
    """The prediction network's: hidden and cell [S, Y, 2, P], and its projection, joint [S, J].

    Of the two halves track.half tells the one from before track.token; the other is the one after
    it, once the network has run. So a label is taken back by not turning the halves over.
    """

    hidden: Tensor
    cell: Tensor
    joint: Tensor


@dataclass(frozen=True, slots=True)
class Boost:
    """Trees of boosted phrases: nodes [N] of NODE, arcs [A] of ARC.

    The bonus of a label at a node is that of its arc; a node without such an arc adds its `back`
    to what its `fail` node gives, a root gives 0 and stays. Arcs and falls lead to nodes of the
    same tree, so track.node says which tree a row walks; a row without phrases is at a root without
    arcs, and decides as it does without `boost`.
    """

    nodes: Tensor
    arcs: Tensor


class TransducerOps(Protocol):
    """Shapes: above. Rows that are done are void, and nothing at their slots changes."""

    def predict(self, table: Tensor, cells: tuple[Cell, ...], memory: Memory, track: Track) -> None:
        """The LSTM layers over table[token], table [V + 1, P], for rows that are fresh.

        c = σ(f) c + σ(i) tanh(g), h = σ(o) tanh(c), from one half of memory into the other.
        """
        ...

    def join(self, x: Tensor, project: Linear, memory: Memory, track: Track, block: int) -> Tensor:
        """relu(x[first + position + f] + project(h)) for f below `block`: [B·F, J].

        x [.., J] holds the encoder's projection of every sequence, each at rows of its own that
        begin with track.first. project(h), from the uppermost layer, is computed for fresh rows and
        kept in memory.joint. Frames past the end repeat the last.
        """
        ...

    def pick_labels(
        self, logits: Tensor, rules: Tensor, track: Track, boost: Boost | None = None
    ) -> None:
        """Decide on logits [B·F, V + 1 + n], frame by frame, until a label or the block's end.

        rules: uint32 V, most_symbols, then the n durations. The likeliest token and, apart from it,
        the likeliest duration, the lowest id among equals; without durations a blank lasts 1 and a
        label 0. A blank of 0 moves on by 1, so does the label that is the last of most_symbols at
        one frame. With `boost` it is the label of highest logit + bonus that is taken where the
        likeliest token is not the blank. Stops: the frames end (STOP_END), the decisions' room does
        (STOP_LENGTH; it can go on from there), a logit is not finite (STOP_NONFINITE).
        """
        ...

    def likeliest(self, logits: Tensor) -> Tensor:
        """Of each row of logits [R, V]: the first id of the highest, and its softmax: [R, 2].

        The id is -1 where a logit is not finite.
        """
        ...
