"""Cases of the ops of codecs: paddings, strides, dilations, memories longer and shorter than x."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine import ops
from oscine.ops.check_cases import Case, Values, noise


def voices(rng: np.random.Generator, count: int) -> Any:
    """State of voices in slots of their own: one may begin, and of several one is done."""
    state = np.zeros(count, ops.UTTERANCE)
    state["slot"] = rng.permutation(count + 2)[:count]
    state["position"] = rng.integers(1, 9, count)
    state["position"][rng.integers(0, count)] = rng.integers(0, 2)
    if count > 2:
        state["done"][rng.integers(0, count)] = 1
    return state


def convolve_case(
    counts: int | tuple[int, int],
    shape: tuple[int, int, int],
    taps: ops.Taps,
    *,
    memory: bool = False,
    activation: ops.Activation = None,
    add: bool = False,
    bias: bool = True,
    half: bool = False,
) -> Case:
    """A convolution of some rows, or of some voices with some rows each; shape is the weight's,
    [O, K, I]."""
    outputs, width, inputs = shape
    batch, count = counts if isinstance(counts, tuple) else (1, counts)
    rows = batch * taps.rows(count, width)

    def weights(rng: np.random.Generator) -> Values:
        weight = noise(rng, *shape) / np.float32((width * inputs) ** 0.5)
        if width == 1:
            weight = weight[:, 0]
        if half:
            weight = weight.astype(np.float16)
        return {"conv": ops.Linear(weight, noise(rng, outputs) if bias else None)}

    def values(rng: np.random.Generator) -> Values:
        found = {"x": noise(rng, batch * count, inputs, spike=4.0)}
        if memory:
            found["memory"] = noise(rng, batch + 2, taps.left, inputs, spike=4.0)
        if memory or batch > 1:
            found["state"] = voices(rng, batch)
        if add:
            found["add"] = noise(rng, rows, outputs)
        return found

    def call(backend: Any, x: Values, w: Values) -> Any:
        return backend.convolve(
            x["x"], w["conv"], taps, memory=x.get("memory"), state=x.get("state"),
            activation=activation, add=x.get("add"),
        )  # fmt: skip

    how = f"{taps.left}+{taps.right} {taps.padding}, stride {taps.stride}, every {taps.dilation}"
    times = f"{batch} times " * (batch > 1)
    name = f"convolve {times}{count} rows, {outputs}x{width}x{inputs}, {how}"
    name += ", memory" * memory + ", add" * add + f", {activation}" * (activation is not None)
    name += ", no bias" * (not bias) + ", float16" * half
    return Case(name, values, call, weights, ("memory",) * memory)


def depthwise_case(count: int, width: int, taps: int, bias: bool = True, batch: int = 1) -> Case:
    """Each channel by itself, over a memory."""

    def values(rng: np.random.Generator) -> Values:
        return {
            "x": noise(rng, batch * count, width, spike=4.0),
            "memory": noise(rng, batch + 2, taps - 1, width, spike=4.0),
            "state": voices(rng, batch),
        }

    return Case(
        f"depthwise {batch} times {count}x{width}, {taps} taps" + ", no bias" * (not bias),
        values,
        lambda backend, x, w: backend.depthwise(x["x"], w["conv"], x["memory"], x["state"]),
        lambda rng: {
            "conv": ops.Linear(noise(rng, taps, width) / 3, noise(rng, width) if bias else None)
        },
        ("memory",),
    )


def snake_case(count: int, width: int, top: float) -> Case:
    """Arguments up to `top`; x itself is small, so that the sine shows."""

    def weights(rng: np.random.Generator) -> Values:
        scale = np.exp(noise(rng, width)) * np.float32(top)
        return {"snake": ops.Snake(np.minimum(scale, np.float32(top)), np.abs(noise(rng, width)))}

    def values(rng: np.random.Generator) -> Values:
        return {"x": rng.uniform(-1, 1, (count, width)).astype(np.float32)}

    return Case(
        f"snake {count}x{width}, up to {top:.0f}",
        values,
        lambda backend, x, w: backend.snake(x["x"], w["snake"]),
        weights,
        limit=1e-6,
    )


def activate_case(activation: ops.Activation, *shape: int) -> Case:
    """Values that overflow an exponential among others."""

    def values(rng: np.random.Generator) -> Values:
        x = noise(rng, *shape)
        x.reshape(-1)[:4] = -200, 200, 0, -1e-4
        return {"x": x}

    return Case(
        f"activate {'x'.join(map(str, shape))}, {activation}",
        values,
        lambda backend, x, w: backend.activate(x["x"], activation),
        limit=2e-6,
    )


def concat_case(rows: int, *widths: int, ones: tuple[int, ...] = ()) -> Case:
    """Parts side by side; those that `ones` names have one row."""

    def values(rng: np.random.Generator) -> Values:
        return {
            f"part{index}": noise(rng, 1 if index in ones else rows, width)
            for index, width in enumerate(widths)
        }

    name = f"concat {rows}x{'‖'.join(map(str, widths))}"
    name += f", one row of {', '.join(map(str, ones))}" * bool(ones)
    return Case(name, values, lambda backend, x, w: backend.concat([*x.values()]), limit=0.0)


def columns_case(rows: int, width: int, first: int, count: int, add: bool = False) -> Case:
    """Some columns of many."""

    def values(rng: np.random.Generator) -> Values:
        found = {"x": noise(rng, rows, width)}
        return {**found, "add": noise(rng, rows, count)} if add else found

    return Case(
        f"columns {first} to {first + count} of {rows}x{width}" + ", add" * add,
        values,
        lambda backend, x, w: backend.columns(x["x"], first, count, x.get("add")),
        limit=0.0,
    )


def look_up_case(count: int, groups: int, tables: int, first: int) -> Case:
    """Some groups of codes, the last code among them."""

    def values(rng: np.random.Generator) -> Values:
        codes = rng.integers(0, 40, (count, groups)).astype(np.uint32)
        codes[-1] = 39
        return {"codes": codes}

    return Case(
        f"look_up {count} of {groups} groups, {tables} tables from {first}",
        values,
        lambda backend, x, w: backend.look_up(x["codes"], w["tables"], first),
        lambda rng: {"tables": noise(rng, tables, 40, 12)},
    )


def quantise_case(count: int, entries: int, width: int) -> Case:
    """Rows near an entry, exactly on one, and between two that are equal."""

    def table(rng: np.random.Generator) -> Values:
        rows = noise(rng, entries, width)
        rows[entries // 2] = rows[1]
        return {"table": rows}

    def values(rng: np.random.Generator) -> Values:
        return {
            "x": noise(rng, count, width),
            "codes": rng.integers(0, 9, (count, 3)).astype(np.uint32),
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        rest = backend.quantise(x["x"], w["table"], x["codes"], 1)
        return backend.quantise(rest, w["table"], x["codes"], 2)

    return Case(f"quantise {count} of {entries}x{width}", values, call, table, ("codes",))


def statistics_case(count: int, width: int, scores: bool) -> Case:
    """Means beside which deviations are small; weights that nearly leave out all but one row."""

    def values(rng: np.random.Generator) -> Values:
        found = {"x": noise(rng, count, width, spike=8.0)}
        found["x"][:, 0] = 3  # no deviation at all
        if scores:
            found["scores"] = noise(rng, count, width, spike=4.0)
            found["scores"][0] += 100
        return found

    return Case(
        f"statistics {count}x{width}" + ", scores" * scores,
        values,
        lambda backend, x, w: backend.statistics(x["x"], x.get("scores")),
    )


def scale_case(count: int, width: int, add: bool) -> Case:
    """A factor a channel."""

    def values(rng: np.random.Generator) -> Values:
        found = {"x": noise(rng, count, width), "factors": noise(rng, 1, width)}
        return {**found, "add": noise(rng, count, width)} if add else found

    return Case(
        f"scale_channels {count}x{width}" + ", add" * add,
        values,
        lambda backend, x, w: backend.scale_channels(x["x"], x["factors"], x.get("add")),
    )


Taps = ops.Taps

CASES: tuple[Case, ...] = (
    # Few rows: memories longer than x, as long, shorter.
    convolve_case(1, (4, 7, 8), Taps(6), memory=True, activation="elu"),
    convolve_case(1, (33, 7, 8), Taps(54, dilation=9), memory=True),
    convolve_case(3, (130, 7, 12), Taps(18, dilation=3), memory=True, add=True, activation="gelu"),
    convolve_case(6, (36, 7, 20), Taps(6), memory=True, half=True),
    convolve_case(9, (36, 7, 4), Taps(6), memory=True, bias=False),
    convolve_case(3, (96, 1, 600), Taps(0), add=True),
    convolve_case(16, (40, 7, 512), Taps(6), memory=True),
    convolve_case(40, (5, 3, 16), Taps(2, 0, 2), activation="tanh"),
    convolve_case(4, (48, 2, 64), Taps(1), memory=True),
    # Many rows: tiles of every width, split or not.
    convolve_case(40, (33, 7, 8), Taps(54, dilation=9), memory=True),
    convolve_case(40, (132, 7, 64), Taps(6), memory=True, add=True, activation="sigmoid"),
    convolve_case(40, (130, 3, 64), Taps(2), memory=True, add=True),
    convolve_case(54, (36, 7, 12), Taps(54, dilation=9), memory=True, half=True),
    convolve_case(700, (96, 3, 12), Taps(18, dilation=9), memory=True, add=True),
    convolve_case(700, (132, 1, 36), Taps(0), activation="relu"),
    convolve_case(700, (64, 7, 4), Taps(6), memory=True),
    convolve_case(700, (36, 3, 20), Taps(1, 1, padding="reflect"), activation="relu"),
    convolve_case(90, (33, 3, 20), Taps(4, 4, dilation=4, padding="reflect"), bias=False),
    convolve_case(131, (36, 4, 12), Taps(2, 1, 2, padding="edge"), bias=False),
    convolve_case(700, (64, 8, 8), Taps(4, 0, 4)),
    convolve_case(203, (40, 10, 8), Taps(5, 2, 5), activation="elu"),
    convolve_case(320, (40, 16, 4), Taps(8, 0, 8), half=True),
    convolve_case(4, (40, 10, 8), Taps(5, 1, 5), memory=True),
    convolve_case(339, (40, 10, 8), Taps(5, 1, 5), memory=True),
    convolve_case(9000, (132, 1, 4), Taps(0)),
    # Several voices: by rows, by tiles, split or not, each with its own padding.
    convolve_case((4, 1), (36, 7, 20), Taps(6), memory=True),
    convolve_case((3, 3), (130, 7, 12), Taps(18, dilation=3), memory=True, add=True),
    convolve_case((16, 2), (48, 2, 64), Taps(1), memory=True, activation="gelu"),
    convolve_case((2, 40), (132, 7, 64), Taps(6), memory=True, add=True),
    convolve_case((5, 33), (96, 3, 12), Taps(18, dilation=9), memory=True),
    convolve_case((3, 21), (40, 10, 8), Taps(5, 1, 5), memory=True),
    convolve_case((3, 30), (36, 3, 20), Taps(1, 1, padding="reflect")),
    convolve_case((2, 7), (36, 4, 12), Taps(2, 1, 2, padding="edge")),
    convolve_case((4, 20), (36, 1, 12), Taps(0, 0, 3)),
    convolve_case((2, 50), (96, 1, 12), Taps(0), add=True),
    convolve_case((4, 60), (1, 7, 96), Taps(6), memory=True),
    # Few outputs.
    convolve_case(700, (1, 7, 96), Taps(6), memory=True),
    convolve_case(3, (4, 3, 8), Taps(2, 2, padding="edge"), add=True, activation="silu"),
    convolve_case(40, (2, 7, 40), Taps(18, dilation=3), memory=True, half=True),
    depthwise_case(1, 12, 7),
    depthwise_case(6, 20, 7, bias=False),
    depthwise_case(150, 64, 7),
    depthwise_case(3, 4, 70),
    depthwise_case(1, 12, 7, batch=4),
    depthwise_case(90, 20, 7, batch=3),
    snake_case(1, 4, 30.0),
    snake_case(333, 96, 1000.0),
    *(activate_case(a, 7, 9) for a in ("gelu", "silu", "relu", "elu", "tanh", "sigmoid")),
    activate_case("elu", 300, 3, 128),
    concat_case(1, 4),
    concat_case(37, 8, 4, 12),
    concat_case(90, 20, 40, ones=(1,)),
    concat_case(5, 4, 8, 4, 16, 4, 4, 12, 8, 4, ones=(0, 7)),
    columns_case(1, 4, 0, 4),
    columns_case(37, 24, 8, 12, add=True),
    columns_case(90, 20, 16, 4),
    look_up_case(1, 1, 1, 0),
    look_up_case(37, 6, 4, 2),
    quantise_case(1, 5, 4),
    quantise_case(30, 300, 20),
    statistics_case(1, 4, False),
    statistics_case(90, 20, False),
    statistics_case(700, 36, True),
    scale_case(1, 4, True),
    scale_case(50, 20, False),
)
