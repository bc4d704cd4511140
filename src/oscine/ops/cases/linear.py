"""Cases of linear layers and norms: ragged sizes, spiked inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine import ops
from oscine.ops.cases import Case, Values, noise, to_dtype
from oscine.quantized import BLOCK_DTYPES


def random_norm(rng: np.random.Generator, width: int, kind: Any) -> Any:
    """A norm by its name: layer, rms, or one of these with a large epsilon."""
    name, _, eps = str(kind).partition(" ")
    options = {"eps": float(eps)} if eps else {}
    gain = 1 + noise(rng, width) / 8
    if name == "rms":
        return ops.RmsNorm(gain, **options)
    return ops.LayerNorm(gain, noise(rng, width) / 8, **options)


def linear_case(rows: int, inputs: int, outputs: int, half: bool | str, **options: Any) -> Case:
    """activation(norm(x) Wᵀ + b) + add; norm: true, or what random_norm takes."""
    kind = half if isinstance(half, str) else "float16" if half else "float32"

    def weights(rng: np.random.Generator) -> Values:
        matrix = rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)
        if options.get("tiny"):  # the scales of blocks are subnormal float16
            matrix[:, : inputs // 2] *= 1e-4
        bias = noise(rng, outputs) if options.get("bias", True) else None
        norm = random_norm(rng, inputs, options.get("norm"))
        return {"linear": ops.Linear(to_dtype(matrix.astype(np.float32), kind), bias), "norm": norm}

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


def swiglu_linear_case(rows: int, inputs: int, width: int, kind: str, norm: str = "") -> Case:
    """silu(g) · u."""

    def weights(rng: np.random.Generator) -> Values:
        matrix = noise(rng, 2 * width, inputs) / np.float32(np.sqrt(inputs))
        return {
            "linear": ops.Linear(to_dtype(matrix, kind), None),
            "norm": random_norm(rng, inputs, norm) if norm else None,
        }

    return Case(
        f"swiglu_linear {rows}x{inputs}x{width} {kind} {norm}".strip(),
        lambda rng: {"x": noise(rng, rows, inputs, spike=4.0)},
        lambda backend, x, w: backend.swiglu_linear(x["x"], w["linear"], norm=w["norm"]),
        weights,
    )


def norm_case(rows: int, width: int, kind: str = "layer") -> Case:
    """Layer or root-mean-square normalisation."""

    def call(backend: Any, x: Values, w: Values) -> Any:
        if isinstance(w["norm"], ops.RmsNorm):
            return backend.rms_norm(x["x"], w["norm"])
        return backend.layer_norm(x["x"], w["norm"])

    return Case(
        f"{kind.partition(' ')[0]}_norm {rows}x{width} {kind.partition(' ')[2]}".strip(),
        lambda rng: {"x": noise(rng, rows, width, spike=100.0)},
        call,
        lambda rng: {"norm": random_norm(rng, width, kind)},
    )


#: Weights in blocks, in every product: an odd number of blocks, rows that begin within a word of
#: scales, and for matrix units whole tiles and a ragged end.
QUANTIZED_CASES: tuple[Case, ...] = tuple(
    case
    for kind in BLOCK_DTYPES
    for case in (
        linear_case(1, 96, 71, kind, norm=True, activation="gelu"),
        linear_case(1, 1280, 130, kind, add=True, bias=False),
        linear_case(3, 160, 133, kind, activation="silu", tiny=True),
        linear_case(4, 96, 70, kind, norm="rms 0.4", add=True),
        linear_case(16, 288, 133, kind, norm=True, add=True),
        linear_case(37, 96, 300, kind, norm="rms", bias=False),
        linear_case(90, 96, 65, kind, activation="gelu", add=True),
        linear_case(200, 160, 132, kind, norm=True),
        linear_case(1270, 64, 1288, kind, bias=False, add=True),
        linear_case(70, 2048, 132, kind, activation="gelu", add=True),
        linear_case(1, 64, 70001, kind, norm=True),
        swiglu_linear_case(1, 96, 65, kind, "rms"),
        swiglu_linear_case(37, 96, 68, kind, "rms 0.4"),
    )
)

CASES: tuple[Case, ...] = (
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
    swiglu_linear_case(1, 80, 112, "bfloat16", "rms"),
    swiglu_linear_case(1, 1280, 333, "bfloat16", "rms 0.4"),
    swiglu_linear_case(1, 44, 30, "bfloat16"),
    swiglu_linear_case(1, 96, 65, "float32", "rms"),
    swiglu_linear_case(2, 96, 70, "bfloat16", "rms"),
    swiglu_linear_case(3, 72, 33, "float16"),
    swiglu_linear_case(4, 104, 37, "bfloat16", "layer"),
    swiglu_linear_case(37, 96, 68, "bfloat16", "rms 0.4"),
    *(
        linear_case(rows, 96, 70, "bfloat16", norm="rms", bias=False, add=True)
        for rows in (8, 16, 32, 64)
    ),
    *(swiglu_linear_case(rows, 96, 68, "bfloat16", "rms") for rows in (8, 16, 32, 64)),
    swiglu_linear_case(200, 80, 112, "bfloat16", "rms"),
    *QUANTIZED_CASES,
    linear_case(1, 40, 130, False, norm=True, activation="silu"),
    linear_case(9, 64, 36, True, activation="relu", add=True),
    linear_case(70, 36, 132, False, activation="silu", bias=False),
)
