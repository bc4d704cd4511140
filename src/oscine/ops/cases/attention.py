"""Cases of attention: finished sequences, caches full of noise, bands, ring buffers."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine import ops
from oscine.ops.cases import (
    SPARE_SLOTS,
    Case,
    Values,
    batch_suffix,
    decoder_rows,
    noise,
    random_cache_indirection,
    random_lengths,
    talker_rows,
    talker_state,
)


def attention_case(length: int, heads: int, width: int, batch: int = 1) -> Case:
    """The encoder's attention; each window of a batch attends to itself."""
    return Case(
        f"attention {length} rows, {heads}x{width}" + batch_suffix(batch),
        lambda rng: {"qkv": noise(rng, batch * length, 3 * heads * width, spike=4.0)},
        lambda backend, x, w: backend.attention(x["qkv"], heads, batch),
    )


def projected(case: Case, width: int) -> Case:
    """A case whose qkv is a product with float16 weights, which matrix units may take."""

    def values(rng: np.random.Generator) -> Values:
        made = case.inputs(rng)
        return made | {"qkv": np.ascontiguousarray(made["qkv"][:, :width])}

    def call(backend: Any, x: Values, w: Values) -> Any:
        return case.call(backend, x | {"qkv": backend.linear(x["qkv"], w["qkv"])}, w)

    def weights(rng: np.random.Generator) -> Values:
        matrix = noise(rng, 3 * width, width) / np.sqrt(width)
        return {"qkv": ops.Linear(matrix.astype(np.float16), None)}

    return Case(f"projected {case.name}", values, call, weights)


def projected_attention_case(length: int, heads: int, width: int, batch: int = 1) -> Case:
    """The encoder's attention after a product that matrix units may take."""
    return projected(attention_case(length, heads, width, batch), heads * width)


def window_rows(rng: np.random.Generator, batch: int, length: int, windows: int, keys: int) -> Any:
    """Rows with windows in random order, some shared, and random numbers of frames with audio."""
    rows = decoder_rows(rng, batch, length, length)
    rows["window"] = rng.permutation(np.arange(batch) % windows)
    rows["frames"] = rng.integers(0, keys + 1, batch)
    return rows


def cross_attention_case(
    batch: int, length: int, windows: int, keys: int, heads: int, width: int, half: bool = False
) -> Case:
    """Cross-attention; results of finished rows are undefined."""
    dtype = np.float16 if half else np.float32

    def values(rng: np.random.Generator) -> Values:
        return {
            "q": noise(rng, batch * length, heads * width, spike=3.0),
            "kv": noise(rng, windows, keys, 2 * heads * width, spike=3.0).astype(dtype),
            "rows": window_rows(rng, batch, length, windows, keys),
            "tokens": np.zeros((batch, length), np.uint32),
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        state = ops.TextDecoderState(x["rows"], x["tokens"])
        return backend.cross_attention(x["q"], x["kv"], state, heads)

    size = f"{batch} sequences of {length}, {windows} windows of {keys} keys, {heads}x{width}"
    size += " float16" * half
    return Case(f"cross_attention {size}", values, call, row_mask="rows")


def cross_attention_weights_case(
    batch: int, length: int, keys: int, heads: int, chosen: tuple[int, ...], half: bool = False
) -> Case:
    """The attention weights of some heads, of finished rows too."""
    whole = cross_attention_case(batch, length, 2, keys, heads, 16, half)

    def call(backend: Any, x: Values, w: Values) -> Any:
        state = ops.TextDecoderState(x["rows"], x["tokens"])
        return backend.cross_attention_weights(x["q"], x["kv"], state, heads, chosen)

    name = (
        f"cross_attention_weights {batch} sequences of {length}, {keys} keys, "
        f"heads {chosen} of {heads}"
    )
    return Case(name + " float16" * half, whole.inputs, call)


def causal_attention_case(
    batch: int,
    length: int,
    capacity: int,
    heads: int,
    width: int,
    spare: int = 0,
    beams: int = 0,
    slots: int = 0,
) -> Case:
    """Causal attention without rope, which appends to caches full of noise.

    spare: positions of a cache's slot past the capacity. beams: rows of a group, whose keys are in
    each other's slots; 0: no cache_indirection. slots: of the cache, where some rows are done;
    0: one slot for each row, and none is done.
    """
    shape = (slots or batch, capacity + spare, heads * width)

    def call(backend: Any, x: Values, w: Values) -> Any:
        cache = ops.KVCache(x["keys"], x["values"])
        state = ops.TextDecoderState(x["rows"], x["tokens"], cache_indirection=x.get("indirection"))
        y = backend.causal_attention(x["qkv"], cache, state, heads)
        return y if slots else backend.gather_rows(y, state, sot=True)

    def values(rng: np.random.Generator) -> Values:
        rows = decoder_rows(rng, batch, capacity, length, slots)
        if slots:
            rows["length"] = length
        else:
            rows["done"] = 0  # gather_rows of them would be undefined
        rows["sot"] = np.minimum(rows["sot"], rows["length"] - 1)
        made: Values = {
            "qkv": noise(rng, batch * length, 3 * heads * width, spike=3.0),
            "keys": noise(rng, *shape),
            "values": noise(rng, *shape),
            "rows": rows,
            "tokens": np.zeros((shape[0], capacity), np.uint32),
        }
        if beams:
            rows["position"] = np.repeat(
                rows["position"][::beams], beams
            )  # beams of a group are at one position
            made["indirection"] = random_cache_indirection(rng, rows, beams, (shape[0], capacity))
        return made

    name = f"causal_attention {batch} sequences of {length}, {capacity} keys, {heads}x{width}"
    name += f", {spare} spare" * (spare > 0) + f", beams of {beams}" * (beams > 0)
    name += f", {slots} slots" * (slots > 0)
    return Case(name, values, call, row_mask="rows" * (slots > 0))


def rope_attention_case(
    batch: int,
    length: int,
    heads: tuple[int, int],
    width: int,
    capacity: int,
    window: int | None = None,
    **options: bool,
) -> Case:
    """Causal attention with rope after cached keys; heads: of queries, and of keys.

    With norms where there is no window. inner: as in the op. ragged: passes are of any length, and
    the last row that counts is compared. half: the cache is float16, where a last bit is 1/2048 of
    a value.
    """
    inner, ragged, half = (options.get(key, False) for key in ("inner", "ragged", "half"))
    positions, dtype = (
        capacity if window is None else 3 * capacity,
        np.float16 if half else np.float32,
    )
    frequency = 100.0 ** (-np.arange(width // 2) / (width // 2))
    angles = np.outer(np.arange(positions), frequency)

    def values(rng: np.random.Generator) -> Values:
        rows = talker_rows(rng, batch, positions, length)
        if inner:
            rows["group"] = rng.integers(length - 1, capacity, batch)
        elif not ragged:
            rows["length"] = length
        return {
            "qkv": noise(rng, batch * length, (heads[0] + 2 * heads[1]) * width, spike=4.0),
            "keys": noise(rng, batch + SPARE_SLOTS, capacity, heads[1] * width, spike=2.0).astype(
                dtype
            ),
            "values": noise(rng, batch + SPARE_SLOTS, capacity, heads[1] * width).astype(dtype),
            "rows": rows,
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        cache, rope = ops.KVCache(x["keys"], x["values"]), ops.RopeTable(w["cos"], w["sin"])
        y = backend.causal_attention(
            x["qkv"], cache, talker_state(x), heads[0], rope=rope, norms=w["norms"], window=window,
            within_frame=inner,
        )  # fmt: skip
        return backend.gather_rows(y, talker_state(x)) if ragged else y

    def weights(rng: np.random.Generator) -> Values:
        gains = rng.uniform(0.5, 2, (2, width)).astype(np.float32)
        return {
            "cos": np.cos(angles).astype(np.float32),
            "sin": np.sin(angles).astype(np.float32),
            "norms": ops.QKNorm(gains[0], gains[1], 1e-5) if window is None else None,
        }

    name = (
        f"causal_attention with rope {batch} sequences of {length} rows, "
        f"{heads[0]} heads on {heads[1]} of {width}"
    )
    name += f", {capacity} positions" + ", inner" * inner
    name += f", window {window}" * (window is not None) + ", ragged" * ragged
    name += ", float16" * half
    limit = 1e-3 if half else 2e-5
    return Case(name, values, call, weights, limit=limit, row_mask="rows")


def relative_positions_case(count: int, width: int) -> Case:
    """Distances in both directions."""
    return Case(
        f"relative_positions {count} of {width}",
        lambda rng: {},
        lambda backend, x, w: backend.relative_positions(count, width),
    )


def rel_pos_attention_case(
    batch: int,
    rows: int,
    heads: int,
    width: int,
    band: tuple[int, int] | None = None,
    spare: int = 0,
) -> Case:
    """Attention with relative positions, from a table with `spare` unused distances."""
    frames_per_row = 8
    count = (rows if band is None else max(band) + 1) + spare

    def values(rng: np.random.Generator) -> Values:
        return {
            "qkv": noise(rng, batch * rows, 3 * heads * width, spike=4.0),
            "positions": noise(rng, 2 * count - 1, heads * width, spike=4.0),
            "u": noise(rng, heads * width),
            "v": noise(rng, heads * width),
            "frames": random_lengths(rng, batch, frames_per_row * rows),
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        lengths = ops.SeqLengths(x["frames"], frames_per_row)
        return backend.rel_pos_attention(
            x["qkv"], x["positions"], x["u"], x["v"], lengths, heads, band
        )

    name = f"rel_pos_attention {batch} of {rows} rows, {heads}x{width}"
    name += f", band {band}" * (band is not None) + f", {spare} spare" * (spare > 0)
    return Case(name, values, call)


def projected_rel_pos_case(
    batch: int, rows: int, heads: int, width: int, band: tuple[int, int] | None = None
) -> Case:
    """Attention with relative positions after a product that matrix units may take."""
    return projected(rel_pos_attention_case(batch, rows, heads, width, band), heads * width)


CASES: tuple[Case, ...] = (
    attention_case(1, 1, 4),
    attention_case(20, 2, 16),
    attention_case(64, 1, 64),
    attention_case(150, 5, 8),
    attention_case(257, 2, 64),
    attention_case(65, 1, 128),
    attention_case(70, 2, 16, batch=3),
    attention_case(33, 1, 128, batch=2),
    projected_attention_case(150, 2, 64),
    projected_attention_case(257, 3, 32),
    projected_attention_case(70, 1, 48),
    projected_attention_case(130, 5, 16),
    projected_attention_case(65, 1, 128),
    projected_attention_case(50, 2, 48, batch=3),
    projected_attention_case(70, 12, 16, batch=8),
    cross_attention_case(1, 1, 1, 20, 2, 16),
    cross_attention_case(1, 1, 1, 1500, 2, 64),
    cross_attention_case(4, 1, 3, 129, 5, 8),
    cross_attention_case(3, 7, 2, 150, 1, 48),
    cross_attention_case(1, 4, 2, 128, 1, 128),
    cross_attention_case(10, 1, 2, 257, 2, 20),
    cross_attention_case(1, 1, 1, 1500, 2, 64, half=True),
    cross_attention_case(5, 2, 3, 257, 2, 20, half=True),
    cross_attention_weights_case(1, 9, 1500, 6, (5, 0, 2)),
    cross_attention_weights_case(4, 3, 70, 2, (1,)),
    cross_attention_weights_case(4, 3, 70, 2, (1,), half=True),
    causal_attention_case(1, 1, 448, 6, 64),
    causal_attention_case(5, 1, 40, 2, 20),
    causal_attention_case(1, 4, 32, 2, 16),
    causal_attention_case(3, 16, 96, 5, 8),
    causal_attention_case(3, 4, 24, 2, 16, spare=9),
    causal_attention_case(4, 1, 24, 2, 16, spare=5),
    causal_attention_case(5, 1, 448, 2, 64, beams=5),
    causal_attention_case(12, 1, 40, 2, 20, spare=3, beams=4),
    causal_attention_case(4, 1, 40, 2, 20, slots=9),
    causal_attention_case(9, 1, 24, 3, 8, spare=2, slots=5),
    causal_attention_case(5, 3, 24, 2, 16, slots=8),
    causal_attention_case(8, 1, 40, 2, 20, beams=4, slots=11),
    rope_attention_case(1, 1, (4, 2), 128, 200),
    rope_attention_case(3, 1, (6, 2), 16, 150),
    rope_attention_case(3, 1, (4, 1), 32, 1100),
    rope_attention_case(1, 1, (2, 1), 128, 2300),
    rope_attention_case(3, 1, (4, 4), 8, 40),
    rope_attention_case(1, 2, (16, 8), 128, 16, inner=True),
    rope_attention_case(3, 1, (4, 2), 20, 16, inner=True),
    rope_attention_case(3, 70, (4, 2), 32, 260),
    rope_attention_case(3, 5, (6, 2), 128, 140, ragged=True),
    rope_attention_case(3, 1, (2, 2), 64, 21, window=20),
    rope_attention_case(1, 16, (4, 4), 64, 93, window=72),
    rope_attention_case(3, 4, (2, 1), 12, 12, window=9),
    rope_attention_case(16, 1, (4, 2), 32, 300),
    rope_attention_case(16, 2, (4, 2), 32, 8, inner=True),
    rope_attention_case(3, 1, (4, 2), 32, 150, half=True),
    rope_attention_case(3, 1, (4, 1), 128, 1100, half=True),
    rope_attention_case(3, 5, (6, 2), 20, 140, ragged=True, half=True),
    relative_positions_case(1, 4),
    relative_positions_case(300, 32),
    relative_positions_case(40000, 8),
    rel_pos_attention_case(1, 1, 1, 4),
    rel_pos_attention_case(3, 40, 3, 12, spare=9),
    rel_pos_attention_case(1, 150, 2, 64, spare=1),
    rel_pos_attention_case(2, 65, 1, 128),
    rel_pos_attention_case(1, 40, 1, 144),
    rel_pos_attention_case(2, 100, 2, 8, band=(5, 5)),
    rel_pos_attention_case(1, 300, 1, 20, band=(70, 33), spare=4),
    rel_pos_attention_case(1, 90, 2, 8, band=(40, 0)),
    rel_pos_attention_case(1, 70, 1, 8, band=(0, 200)),
    projected_rel_pos_case(1, 150, 2, 64),
    projected_rel_pos_case(3, 70, 1, 128),
    projected_rel_pos_case(1, 300, 1, 64, band=(70, 33)),
    projected_rel_pos_case(12, 70, 4, 64),
)
