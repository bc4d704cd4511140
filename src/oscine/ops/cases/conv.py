"""Cases of convolutions: paddings, strides, memories longer and shorter than x, padded frames."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine import ops
from oscine.ops.cases import Case, Values, batch_suffix, noise, random_lengths

ConvParams = ops.ConvParams


def conv1d_windows_case(
    frames: int, inputs: int, outputs: int, stride: int, half: bool, batch: int = 1
) -> Case:
    """gelu(conv1d(x)) + add, of windows with the same padding and the same add."""
    dtype = np.float16 if half else np.float32
    name = f"conv1d {frames}x{inputs}->{outputs} stride {stride} {np.dtype(dtype).name}"
    return Case(
        name + batch_suffix(batch),
        lambda rng: {
            "x": noise(rng, batch * frames, inputs),
            "add": noise(rng, -(-frames // stride), outputs),
        },
        lambda backend, x, w: backend.conv1d(
            x["x"],
            w["conv"],
            ConvParams.same(3, stride),
            activation="gelu",
            add=x["add"],
            batch=batch,
        ),
        lambda rng: {
            "conv": ops.Linear(
                (noise(rng, outputs, 3, inputs) / 9).astype(dtype), noise(rng, outputs)
            )
        },
    )


def stream_rows(rng: np.random.Generator, count: int) -> Any:
    """Talker rows in random slots: one may be at its start, and of three or more one is done."""
    state = np.zeros(count, ops.TALKER_STATE)
    state["slot"] = rng.permutation(count + 2)[:count]
    state["position"] = rng.integers(1, 9, count)
    state["position"][rng.integers(0, count)] = rng.integers(0, 2)
    if count > 2:
        state["done"][rng.integers(0, count)] = 1
    return state


def conv1d_case(
    counts: int | tuple[int, int],
    shape: tuple[int, int, int],
    params: ops.ConvParams,
    *,
    memory: bool = False,
    activation: ops.Activation = None,
    add: bool = False,
    bias: bool = True,
    half: bool = False,
) -> Case:
    """A convolution of some rows, or of several streams with some rows each; shape is the weight's,
    [O, K, I]."""
    outputs, width, inputs = shape
    batch, count = counts if isinstance(counts, tuple) else (1, counts)
    rows = batch * params.rows(count, width)

    def weights(rng: np.random.Generator) -> Values:
        weight = noise(rng, *shape) / np.float32((width * inputs) ** 0.5)
        if width == 1:
            weight = weight[:, 0]
        if half:
            weight = weight.astype(np.float16)
        return {"conv": ops.Linear(weight, noise(rng, outputs) if bias else None)}

    def values(rng: np.random.Generator) -> Values:
        x = {"x": noise(rng, batch * count, inputs, spike=4.0)}
        if memory:
            x["memory"] = noise(rng, batch + 2, params.left, inputs, spike=4.0)
        if memory or batch > 1:
            x["state"] = stream_rows(rng, batch)
        if add:
            x["add"] = noise(rng, rows, outputs)
        return x

    def call(backend: Any, x: Values, w: Values) -> Any:
        return backend.conv1d(
            x["x"], w["conv"], params, memory=x.get("memory"), state=x.get("state"),
            activation=activation, add=x.get("add"),
        )  # fmt: skip

    layout = f"{params.left}+{params.right} {params.padding}, stride {params.stride}"
    layout += f", every {params.dilation}"
    times = f"{batch} times " * (batch > 1)
    name = f"conv1d {times}{count} rows, {outputs}x{width}x{inputs}, {layout}"
    name += ", memory" * memory + ", add" * add + f", {activation}" * (activation is not None)
    name += ", no bias" * (not bias) + ", float16" * half
    return Case(name, values, call, weights)


def depthwise_case(count: int, width: int, taps: int, bias: bool = True, batch: int = 1) -> Case:
    """A depthwise convolution with a memory."""

    def values(rng: np.random.Generator) -> Values:
        return {
            "x": noise(rng, batch * count, width, spike=4.0),
            "memory": noise(rng, batch + 2, taps - 1, width, spike=4.0),
            "state": stream_rows(rng, batch),
        }

    return Case(
        f"depthwise {batch} times {count}x{width}, {taps} taps" + ", no bias" * (not bias),
        values,
        lambda backend, x, w: backend.depthwise(x["x"], w["conv"], x["memory"], x["state"]),
        lambda rng: {
            "conv": ops.Linear(noise(rng, taps, width) / 3, noise(rng, width) if bias else None)
        },
    )


def conv_subsampling_case(batch: int, n: int, mels: int, channels: int, layers: int = 2) -> Case:
    """The encoder's subsampling; frames past the lengths hold noise."""

    def weights(rng: np.random.Generator) -> Values:
        def image() -> ops.Linear:
            return ops.Linear(noise(rng, 3, 3, channels) / 3, noise(rng, channels))

        def point() -> ops.Linear:
            matrix = noise(rng, channels, channels) / np.float32(channels**0.5)
            return ops.Linear(matrix, noise(rng, channels))

        return {"first": image(), "layers": tuple((image(), point()) for _ in range(layers))}

    def call(backend: Any, x: Values, w: Values) -> Any:
        lengths = ops.SeqLengths(x["frames"])
        return backend.conv_subsampling(x["mel"], lengths, w["first"], w["layers"])

    return Case(
        f"conv_subsampling {batch} of {n}x{mels} by {2 << layers}, {channels} channels",
        lambda rng: {
            "mel": noise(rng, batch * n, mels, spike=5.0),
            "frames": random_lengths(rng, batch, n),
        },
        call,
        weights,
    )


def conformer_conv_case(batch: int, rows: int, width: int, taps: int, biased: bool = True) -> Case:
    """GLU, depthwise convolution and SiLU; gates that overflow an exponential."""

    def values(rng: np.random.Generator) -> Values:
        x = noise(rng, batch * rows, 2 * width, spike=3.0)
        x[0, width:] = -200
        return {"x": x, "frames": random_lengths(rng, batch, rows)}

    def call(backend: Any, x: Values, w: Values) -> Any:
        return backend.conformer_conv(x["x"], w["conv"], ops.SeqLengths(x["frames"]))

    return Case(
        f"conformer_conv {batch} of {rows}x{width}, {taps} taps" + ", no bias" * (not biased),
        values,
        call,
        lambda rng: {
            "conv": ops.Linear(noise(rng, taps, width) / 3, noise(rng, width) if biased else None)
        },
    )


CASES: tuple[Case, ...] = (
    conv1d_windows_case(40, 80, 32, 1, False),
    conv1d_windows_case(41, 128, 40, 1, True),
    conv1d_windows_case(40, 32, 33, 2, True),
    conv1d_windows_case(300, 80, 72, 1, True),
    conv1d_windows_case(301, 72, 200, 2, True),
    conv1d_windows_case(130, 48, 48, 2, False),
    conv1d_windows_case(41, 32, 40, 1, False, batch=3),
    conv1d_windows_case(45, 72, 70, 2, True, batch=3),
    conv1d_windows_case(67, 344, 33, 2, False, batch=2),
    # Few rows: memories longer than x, as long, shorter.
    conv1d_case(1, (4, 7, 8), ConvParams(6), memory=True, activation="elu"),
    conv1d_case(1, (33, 7, 8), ConvParams(54, dilation=9), memory=True),
    conv1d_case(
        3, (130, 7, 12), ConvParams(18, dilation=3), memory=True, add=True, activation="gelu"
    ),
    conv1d_case(6, (36, 7, 20), ConvParams(6), memory=True, half=True),
    conv1d_case(9, (36, 7, 4), ConvParams(6), memory=True, bias=False),
    conv1d_case(3, (96, 1, 600), ConvParams(0), add=True),
    conv1d_case(16, (40, 7, 512), ConvParams(6), memory=True),
    conv1d_case(40, (5, 3, 16), ConvParams(2, 0, 2), activation="tanh"),
    conv1d_case(4, (48, 2, 64), ConvParams(1), memory=True),
    # Many rows: tiles of every width, split or not.
    conv1d_case(40, (33, 7, 8), ConvParams(54, dilation=9), memory=True),
    conv1d_case(40, (132, 7, 64), ConvParams(6), memory=True, add=True, activation="sigmoid"),
    conv1d_case(40, (130, 3, 64), ConvParams(2), memory=True, add=True),
    conv1d_case(54, (36, 7, 12), ConvParams(54, dilation=9), memory=True, half=True),
    conv1d_case(700, (96, 3, 12), ConvParams(18, dilation=9), memory=True, add=True),
    conv1d_case(700, (132, 1, 36), ConvParams(0), activation="relu"),
    conv1d_case(700, (64, 7, 4), ConvParams(6), memory=True),
    conv1d_case(700, (36, 3, 20), ConvParams(1, 1, padding="reflect"), activation="relu"),
    conv1d_case(90, (33, 3, 20), ConvParams(4, 4, dilation=4, padding="reflect"), bias=False),
    conv1d_case(131, (36, 4, 12), ConvParams(2, 1, 2, padding="edge"), bias=False),
    conv1d_case(700, (64, 8, 8), ConvParams(4, 0, 4)),
    conv1d_case(203, (40, 10, 8), ConvParams(5, 2, 5), activation="elu"),
    conv1d_case(320, (40, 16, 4), ConvParams(8, 0, 8), half=True),
    conv1d_case(4, (40, 10, 8), ConvParams(5, 1, 5), memory=True),
    conv1d_case(339, (40, 10, 8), ConvParams(5, 1, 5), memory=True),
    conv1d_case(9000, (132, 1, 4), ConvParams(0)),
    # Several streams: by rows, by tiles, split or not, each with its own padding.
    conv1d_case((4, 1), (36, 7, 20), ConvParams(6), memory=True),
    conv1d_case((3, 3), (130, 7, 12), ConvParams(18, dilation=3), memory=True, add=True),
    conv1d_case((16, 2), (48, 2, 64), ConvParams(1), memory=True, activation="gelu"),
    conv1d_case((2, 40), (132, 7, 64), ConvParams(6), memory=True, add=True),
    conv1d_case((5, 33), (96, 3, 12), ConvParams(18, dilation=9), memory=True),
    conv1d_case((3, 21), (40, 10, 8), ConvParams(5, 1, 5), memory=True),
    conv1d_case((3, 30), (36, 3, 20), ConvParams(1, 1, padding="reflect")),
    conv1d_case((2, 7), (36, 4, 12), ConvParams(2, 1, 2, padding="edge")),
    conv1d_case((4, 20), (36, 1, 12), ConvParams(0, 0, 3)),
    conv1d_case((2, 50), (96, 1, 12), ConvParams(0), add=True),
    conv1d_case((4, 60), (1, 7, 96), ConvParams(6), memory=True),
    # Few outputs.
    conv1d_case(700, (1, 7, 96), ConvParams(6), memory=True),
    conv1d_case(3, (4, 3, 8), ConvParams(2, 2, padding="edge"), add=True, activation="silu"),
    conv1d_case(40, (2, 7, 40), ConvParams(18, dilation=3), memory=True, half=True),
    depthwise_case(1, 12, 7),
    depthwise_case(6, 20, 7, bias=False),
    depthwise_case(150, 64, 7),
    depthwise_case(3, 4, 70),
    depthwise_case(1, 12, 7, batch=4),
    depthwise_case(90, 20, 7, batch=3),
    conv_subsampling_case(1, 1, 20, 8),
    conv_subsampling_case(1, 203, 80, 8),
    conv_subsampling_case(3, 61, 20, 12),
    conv_subsampling_case(2, 33, 7, 4, layers=1),
    conv_subsampling_case(2, 40, 128, 4, layers=3),
    conformer_conv_case(1, 1, 4, 9),
    conformer_conv_case(3, 70, 40, 9),
    conformer_conv_case(1, 100, 72, 31, biased=False),
    conformer_conv_case(2, 40, 8, 1),
    conformer_conv_case(1, 80, 4, 61),
)
