"""Greedy decoding of transducers (RNN-T, TDT) and of CTC, frame by frame on the device.

A row of the batch is one sequence of frames. A step of the loop runs the prediction network for
rows that emitted a label in the step before, joins it with the next F frames of each row, and lets
`transducer_step` decide on those frames: over blanks, up to a label or the end of the block. F
changes only the number of steps, as the prediction network depends on labels alone.

The LSTM state and the decisions of a sequence are at state.slot, whichever row of a batch it is in.
So rows start, end and move while other rows run, and no buffer is copied.

Shapes: B rows, S slots, F frames of a block, T frames, V labels, blank = V, n durations, P width of
the prediction network, J width of the joint, Y layers of it.
Source: NeMo rnnt_greedy_decoding.py, tdt_label_looping.py (arXiv:2406.06220), context_biasing.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.ops.effects import op
from oscine.ops.reference.activations import sigmoid
from oscine.ops.reference.linear import LinearOps
from oscine.ops.state import (
    STOP_END,
    STOP_LENGTH,
    STOP_NONFINITE,
    TRANSDUCER_PARAMS_HEAD,
    ContextGraphTensors,
    LstmState,
    TransducerState,
)
from oscine.ops.types import Linear, LstmCell, Tensor

Array = NDArray[Any]


def context_graph_scores(boost: ContextGraphTensors, node: int, labels: int) -> Array:
    """The bonus of each label at a node: [V] float32, from the deepest node with an arc for it."""
    found = np.full(labels, np.nan, np.float32)
    back = np.float32(0)
    while True:
        here = boost.nodes[node]
        arcs = boost.arcs[here["first"] : here["first"] + here["count"]]
        arcs = arcs[np.isnan(found[arcs["token"]])]
        found[arcs["token"]] = back + arcs["bonus"]
        if here["fail"] == node:
            return np.where(np.isnan(found), back, found)
        back += here["back"]
        node = int(here["fail"])


def next_graph_node(boost: ContextGraphTensors, node: int, token: int) -> int:
    """The node that a label leads to: along its arc, else from the longest suffix that has one."""
    while True:
        here = boost.nodes[node]
        arcs = boost.arcs[here["first"] : here["first"] + here["count"]]
        index = int(np.searchsorted(arcs["token"], token))
        if index < len(arcs) and arcs[index]["token"] == token:
            return int(arcs[index]["node"])
        if here["fail"] == node:
            return node
        node = int(here["fail"])


def rows_to_predict(state: TransducerState) -> Array:
    """A copy of the rows for whose label the prediction network has not run yet."""
    fresh: Array = state.rows[(state.rows["done"] == 0) & (state.rows["fresh"] == 1)]
    return fresh


def decode_frame(
    logits: Array, params: Array, row: Array, decisions: Array, boost: ContextGraphTensors | None
) -> None:
    """Decide on one frame, append the decision and advance the row."""
    labels, max_symbols, lengths = int(params[0]), int(params[1]), params[TRANSDUCER_PARAMS_HEAD:]
    if not np.isfinite(logits).all():
        row["done"] = STOP_NONFINITE
        return
    scores = logits[: labels + 1]
    token = int(np.argmax(scores))
    blank = token == labels
    if boost is not None and not blank:
        token = int(np.argmax(scores[:-1] + context_graph_scores(boost, int(row["node"]), labels)))
    top = scores.max()
    probability = np.exp(scores[token] - top) / np.exp(scores - top).sum()
    duration = int(lengths[np.argmax(logits[labels + 1 :])]) if len(lengths) else int(blank)
    forced = duration == 0 and (blank or row["symbols"] + 1 >= max_symbols)
    moved = 1 if forced else duration
    written = duration if len(lengths) else 0
    decisions[row["count"]] = (row["position"], token, written, moved, probability)
    row["count"] += 1
    row["position"] += moved
    row["symbols"] = 0 if moved else row["symbols"] + 1
    if not blank:
        row["token"], row["fresh"], row["half"] = token, 1, 1 - row["half"]
        if boost is not None:
            row["node"] = next_graph_node(boost, int(row["node"]), token)
    if row["position"] >= row["length"]:
        row["done"] = STOP_END
    elif row["count"] >= row["limit"]:
        row["done"] = STOP_LENGTH


class TransducerOps(LinearOps, Protocol):
    """Ops of transducers and CTC. Results of rows that are done are undefined, their slots
    unchanged."""

    @op(writes=("memory.hidden", "memory.cell"))
    def prediction_network(
        self, table: Tensor, cells: tuple[LstmCell, ...], memory: LstmState, state: TransducerState
    ) -> None:
        """Run the LSTM layers over table[token], table [V + 1, P], for fresh rows.

        c = σ(f) c + σ(i) tanh(g), h = σ(o) tanh(c), from one half of the state into the other.
        """
        rows = rows_to_predict(state)
        if not len(rows):
            return
        before, slots = rows["half"], rows["slot"]
        x = table[rows["token"]]
        for layer, cell in enumerate(cells):
            hidden, carry = memory.hidden[:, layer], memory.cell[:, layer]
            z = self.linear(x, cell.input) + self.linear(hidden[slots, before], cell.hidden)
            i, f, g, o = np.split(z, 4, axis=1)
            c = sigmoid(f) * carry[slots, before] + sigmoid(i) * np.tanh(g)
            x = sigmoid(o) * np.tanh(c)
            hidden[slots, 1 - before], carry[slots, 1 - before] = x, c

    @op(writes=("memory.joint",), row_mask="state")
    def joint_network(
        self, x: Tensor, project: Linear, memory: LstmState, state: TransducerState, block: int
    ) -> Tensor:
        """relu(x[first + position + f] + project(h)) for f below `block`: [B·F, J].

        x [.., J] holds the encoder's projection of every sequence, whose rows begin at state.first.
        project(h), of the last layer, is computed for fresh rows and stored in memory.joint. Frames
        past the end repeat the last.
        """
        rows, fresh = state.rows, rows_to_predict(state)
        if len(fresh):
            hidden = memory.hidden[fresh["slot"], -1, 1 - fresh["half"]]
            memory.joint[fresh["slot"]] = self.linear(hidden, project)
        running = np.flatnonzero(rows["done"] == 0)
        last = np.maximum(rows["length"][running].astype(int), 1) - 1
        frames = rows["position"][running].astype(int)[:, None] + np.arange(block)
        indices = rows["first"][running].astype(int)[:, None] + np.minimum(frames, last[:, None])
        y = np.zeros((len(rows), block, x.shape[1]), np.float32)
        y[running] = np.maximum(x[indices] + memory.joint[rows["slot"][running], None], 0)
        return y.reshape(-1, x.shape[1])

    @op(writes=("state",))
    def transducer_step(
        self,
        logits: Tensor,
        params: Tensor,
        state: TransducerState,
        boost: ContextGraphTensors | None = None,
    ) -> None:
        """Decide on logits [B·F, V + 1 + n], frame by frame, until a label or the block's end.

        params: uint32 V, the maximum of symbols a frame, then the n durations. The token and the
        duration are each the most likely one, the lowest id among equals; without durations a blank
        lasts 1 and a label 0. A blank of duration 0 advances by 1, and so does a label that reaches
        the maximum of symbols at a frame. With `boost`, where the most likely token is not the
        blank, the label with the highest logit + bonus is taken. A row stops where its frames end
        (STOP_END), where its decisions are full (STOP_LENGTH; it can be resumed) and at a logit
        that is not finite (STOP_NONFINITE).
        """
        blocks = logits.reshape(len(state.rows), -1, logits.shape[1])
        for row, block in zip(state.rows, blocks, strict=True):
            if row["done"]:
                continue
            decisions = state.decisions[row["slot"]]
            start, row["fresh"] = int(row["position"]), 0
            while not row["done"] and not row["fresh"] and row["position"] < start + len(block):
                decode_frame(block[int(row["position"]) - start], params, row, decisions, boost)

    @op()
    def argmax_prob(self, logits: Tensor) -> Tensor:
        """The most likely id of each row of logits [R, V] and its softmax: [R, 2] float32.

        The lowest id among equals; id -1 and probability 0 where a logit is not finite.
        """
        ids = logits.argmax(1)
        with np.errstate(invalid="ignore"):
            shares = 1 / np.exp(logits - logits.max(1, keepdims=True)).sum(1)
        broken = ~np.isfinite(logits).all(1)
        ids[broken], shares[broken] = -1, 0
        return np.stack([ids, shares], 1).astype(np.float32)
