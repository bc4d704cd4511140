"""Cases of the ops that decode transducers and CTC: lines anywhere in their frames, ties, trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oscine import ops
from oscine.ops.check_cases import Array, Case, Values, noise


@dataclass(frozen=True, slots=True)
class Layer:
    """oscine.ops.transducer_ops.Cell."""

    input: ops.Linear
    hidden: ops.Linear


def tracks(rng: np.random.Generator, lines: int, frames: int, labels: int, room: int) -> Array:
    """Lines somewhere in utterances of at most so many frames; one in four is done."""
    rows = np.zeros(lines, ops.TRACK)
    rows["done"] = rng.random(lines) < (0.25 if lines > 1 else 0.0)
    rows["frames"] = rng.integers(1, frames + 1, lines)
    rows["frame"] = rng.integers(0, rows["frames"])
    rows["first"] = rng.permutation(lines) * frames
    rows["token"] = rng.integers(0, labels + 1, lines)
    rows["fresh"] = rng.random(lines) < 0.7
    rows["half"] = rng.integers(0, 2, lines)
    rows["symbols"] = rng.integers(0, 3, lines)
    rows["count"] = rng.integers(0, room - 1, lines)
    rows["limit"] = rng.integers(rows["count"] + 1, room + 1)
    return rows


def predict_case(lines: int, labels: int, width: int, layers: int, half: bool) -> Case:
    """The prediction network from random memories, for the lines that are fresh."""
    kind = np.float16 if half else np.float32

    def matrix(rng: np.random.Generator) -> Array:
        return np.asarray(noise(rng, 4 * width, width) / np.sqrt(width), kind)

    def layer(rng: np.random.Generator) -> Layer:
        bias = noise(rng, 4 * width)
        bias[:4] *= 40  # gates that are wide open or shut
        return Layer(ops.Linear(matrix(rng), bias), ops.Linear(matrix(rng), None))

    def values(rng: np.random.Generator) -> Values:
        return {
            "rows": tracks(rng, lines, 9, labels, 9),
            "decisions": np.zeros((lines, 9), ops.DECISION),
            "hidden": noise(rng, layers, 2, lines, width),
            "cell": noise(rng, layers, 2, lines, width, spike=20.0),
            "joint": np.zeros((lines, 4), np.float32),
        }

    def call(backend: Any, x: Values, w: Values) -> None:
        memory = ops.Memory(x["hidden"], x["cell"], x["joint"])
        backend.predict(w["table"], w["cells"], memory, ops.Track(x["rows"], x["decisions"]))

    return Case(
        f"predict {lines} lines, {layers}x{width} {np.dtype(kind).name}",
        values,
        call,
        lambda rng: {
            "table": noise(rng, labels + 1, width).astype(kind),
            "cells": tuple(layer(rng) for _ in range(layers)),
        },
        compare=("hidden", "cell"),
    )


def join_case(lines: int, width: int, joint: int, block: int, half: bool, bias: bool) -> Case:
    """The joint network's hidden rows: fresh lines and others, blocks over the end."""
    kind, frames = np.float16 if half else np.float32, 11

    def values(rng: np.random.Generator) -> Values:
        return {
            "x": noise(rng, lines * frames, joint),
            "rows": tracks(rng, lines, frames, 5, 9),
            "decisions": np.zeros((lines, 9), ops.DECISION),
            "hidden": noise(rng, 2, 2, lines, width),
            "cell": np.zeros((2, 2, lines, width), np.float32),
            "joint": noise(rng, lines, joint),
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        memory = ops.Memory(x["hidden"], x["cell"], x["joint"])
        track = ops.Track(x["rows"], x["decisions"])
        return backend.join(x["x"], w["project"], memory, track, block)

    def weights(rng: np.random.Generator) -> Values:
        matrix = (noise(rng, joint, width) / np.sqrt(width)).astype(kind)
        return {"project": ops.Linear(matrix, noise(rng, joint) if bias else None)}

    name = f"join {lines} lines, {width} to {joint}, {block} frames {np.dtype(kind).name}"
    return Case(name, values, call, weights, compare=("joint",), lines="rows")


def tree(rng: np.random.Generator, count: int, labels: int) -> tuple[Array, Array]:
    """Nodes that fall back on those before them, with any arcs: harder than a tree of phrases."""
    nodes = np.zeros(count, ops.NODE)
    arcs: list[tuple[int, int, float]] = []
    for i, node in enumerate(nodes):
        tokens = np.sort(rng.choice(labels, min(labels, int(rng.integers(0, 9))), replace=False))
        node["first"], node["count"] = len(arcs), len(tokens)
        node["fail"], node["back"] = rng.integers(0, max(i, 1)), -3 * rng.random() * (i > 0)
        arcs += [(token, int(rng.integers(0, count)), 6 * rng.random()) for token in tokens]
    room = np.zeros(9 * count, ops.ARC)
    room[: len(arcs)] = arcs
    return nodes, room


def pick_case(
    lines: int, labels: int, block: int, durations: tuple[int, ...], boosted: int = 0
) -> Case:
    """Decisions from random places: ties, blanks, forced advances, full tables, broken logits."""
    room = 7

    def values(rng: np.random.Generator) -> Values:
        logits = 3 * noise(rng, lines * block, labels + 1 + len(durations))
        logits[rng.random(len(logits)) < 0.6, labels] = 20
        tied = rng.random(len(logits)) < 0.5
        for token in rng.integers(0, labels, 3):
            logits[tied, token] = 15.5
        logits[rng.random(len(logits)) < 0.05, rng.integers(0, logits.shape[1])] = np.nan
        nodes, arcs = tree(rng, max(1, boosted), labels)
        rows = tracks(rng, lines, 12, labels, room)
        rows["node"] = rng.integers(0, len(nodes), lines)
        return {
            "logits": logits,
            "rules": np.array([labels, 3, *durations], np.uint32),
            "rows": rows,
            "decisions": np.zeros((lines, room), ops.DECISION),
            "nodes": nodes,
            "arcs": arcs,
        }

    def call(backend: Any, x: Values, w: Values) -> None:
        boost = ops.Boost(x["nodes"], x["arcs"]) if boosted else None
        track = ops.Track(x["rows"], x["decisions"])
        backend.pick_labels(x["logits"], x["rules"], track, boost)

    name = f"pick_labels {lines} lines of {block} frames, {labels} labels, {len(durations)} lengths"
    name += f", {boosted} nodes" * (boosted > 0)
    return Case(name, values, call, compare=("rows", "decisions"))


def likeliest_case(rows: int, width: int) -> Case:
    """Ties, and rows that are no numbers."""

    def values(rng: np.random.Generator) -> Values:
        logits = 3 * noise(rng, rows, width)
        logits[:, rng.integers(0, width, 3)] = 9.5
        logits[rng.random(rows) < 0.1, rng.integers(0, width)] = np.inf
        return {"logits": logits}

    return Case(
        f"likeliest {rows} rows of {width}",
        values,
        lambda backend, x, w: backend.likeliest(x["logits"]),
    )


TDT = (0, 1, 2, 3, 4)

CASES = (
    predict_case(1, 40, 640, 2, True),
    predict_case(1, 9, 24, 1, False),
    predict_case(7, 30, 40, 2, False),
    predict_case(16, 30, 132, 3, True),
    join_case(1, 640, 640, 8, True, True),
    join_case(5, 24, 32, 4, False, False),
    join_case(3, 40, 133, 9, False, True),
    pick_case(1, 8192, 8, TDT),
    pick_case(16, 1024, 4, TDT),
    pick_case(9, 96, 1, (0, 1, 2, 4, 8)),
    pick_case(12, 1024, 5, ()),
    pick_case(8, 1030, 3, TDT, boosted=30),
    pick_case(4, 8192, 4, TDT, boosted=200),
    pick_case(6, 20, 8, (), boosted=9),
    likeliest_case(1, 5),
    likeliest_case(70, 1025),
)
