"""Cases of activations, concatenation, slices and pooling, and of storing float16."""

from __future__ import annotations

import numpy as np

from oscine import ops
from oscine.ops.cases import Case, Values, noise


def snake_case(count: int, width: int, top: float) -> Case:
    """Arguments up to `top`; x itself is small, so that the sine dominates."""

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
    """Concatenated parts; those that `ones` names have one row."""

    def values(rng: np.random.Generator) -> Values:
        return {
            f"part{index}": noise(rng, 1 if index in ones else rows, width)
            for index, width in enumerate(widths)
        }

    name = f"concat {rows}x{'‖'.join(map(str, widths))}"
    name += f", one row of {', '.join(map(str, ones))}" * bool(ones)
    return Case(name, values, lambda backend, x, w: backend.concat([*x.values()]), limit=0.0)


def slice_columns_case(rows: int, width: int, first: int, count: int, add: bool = False) -> Case:
    """Some columns of many."""

    def values(rng: np.random.Generator) -> Values:
        inputs = {"x": noise(rng, rows, width)}
        return {**inputs, "add": noise(rng, rows, count)} if add else inputs

    return Case(
        f"slice_columns {first} to {first + count} of {rows}x{width}" + ", add" * add,
        values,
        lambda backend, x, w: backend.slice_columns(x["x"], first, count, x.get("add")),
        limit=0.0,
    )


def stats_pool_case(count: int, width: int, scores: bool) -> Case:
    """Deviations that are small beside the mean; weights that nearly select one row."""

    def values(rng: np.random.Generator) -> Values:
        inputs = {"x": noise(rng, count, width, spike=8.0)}
        inputs["x"][:, 0] = 3  # no deviation at all
        if scores:
            inputs["scores"] = noise(rng, count, width, spike=4.0)
            inputs["scores"][0] += 100
        return inputs

    return Case(
        f"stats_pool {count}x{width}" + ", scores" * scores,
        values,
        lambda backend, x, w: backend.stats_pool(x["x"], x.get("scores")),
    )


def scale_channels_case(count: int, width: int, add: bool) -> Case:
    """A factor a channel."""

    def values(rng: np.random.Generator) -> Values:
        inputs = {"x": noise(rng, count, width), "factors": noise(rng, 1, width)}
        return {**inputs, "add": noise(rng, count, width)} if add else inputs

    return Case(
        f"scale_channels {count}x{width}" + ", add" * add,
        values,
        lambda backend, x, w: backend.scale_channels(x["x"], x["factors"], x.get("add")),
    )


def store_f16_case(rows: int, width: int) -> Case:
    """Stores to a float16 buffer; hardware may round to either adjacent value."""
    return Case(
        f"keep {rows}x{width} float16",
        lambda rng: {
            "x": noise(rng, rows, width, spike=100.0),
            "slot": np.zeros((rows, width), np.float16),
        },
        lambda backend, x, w: backend.store(backend.linear(x["x"], w["linear"]), x["slot"]),
        lambda rng: {"linear": ops.Linear(np.eye(width, dtype=np.float32), None)},
        limit=1e-3,
    )


CASES: tuple[Case, ...] = (
    snake_case(1, 4, 30.0),
    snake_case(333, 96, 1000.0),
    *(activate_case(a, 7, 9) for a in ("gelu", "silu", "relu", "elu", "tanh", "sigmoid")),
    activate_case("elu", 300, 3, 128),
    concat_case(1, 4),
    concat_case(37, 8, 4, 12),
    concat_case(90, 20, 40, ones=(1,)),
    concat_case(5, 4, 8, 4, 16, 4, 4, 12, 8, 4, ones=(0, 7)),
    slice_columns_case(1, 4, 0, 4),
    slice_columns_case(37, 24, 8, 12, add=True),
    slice_columns_case(90, 20, 16, 4),
    stats_pool_case(1, 4, False),
    stats_pool_case(90, 20, False),
    stats_pool_case(700, 36, True),
    scale_channels_case(1, 4, True),
    scale_channels_case(50, 20, False),
    store_f16_case(5, 36),
    store_f16_case(70, 516),
)
