"""Cases of the conformer's ops: padded batches, empty utterances, bands, its activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine import ops
from oscine.ops.check_cases import Array, Case, Values, noise
from oscine.ops.check_layers import linear_case


def frames_of(rng: np.random.Generator, batch: int, most: int) -> Array:
    """Lengths of a batch: one whole, one of nothing, others between."""
    frames = rng.integers(0, most + 1, batch).astype(np.uint32)
    frames[0] = most
    frames[1:2] = 0
    return rng.permutation(frames)


def subsample_case(batch: int, n: int, mels: int, channels: int, halvings: int = 2) -> Case:
    """The stem; what is void holds noise."""

    def weights(rng: np.random.Generator) -> Values:
        def image() -> ops.Linear:
            return ops.Linear(noise(rng, 3, 3, channels) / 3, noise(rng, channels))

        def point() -> ops.Linear:
            matrix = noise(rng, channels, channels) / np.float32(channels**0.5)
            return ops.Linear(matrix, noise(rng, channels))

        return {"first": image(), "halvings": tuple((image(), point()) for _ in range(halvings))}

    def call(backend: Any, x: Values, w: Values) -> Any:
        lengths = ops.Lengths(x["frames"])
        return backend.subsample(x["mel"], lengths, w["first"], w["halvings"])

    return Case(
        f"subsample {batch} of {n}x{mels} by {2 << halvings}, {channels} channels",
        lambda rng: {
            "mel": noise(rng, batch * n, mels, spike=5.0),
            "frames": frames_of(rng, batch, n),
        },
        call,
        weights,
    )


def positions_case(count: int, width: int) -> Case:
    """Distances both ways."""
    return Case(
        f"relative_positions {count} of {width}",
        lambda rng: {},
        lambda backend, x, w: backend.relative_positions(count, width),
    )


def relative_case(
    batch: int,
    rows: int,
    heads: int,
    width: int,
    band: tuple[int, int] | None = None,
    spare: int = 0,
) -> Case:
    """Attention by content and distance, from a table of `spare` distances more than it needs."""
    per = 8
    count = (rows if band is None else max(band) + 1) + spare

    def values(rng: np.random.Generator) -> Values:
        return {
            "qkv": noise(rng, batch * rows, 3 * heads * width, spike=4.0),
            "positions": noise(rng, 2 * count - 1, heads * width, spike=4.0),
            "u": noise(rng, heads * width),
            "v": noise(rng, heads * width),
            "frames": frames_of(rng, batch, per * rows),
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        lengths = ops.Lengths(x["frames"], per)
        return backend.attend_relative(
            x["qkv"], x["positions"], x["u"], x["v"], lengths, heads, band
        )

    name = f"attend_relative {batch} of {rows} rows, {heads}x{width}"
    name += f", band {band}" * (band is not None) + f", {spare} spare" * (spare > 0)
    return Case(name, values, call)


def gated_case(batch: int, rows: int, width: int, taps: int, biased: bool = True) -> Case:
    """The convolution module's middle; gates that overflow an exponential."""

    def values(rng: np.random.Generator) -> Values:
        x = noise(rng, batch * rows, 2 * width, spike=3.0)
        x[0, width:] = -200
        return {"x": x, "frames": frames_of(rng, batch, rows)}

    def call(backend: Any, x: Values, w: Values) -> Any:
        return backend.gated_convolution(x["x"], w["conv"], ops.Lengths(x["frames"]))

    return Case(
        f"gated_convolution {batch} of {rows}x{width}, {taps} taps" + ", no bias" * (not biased),
        values,
        call,
        lambda rng: {
            "conv": ops.Linear(noise(rng, taps, width) / 3, noise(rng, width) if biased else None)
        },
    )


CASES = (
    linear_case(1, 40, 130, False, norm=True, activation="silu"),
    linear_case(9, 64, 36, True, activation="relu", add=True),
    linear_case(70, 36, 132, False, activation="silu", bias=False),
    subsample_case(1, 1, 20, 8),
    subsample_case(1, 203, 80, 8),
    subsample_case(3, 61, 20, 12),
    subsample_case(2, 33, 7, 4, halvings=1),
    subsample_case(2, 40, 128, 4, halvings=3),
    positions_case(1, 4),
    positions_case(300, 32),
    positions_case(40000, 8),
    relative_case(1, 1, 1, 4),
    relative_case(3, 40, 3, 12, spare=9),
    relative_case(1, 150, 2, 64, spare=1),
    relative_case(2, 65, 1, 128),
    relative_case(1, 40, 1, 144),
    relative_case(2, 100, 2, 8, band=(5, 5)),
    relative_case(1, 300, 1, 20, band=(70, 33), spare=4),
    relative_case(1, 90, 2, 8, band=(40, 0)),
    relative_case(1, 70, 1, 8, band=(0, 200)),
    gated_case(1, 1, 4, 9),
    gated_case(3, 70, 40, 9),
    gated_case(1, 100, 72, 31, biased=False),
    gated_case(2, 40, 8, 1),
    gated_case(1, 80, 4, 61),
)
