"""What the ops that decode transducers and CTC mean, in NumPy.

Source: NeMo rnnt_greedy_decoding.py, tdt_label_looping.py and context_biasing.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.ops import STOP_END, STOP_LENGTH, STOP_NONFINITE, Linear
from oscine.ops.activations import sigmoid
from oscine.ops.transducer_ops import RULES_HEAD, Boost, Cell, Memory, Track

Array = NDArray[Any]


def bonuses(boost: Boost, node: int, labels: int) -> Array:
    """What each label earns at a node: [V], float32. The deepest node that has an arc decides."""
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


def follow(boost: Boost, node: int, token: int) -> int:
    """The node after a label."""
    while True:
        here = boost.nodes[node]
        arcs = boost.arcs[here["first"] : here["first"] + here["count"]]
        place = int(np.searchsorted(arcs["token"], token))
        if place < len(arcs) and arcs[place]["token"] == token:
            return int(arcs[place]["node"])
        if here["fail"] == node:
            return node
        node = int(here["fail"])


def fresh_rows(track: Track) -> Array:
    """Rows of TRACK whose label the prediction network has yet to see, a copy."""
    fresh: Array = track.rows[(track.rows["done"] == 0) & (track.rows["fresh"] == 1)]
    return fresh


class Multiplies(Protocol):
    """What Transducing is mixed into."""

    def linear(self, x: Array, linear: Linear, /) -> Array: ...


class Transducing:
    """Shapes and meaning: oscine.ops.transducer_ops.TransducerOps."""

    def predict(
        self: Multiplies, table: Array, cells: tuple[Cell, ...], memory: Memory, track: Track
    ) -> None:
        rows = fresh_rows(track)
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

    def join(
        self: Multiplies, x: Array, project: Linear, memory: Memory, track: Track, block: int
    ) -> Array:
        rows, fresh = track.rows, fresh_rows(track)
        if len(fresh):
            hidden = memory.hidden[fresh["slot"], -1, 1 - fresh["half"]]
            memory.joint[fresh["slot"]] = self.linear(hidden, project)
        running = np.flatnonzero(rows["done"] == 0)
        last = np.maximum(rows["length"][running].astype(int), 1) - 1
        frames = rows["position"][running].astype(int)[:, None] + np.arange(block)
        places = rows["first"][running].astype(int)[:, None] + np.minimum(frames, last[:, None])
        y = np.zeros((len(rows), block, x.shape[1]), np.float32)
        y[running] = np.maximum(x[places] + memory.joint[rows["slot"][running], None], 0)
        return y.reshape(-1, x.shape[1])

    def pick_labels(
        self, logits: Array, rules: Array, track: Track, boost: Boost | None = None
    ) -> None:
        blocks = logits.reshape(len(track.rows), -1, logits.shape[1])
        for row, block in zip(track.rows, blocks, strict=True):
            if row["done"]:
                continue
            decisions = track.decisions[row["slot"]]
            start, row["fresh"] = int(row["position"]), 0
            while not row["done"] and not row["fresh"] and row["position"] < start + len(block):
                self.look(block[int(row["position"]) - start], rules, row, decisions, boost)

    def look(
        self, logits: Array, rules: Array, row: Array, decisions: Array, boost: Boost | None
    ) -> None:
        """Decide on one frame, write it down and move on."""
        labels, most, lengths = int(rules[0]), int(rules[1]), rules[RULES_HEAD:]
        if not np.isfinite(logits).all():
            row["done"] = STOP_NONFINITE
            return
        scores = logits[: labels + 1]
        token = int(np.argmax(scores))
        blank = token == labels
        if boost is not None and not blank:
            token = int(np.argmax(scores[:-1] + bonuses(boost, int(row["node"]), labels)))
        top = scores.max()
        probability = np.exp(scores[token] - top) / np.exp(scores - top).sum()
        duration = int(lengths[np.argmax(logits[labels + 1 :])]) if len(lengths) else int(blank)
        forced = duration == 0 and (blank or row["symbols"] + 1 >= most)
        moved = 1 if forced else duration
        written = duration if len(lengths) else 0
        decisions[row["count"]] = (row["position"], token, written, moved, probability)
        row["count"] += 1
        row["position"] += moved
        row["symbols"] = 0 if moved else row["symbols"] + 1
        if not blank:
            row["token"], row["fresh"], row["half"] = token, 1, 1 - row["half"]
            if boost is not None:
                row["node"] = follow(boost, int(row["node"]), token)
        if row["position"] >= row["length"]:
            row["done"] = STOP_END
        elif row["count"] >= row["limit"]:
            row["done"] = STOP_LENGTH

    def likeliest(self, logits: Array) -> Array:
        ids = logits.argmax(1)
        with np.errstate(invalid="ignore"):
            shares = 1 / np.exp(logits - logits.max(1, keepdims=True)).sum(1)
        broken = ~np.isfinite(logits).all(1)
        ids[broken], shares[broken] = -1, 0
        return np.stack([ids, shares], 1).astype(np.float32)
