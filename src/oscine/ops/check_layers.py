"""Cases of the ops that compute: ragged sizes, spiked inputs, lines that are done."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine import ops
from oscine.bfloat16 import BFLOAT16
from oscine.ops.check_cases import Array, Case, Values, noise, origins, state_rows


def stored(matrix: Array, kind: str) -> Array:
    """A matrix as a checkpoint has it: float32, float16 or bfloat16, which is cut, not rounded."""
    if kind == "bfloat16":
        return (matrix.view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)
    return matrix.astype(kind)


def norm_of(rng: np.random.Generator, width: int, kind: Any) -> Any:
    """A norm by its name: layer, rms, or one of these with an epsilon that counts."""
    name, _, eps = str(kind).partition(" ")
    options = {"eps": float(eps)} if eps else {}
    gain = 1 + noise(rng, width) / 8
    if name == "rms":
        return ops.RmsNorm(gain, **options)
    return ops.Norm(gain, noise(rng, width) / 8, **options)


def linear_case(rows: int, inputs: int, outputs: int, half: bool | str, **options: Any) -> Case:
    """activation(norm(x) Wᵀ + b) + add; norm: true, or what norm_of takes."""
    kind = half if isinstance(half, str) else "float16" if half else "float32"

    def weights(rng: np.random.Generator) -> Values:
        matrix = rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)
        bias = noise(rng, outputs) if options.get("bias", True) else None
        norm = norm_of(rng, inputs, options.get("norm"))
        return {"linear": ops.Linear(stored(matrix.astype(np.float32), kind), bias), "norm": norm}

    def call(backend: Any, x: Values, w: Values) -> Any:
        return backend.linear(
            x["x"],
            w["linear"],
            norm=w["norm"] if options.get("norm") else None,
            activation=options.get("activation"),
            add=x["add"] if options.get("add") else None,
        )

    def values(rng: np.random.Generator) -> Values:
        return {"x": noise(rng, rows, inputs, spike=30.0), "add": noise(rng, rows, outputs)}

    words = " ".join(
        key if options[key] is True or key in ("activation", "bias") else f"{key} {options[key]}"
        for key in sorted(options)
    )
    return Case(f"linear {rows}x{inputs}x{outputs} {kind} {words}".strip(), values, call, weights)


def gated_case(rows: int, inputs: int, width: int, kind: str, norm: str = "") -> Case:
    """silu(g) · u."""

    def weights(rng: np.random.Generator) -> Values:
        matrix = noise(rng, 2 * width, inputs) / np.float32(np.sqrt(inputs))
        return {
            "linear": ops.Linear(stored(matrix, kind), None),
            "norm": norm_of(rng, inputs, norm) if norm else None,
        }

    return Case(
        f"gated_linear {rows}x{inputs}x{width} {kind} {norm}".strip(),
        lambda rng: {"x": noise(rng, rows, inputs, spike=4.0)},
        lambda backend, x, w: backend.gated_linear(x["x"], w["linear"], norm=w["norm"]),
        weights,
    )


def of_windows(batch: int) -> str:
    """What a batch adds to a case's name."""
    return f", {batch} windows" * (batch > 1)


def conv_case(
    frames: int, inputs: int, outputs: int, stride: int, half: bool, batch: int = 1
) -> Case:
    """gelu(conv1d(x)) + add, of windows that are padded and added to alike."""
    kind = np.float16 if half else np.float32
    name = f"conv1d {frames}x{inputs}->{outputs} stride {stride} {np.dtype(kind).name}"
    return Case(
        name + of_windows(batch),
        lambda rng: {
            "x": noise(rng, batch * frames, inputs),
            "add": noise(rng, -(-frames // stride), outputs),
        },
        lambda backend, x, w: backend.conv1d(
            x["x"], w["conv"], stride=stride, activation="gelu", add=x["add"], batch=batch
        ),
        lambda rng: {
            "conv": ops.Linear(
                (noise(rng, outputs, 3, inputs) / 9).astype(kind), noise(rng, outputs)
            )
        },
    )


def norm_case(rows: int, width: int, kind: str = "layer") -> Case:
    """Layer normalisation, or by the root mean square."""

    def call(backend: Any, x: Values, w: Values) -> Any:
        if isinstance(w["norm"], ops.RmsNorm):
            return backend.rms_norm(x["x"], w["norm"])
        return backend.layer_norm(x["x"], w["norm"])

    return Case(
        f"{kind.partition(' ')[0]}_norm {rows}x{width} {kind.partition(' ')[2]}".strip(),
        lambda rng: {"x": noise(rng, rows, width, spike=100.0)},
        call,
        lambda rng: {"norm": norm_of(rng, width, kind)},
    )


def attention_case(length: int, heads: int, width: int, batch: int = 1) -> Case:
    """The encoder's attention; each window of a batch attends to itself."""
    return Case(
        f"attention {length} rows, {heads}x{width}" + of_windows(batch),
        lambda rng: {"qkv": noise(rng, batch * length, 3 * heads * width, spike=4.0)},
        lambda backend, x, w: backend.attention(x["qkv"], heads, batch),
    )


def projected_case(length: int, heads: int, width: int, batch: int = 1) -> Case:
    """The encoder's attention to a product of float16 weights, which matrix units may take."""
    inputs = heads * width
    return Case(
        f"projected attention {length} rows, {heads}x{width}" + of_windows(batch),
        lambda rng: {"x": noise(rng, batch * length, inputs, spike=4.0)},
        lambda backend, x, w: backend.attention(backend.linear(x["x"], w["qkv"]), heads, batch),
        lambda rng: {
            "qkv": ops.Linear(
                (noise(rng, 3 * inputs, inputs) / np.sqrt(inputs)).astype(np.float16), None
            )
        },
    )


def window_rows(rng: np.random.Generator, lines: int, length: int, windows: int, keys: int) -> Any:
    """Lines that listen to windows in any order, some to the same, with less sound or more."""
    rows = state_rows(rng, lines, length, length)
    rows["window"] = rng.permutation(np.arange(lines) % windows)
    rows["frames"] = rng.integers(0, keys + 1, lines)
    return rows


def cross_case(
    lines: int, length: int, windows: int, keys: int, heads: int, width: int, half: bool = False
) -> Case:
    """The decoder's attention to the audio; lines that are done are void."""
    kind = np.float16 if half else np.float32

    def values(rng: np.random.Generator) -> Values:
        return {
            "q": noise(rng, lines * length, heads * width, spike=3.0),
            "kv": noise(rng, windows, keys, 2 * heads * width, spike=3.0).astype(kind),
            "rows": window_rows(rng, lines, length, windows, keys),
            "tokens": np.zeros((lines, length), np.uint32),
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        state = ops.State(x["rows"], x["tokens"])
        return backend.attend_cross(x["q"], x["kv"], state, heads)

    size = f"{lines} lines of {length}, {windows} windows of {keys} keys, {heads}x{width}"
    size += " float16" * half
    return Case(f"attend_cross {size}", values, call, lines="rows")


def weights_case(
    lines: int, length: int, keys: int, heads: int, chosen: tuple[int, ...], half: bool = False
) -> Case:
    """The weights of some heads, of done lines too."""
    whole = cross_case(lines, length, 2, keys, heads, 16, half)

    def call(backend: Any, x: Values, w: Values) -> Any:
        state = ops.State(x["rows"], x["tokens"])
        return backend.cross_weights(x["q"], x["kv"], state, heads, chosen)

    name = f"cross_weights {lines} lines of {length}, {keys} keys, heads {chosen} of {heads}"
    return Case(name + " float16" * half, whole.inputs, call)


def pack_case(rows: int, width: int) -> Case:
    """What a float16 slot keeps; of two neighbours, hardware may take either."""
    return Case(
        f"keep {rows}x{width} float16",
        lambda rng: {
            "x": noise(rng, rows, width, spike=100.0),
            "slot": np.zeros((rows, width), np.float16),
        },
        lambda backend, x, w: backend.keep(backend.linear(x["x"], w["linear"]), x["slot"]),
        lambda rng: {"linear": ops.Linear(np.eye(width, dtype=np.float32), None)},
        compare=("slot",),
        limit=1e-3,
    )


def self_case(
    lines: int,
    length: int,
    room: int,
    heads: int,
    width: int,
    spare: int = 0,
    beams: int = 0,
    slots: int = 0,
) -> Case:
    """The decoder's attention to itself; appends to caches that hold noise.

    spare: room of a cache's slot beyond the positions. beams: lines of a group, whose keys are in
    each other's slots; 0: no origins. slots: of the cache, where lines that are done are among the
    others; 0: a slot a line, and none is done.
    """
    shape = (slots or lines, room + spare, heads * width)

    def call(backend: Any, x: Values, w: Values) -> Any:
        cache = ops.Cache(x["keys"], x["values"])
        state = ops.State(x["rows"], x["tokens"], x.get("origins"))
        y = backend.attend_self(x["qkv"], cache, state, heads)
        return y if slots else backend.take_rows(y, state)

    def values(rng: np.random.Generator) -> Values:
        rows = state_rows(rng, lines, room, length, slots)
        if slots:
            rows["length"] = length
        else:
            rows["done"] = 0  # what take_rows has of them would be void
        rows["sot"] = np.minimum(rows["sot"], rows["length"] - 1)
        made: Values = {
            "qkv": noise(rng, lines * length, 3 * heads * width, spike=3.0),
            "keys": noise(rng, *shape),
            "values": noise(rng, *shape),
            "rows": rows,
            "tokens": np.zeros((shape[0], room), np.uint32),
        }
        if beams:
            rows["position"] = np.repeat(rows["position"][::beams], beams)  # beams keep step
            made["origins"] = origins(rng, rows, beams, (shape[0], room))
        return made

    name = f"attend_self {lines} lines of {length}, {room} keys, {heads}x{width}"
    name += f", {spare} spare" * (spare > 0) + f", beams of {beams}" * (beams > 0)
    name += f", {slots} slots" * (slots > 0)
    return Case(name, values, call, compare=("keys", "values"), lines="rows" * (slots > 0))


def embed_case(lines: int, length: int, vocabulary: int, width: int, half: bool) -> Case:
    """Token plus position; prompts and single tokens."""
    kind = np.float16 if half else np.float32
    room = length + 5

    def values(rng: np.random.Generator) -> Values:
        rows = state_rows(rng, lines, room, length)
        rows["done"], rows["length"] = 0, length
        rows["token"] = rng.integers(0, vocabulary, lines)
        prompt = rng.integers(0, vocabulary, (lines, length)).astype(np.uint32)
        return {"rows": rows, "tokens": np.zeros((lines, room), np.uint32), "prompt": prompt}

    def call(backend: Any, x: Values, w: Values) -> Any:
        state = ops.State(x["rows"], x["tokens"])
        prompt = x["prompt"] if length > 1 else None
        return backend.embed(w["table"], w["positions"], state, prompt)

    return Case(
        f"embed {lines} lines of {length}, {vocabulary}x{width} {np.dtype(kind).name}",
        values,
        call,
        lambda rng: {
            "table": noise(rng, vocabulary, width).astype(kind),
            "positions": noise(rng, room, width),
        },
    )


CASES = (
    *(norm_case(rows, width) for rows, width in ((1, 4), (3, 384), (65, 40), (129, 1280))),
    linear_case(1, 384, 1536, False, norm=True, activation="gelu"),
    linear_case(1, 384, 1153, True, norm=True, bias=False),
    linear_case(1, 1280, 1280, True, add=True),
    linear_case(2, 40, 517, False, norm=True),
    linear_case(4, 48, 7, True, norm=True, add=True, activation="gelu"),
    linear_case(5, 40, 130, False, norm=True),
    linear_case(16, 32, 1830, True, norm=True),
    linear_case(64, 36, 128, True, add=True),
    linear_case(8, 520, 37, False, activation="gelu", add=True),
    linear_case(13, 384, 1030, True, norm=True, activation="gelu", bias=False),
    linear_case(16, 2052, 133, True, add=True),
    linear_case(17, 260, 2310, False, norm=True, add=True),
    linear_case(40, 72, 8195, True, norm=True),
    linear_case(64, 4, 3, False, norm=True),
    linear_case(65, 256, 129, False, activation="gelu", add=True),
    linear_case(200, 100, 300, True, activation="gelu", norm=True),
    linear_case(150, 264, 200, True, activation="gelu", norm=True, add=True),
    linear_case(70, 2056, 130, True, activation="gelu", add=True),
    linear_case(1270, 40, 1290, True, bias=False, add=True),
    linear_case(1, 64, 70000, True, norm=True),
    norm_case(3, 384, "layer 0.4"),
    norm_case(1, 1280, "rms"),
    norm_case(70, 44, "rms 0.4"),
    linear_case(1, 80, 112, "bfloat16", norm="rms", bias=False),
    linear_case(1, 1280, 517, "bfloat16", norm="rms 0.4", add=True, bias=False),
    linear_case(1, 1280, 130, "bfloat16", add=True, bias=False),
    linear_case(1, 84, 33, "bfloat16", activation="silu"),
    linear_case(1, 96, 70, False, norm="rms", activation="elu"),
    linear_case(1, 64, 140000, "bfloat16", norm="rms"),
    linear_case(1, 84, 37, "bfloat16", norm=True),
    linear_case(1, 96, 70, True, norm="layer 0.4", activation="tanh"),
    linear_case(2, 96, 129, "bfloat16", norm="rms", add=True),
    linear_case(3, 100, 64, True, norm="rms", activation="sigmoid"),
    linear_case(4, 264, 77, "bfloat16", norm="rms 0.4"),
    linear_case(3, 40, 70, "bfloat16", norm="layer 0.4"),
    linear_case(7, 96, 70, "bfloat16", norm="rms", add=True, activation="silu"),
    linear_case(37, 264, 300, "bfloat16", norm="rms 0.4", bias=False),
    linear_case(37, 84, 130, False, norm="layer 0.4"),
    linear_case(20, 40, 8200, "bfloat16", norm="rms"),
    linear_case(200, 136, 150, "bfloat16", norm="rms", add=True, activation="gelu"),
    linear_case(70, 1028, 130, "bfloat16", add=True),
    linear_case(90, 64, 66, True, norm="rms", activation="elu"),
    gated_case(1, 80, 112, "bfloat16", "rms"),
    gated_case(1, 1280, 333, "bfloat16", "rms 0.4"),
    gated_case(1, 44, 30, "bfloat16"),
    gated_case(1, 96, 65, "float32", "rms"),
    gated_case(2, 96, 70, "bfloat16", "rms"),
    gated_case(3, 72, 33, "float16"),
    gated_case(4, 104, 37, "bfloat16", "layer"),
    gated_case(37, 96, 68, "bfloat16", "rms 0.4"),
    *(
        linear_case(rows, 96, 70, "bfloat16", norm="rms", bias=False, add=True)
        for rows in (8, 16, 32, 64)
    ),
    *(gated_case(rows, 96, 68, "bfloat16", "rms") for rows in (8, 16, 32, 64)),
    gated_case(200, 80, 112, "bfloat16", "rms"),
    conv_case(40, 80, 32, 1, False),
    conv_case(41, 128, 40, 1, True),
    conv_case(40, 32, 33, 2, True),
    conv_case(300, 80, 72, 1, True),
    conv_case(301, 72, 200, 2, True),
    conv_case(130, 48, 48, 2, False),
    conv_case(41, 32, 40, 1, False, batch=3),
    conv_case(45, 72, 70, 2, True, batch=3),
    conv_case(67, 344, 33, 2, False, batch=2),
    attention_case(1, 1, 4),
    attention_case(20, 2, 16),
    attention_case(64, 1, 64),
    attention_case(150, 5, 8),
    attention_case(257, 2, 64),
    attention_case(65, 1, 128),
    attention_case(70, 2, 16, batch=3),
    attention_case(33, 1, 128, batch=2),
    projected_case(150, 2, 64),
    projected_case(257, 3, 32),
    projected_case(70, 1, 48),
    projected_case(130, 5, 16),
    projected_case(65, 1, 128),
    projected_case(50, 2, 48, batch=3),
    cross_case(1, 1, 1, 20, 2, 16),
    cross_case(1, 1, 1, 1500, 2, 64),
    cross_case(4, 1, 3, 129, 5, 8),
    cross_case(3, 7, 2, 150, 1, 48),
    cross_case(1, 4, 2, 128, 1, 128),
    cross_case(10, 1, 2, 257, 2, 20),
    cross_case(1, 1, 1, 1500, 2, 64, half=True),
    cross_case(5, 2, 3, 257, 2, 20, half=True),
    weights_case(1, 9, 1500, 6, (5, 0, 2)),
    weights_case(4, 3, 70, 2, (1,)),
    weights_case(4, 3, 70, 2, (1,), half=True),
    pack_case(5, 36),
    pack_case(70, 516),
    self_case(1, 1, 448, 6, 64),
    self_case(5, 1, 40, 2, 20),
    self_case(1, 4, 32, 2, 16),
    self_case(3, 16, 96, 5, 8),
    self_case(3, 4, 24, 2, 16, spare=9),
    self_case(4, 1, 24, 2, 16, spare=5),
    self_case(5, 1, 448, 2, 64, beams=5),
    self_case(12, 1, 40, 2, 20, spare=3, beams=4),
    self_case(4, 1, 40, 2, 20, slots=9),
    self_case(9, 1, 24, 3, 8, spare=2, slots=5),
    self_case(5, 3, 24, 2, 16, slots=8),
    self_case(8, 1, 40, 2, 20, beams=4, slots=11),
    embed_case(1, 1, 517, 32, False),
    embed_case(5, 1, 1830, 40, True),
    embed_case(2, 7, 300, 384, True),
)
