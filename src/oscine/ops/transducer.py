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


class Multiplies(Protocol):
    """What Transducing is mixed into."""

    def linear(self, x: Array, linear: Linear, /) -> Array: ...


class Transducing:
    """Shapes and meaning: oscine.ops.transducer_ops.TransducerOps."""

    def predict(
        self: Multiplies, table: Array, cells: tuple[Cell, ...], memory: Memory, track: Track
    ) -> None:
        lines = np.flatnonzero((track.rows["done"] == 0) & (track.rows["fresh"] == 1))
        if not len(lines):
            return
        before = track.rows["half"][lines]
        x = table[track.rows["token"][lines]]
        for cell, hidden, carry in zip(cells, memory.hidden, memory.cell, strict=True):
            z = self.linear(x, cell.input) + self.linear(hidden[before, lines], cell.hidden)
            i, f, g, o = np.split(z, 4, axis=1)
            c = sigmoid(f) * carry[before, lines] + sigmoid(i) * np.tanh(g)
            x = sigmoid(o) * np.tanh(c)
            hidden[1 - before, lines], carry[1 - before, lines] = x, c

    def join(
        self: Multiplies, x: Array, project: Linear, memory: Memory, track: Track, block: int
    ) -> Array:
        rows = track.rows
        lines = np.flatnonzero((rows["done"] == 0) & (rows["fresh"] == 1))
        if len(lines):
            hidden = memory.hidden[-1, 1 - rows["half"][lines], lines]
            memory.joint[lines] = self.linear(hidden, project)
        last = np.maximum(rows["frames"].astype(int), 1) - 1
        frames = rows["frame"].astype(int)[:, None] + np.arange(block)
        places = rows["first"].astype(int)[:, None] + np.minimum(frames, last[:, None])
        y: Array = np.maximum(x[places] + memory.joint[:, None], 0)
        return y.reshape(-1, x.shape[1])

    def pick_labels(
        self, logits: Array, rules: Array, track: Track, boost: Boost | None = None
    ) -> None:
        for line, scores, decisions in zip(
            track.rows,
            logits.reshape(len(track.rows), -1, logits.shape[1]),
            track.decisions,
            strict=True,
        ):
            if line["done"]:
                continue
            start, line["fresh"] = int(line["frame"]), 0
            while not line["done"] and not line["fresh"] and line["frame"] < start + len(scores):
                self.look(scores[int(line["frame"]) - start], rules, line, decisions, boost)

    def look(
        self, row: Array, rules: Array, line: Array, decisions: Array, boost: Boost | None
    ) -> None:
        """Decide on one frame, write it down and move on."""
        labels, most, lengths = int(rules[0]), int(rules[1]), rules[RULES_HEAD:]
        if not np.isfinite(row).all():
            line["done"] = STOP_NONFINITE
            return
        token, scores = int(np.argmax(row[: labels + 1])), row[: labels + 1]
        blank = token == labels
        if boost is not None and not blank:
            token = int(np.argmax(scores[:-1] + bonuses(boost, int(line["node"]), labels)))
        top = scores.max()
        probability = np.exp(scores[token] - top) / np.exp(scores - top).sum()
        duration = int(lengths[np.argmax(row[labels + 1 :])]) if len(lengths) else int(blank)
        forced = duration == 0 and (blank or line["symbols"] + 1 >= most)
        moved = 1 if forced else duration
        written = duration if len(lengths) else 0
        decisions[line["count"]] = (line["frame"], token, written, moved, probability)
        line["count"] += 1
        line["frame"] += moved
        line["symbols"] = 0 if moved else line["symbols"] + 1
        if not blank:
            line["token"], line["fresh"], line["half"] = token, 1, 1 - line["half"]
            if boost is not None:
                line["node"] = follow(boost, int(line["node"]), token)
        if line["frame"] >= line["frames"]:
            line["done"] = STOP_END
        elif line["count"] >= line["limit"]:
            line["done"] = STOP_LENGTH

    def likeliest(self, logits: Array) -> Array:
        ids = logits.argmax(1)
        with np.errstate(invalid="ignore"):
            shares = 1 / np.exp(logits - logits.max(1, keepdims=True)).sum(1)
        broken = ~np.isfinite(logits).all(1)
        ids[broken], shares[broken] = -1, 0
        return np.stack([ids, shares], 1).astype(np.float32)
