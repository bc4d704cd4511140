"""Cases of the ops that decode transducers and CTC: rows at any frame, ties, context graphs.

Rows have slots in random order; the contents of further slots must not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oscine import ops
from oscine.ops.cases import Array, Case, Values, noise


@dataclass(frozen=True, slots=True)
class LstmLayer:
    """oscine.ops.types.LstmCell."""

    input: ops.Linear
    hidden: ops.Linear


def transducer_rows(
    rng: np.random.Generator, count: int, slots: int, frames: int, labels: int, capacity: int
) -> Array:
    """Rows at random frames of sequences of 1 to `frames`, in random slots; one in four is done.

    Each sequence has `frames` rows of its own in the encoder's projection.
    """
    rows = np.zeros(count, ops.TRANSDUCER_STATE)
    rows["done"] = rng.random(count) < (0.25 if count > 1 else 0.0)
    rows["length"] = rng.integers(1, frames + 1, count)
    rows["position"] = rng.integers(0, rows["length"])
    rows["token"] = rng.integers(0, labels + 1, count)
    rows["count"] = rng.integers(0, capacity - 1, count)
    rows["limit"] = rng.integers(rows["count"] + 1, capacity + 1)
    rows["slot"] = rng.permutation(slots)[:count]
    rows["first"] = rng.permutation(slots)[:count] * frames
    rows["fresh"] = rng.random(count) < 0.7
    rows["half"] = rng.integers(0, 2, count)
    rows["symbols"] = rng.integers(0, 3, count)
    return rows


def prediction_network_case(
    count: int, slots: int, labels: int, width: int, layers: int, half: bool
) -> Case:
    """The prediction network from random states, for fresh rows."""
    dtype = np.float16 if half else np.float32

    def matrix(rng: np.random.Generator) -> Array:
        return np.asarray(noise(rng, 4 * width, width) / np.sqrt(width), dtype)

    def layer(rng: np.random.Generator) -> LstmLayer:
        bias = noise(rng, 4 * width)
        bias[:4] *= 40  # saturated gates
        return LstmLayer(ops.Linear(matrix(rng), bias), ops.Linear(matrix(rng), None))

    def values(rng: np.random.Generator) -> Values:
        return {
            "rows": transducer_rows(rng, count, slots, 9, labels, 9),
            "decisions": np.zeros((slots, 9), ops.TRANSDUCER_STEP),
            "hidden": noise(rng, slots, layers, 2, width),
            "cell": noise(rng, slots, layers, 2, width, spike=20.0),
            "joint": np.zeros((slots, 4), np.float32),
        }

    def call(backend: Any, x: Values, w: Values) -> None:
        memory = ops.LstmState(x["hidden"], x["cell"], x["joint"])
        backend.prediction_network(
            w["table"], w["cells"], memory, ops.TransducerState(x["rows"], x["decisions"])
        )

    return Case(
        f"prediction_network {count} rows of {slots}, {layers}x{width} {np.dtype(dtype).name}",
        values,
        call,
        lambda rng: {
            "table": noise(rng, labels + 1, width).astype(dtype),
            "cells": tuple(layer(rng) for _ in range(layers)),
        },
    )


def joint_network_case(
    count: int, slots: int, width: int, joint: int, block: int, half: bool, bias: bool
) -> Case:
    """The hidden rows of the joint network: fresh rows and others, blocks past the end."""
    dtype, frames = np.float16 if half else np.float32, 11

    def values(rng: np.random.Generator) -> Values:
        return {
            "x": noise(rng, slots * frames, joint),
            "rows": transducer_rows(rng, count, slots, frames, 5, 9),
            "decisions": np.zeros((slots, 9), ops.TRANSDUCER_STEP),
            "hidden": noise(rng, slots, 2, 2, width),
            "cell": np.zeros((slots, 2, 2, width), np.float32),
            "joint": noise(rng, slots, joint),
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        memory = ops.LstmState(x["hidden"], x["cell"], x["joint"])
        state = ops.TransducerState(x["rows"], x["decisions"])
        return backend.joint_network(x["x"], w["project"], memory, state, block)

    def weights(rng: np.random.Generator) -> Values:
        matrix = (noise(rng, joint, width) / np.sqrt(width)).astype(dtype)
        return {"project": ops.Linear(matrix, noise(rng, joint) if bias else None)}

    name = f"joint_network {count} rows of {slots}, {width} to {joint}, {block} frames"
    name += f" {np.dtype(dtype).name}"
    return Case(name, values, call, weights, row_mask="rows")


def random_context_graph(
    rng: np.random.Generator, count: int, labels: int, root: int = 0, arc: int = 0
) -> tuple[Array, list[tuple[int, int, float]]]:
    """Nodes that fall back to earlier ones, with random arcs: harder than a graph of phrases.

    For tables that hold others too: the first node is `root`, its first arc is `arc`.
    """
    nodes = np.zeros(count, ops.GRAPH_NODE)
    arcs: list[tuple[int, int, float]] = []
    for i, node in enumerate(nodes):
        tokens = np.sort(rng.choice(labels, min(labels, int(rng.integers(0, 9))), replace=False))
        node["first"], node["count"] = arc + len(arcs), len(tokens)
        node["fail"] = root + rng.integers(0, max(i, 1))
        node["back"] = -3 * rng.random() * (i > 0)
        arcs += [(token, root + int(rng.integers(0, count)), 6 * rng.random()) for token in tokens]
    return nodes, arcs


def random_context_graphs(
    rng: np.random.Generator, sizes: tuple[int, ...], labels: int
) -> tuple[Array, Array, Array]:
    """Several graphs after a root without arcs: nodes, arcs, and a random node of each."""
    nodes, starts = [np.zeros(1, ops.GRAPH_NODE)], [0]
    arcs: list[tuple[int, int, float]] = []
    for size in sizes:
        root = sum(len(table) for table in nodes)
        own, more = random_context_graph(rng, size, labels, root, len(arcs))
        nodes.append(own)
        arcs += more
        starts.append(root + int(rng.integers(0, size)))
    padded_arcs = np.zeros(1 + 9 * sum(sizes), ops.GRAPH_ARC)
    padded_arcs[: len(arcs)] = arcs
    return np.concatenate(nodes), padded_arcs, np.array(starts)


def transducer_step_case(
    count: int,
    slots: int,
    labels: int,
    block: int,
    durations: tuple[int, ...],
    boosted: tuple[int, ...] = (),
) -> Case:
    """Decisions from random positions: ties, blanks, forced advances, full buffers, NaN logits.

    boosted: sizes of context graphs; each row follows one of them, or has none.
    """
    capacity = 7

    def values(rng: np.random.Generator) -> Values:
        logits = 3 * noise(rng, count * block, labels + 1 + len(durations))
        logits[rng.random(len(logits)) < 0.6, labels] = 20
        tied = rng.random(len(logits)) < 0.5
        for token in rng.integers(0, labels, 3):
            logits[tied, token] = 15.5
        logits[rng.random(len(logits)) < 0.05, rng.integers(0, logits.shape[1])] = np.nan
        nodes, arcs, starts = random_context_graphs(rng, boosted, labels)
        rows = transducer_rows(rng, count, slots, 12, labels, capacity)
        rows["node"] = rng.choice(starts, count)
        return {
            "logits": logits,
            "params": np.array([labels, 3, *durations], np.uint32),
            "rows": rows,
            "decisions": np.zeros((slots, capacity), ops.TRANSDUCER_STEP),
            "nodes": nodes,
            "arcs": arcs,
        }

    def call(backend: Any, x: Values, w: Values) -> None:
        boost = ops.ContextGraphTensors(x["nodes"], x["arcs"]) if boosted else None
        state = ops.TransducerState(x["rows"], x["decisions"])
        backend.transducer_step(x["logits"], x["params"], state, boost)

    name = f"transducer_step {count} rows of {slots}, {block} frames, {labels} labels"
    name += f", {len(durations)} lengths" + f", {sum(boosted)} nodes" * bool(boosted)
    return Case(name, values, call)


def argmax_prob_case(rows: int, width: int) -> Case:
    """Ties, and rows with NaN."""

    def values(rng: np.random.Generator) -> Values:
        logits = 3 * noise(rng, rows, width)
        logits[:, rng.integers(0, width, 3)] = 9.5
        logits[rng.random(rows) < 0.1, rng.integers(0, width)] = np.inf
        return {"logits": logits}

    return Case(
        f"argmax_prob {rows} rows of {width}",
        values,
        lambda backend, x, w: backend.argmax_prob(x["logits"]),
    )


TDT_DURATIONS = (0, 1, 2, 3, 4)

CASES = (
    prediction_network_case(1, 1, 40, 640, 2, True),
    prediction_network_case(1, 3, 9, 24, 1, False),
    prediction_network_case(7, 9, 30, 40, 2, False),
    prediction_network_case(16, 16, 30, 132, 3, True),
    joint_network_case(1, 1, 640, 640, 8, True, True),
    joint_network_case(5, 7, 24, 32, 4, False, False),
    joint_network_case(3, 5, 40, 133, 9, False, True),
    transducer_step_case(1, 1, 8192, 8, TDT_DURATIONS),
    transducer_step_case(16, 16, 1024, 4, TDT_DURATIONS),
    transducer_step_case(9, 12, 96, 1, (0, 1, 2, 4, 8)),
    transducer_step_case(12, 13, 1024, 5, ()),
    transducer_step_case(8, 8, 1030, 3, TDT_DURATIONS, (30,)),
    transducer_step_case(4, 6, 8192, 4, TDT_DURATIONS, (150, 1, 49)),
    transducer_step_case(6, 6, 20, 8, (), (9, 4)),
    argmax_prob_case(1, 5),
    argmax_prob_case(70, 1025),
)
