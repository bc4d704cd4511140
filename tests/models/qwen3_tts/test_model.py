"""Talker and predictor: positions, padding, what a frame costs; values are held by the goldens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.models.qwen3_tts import model
from oscine.models.qwen3_tts.config import Sampling
from oscine.models.qwen3_tts.decode import Decoder
from oscine.models.qwen3_tts.prompt import Prompt
from oscine.models.qwen3_tts.request import Request
from oscine.models.qwen3_tts.rotary import rotary
from oscine.models.qwen3_tts.weights import load_weights
from oscine.ops.reference import Reference
from oscine.probe import probing

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts"
GREEDY = Sampling(do_sample=False)
RUN = {"custom_voice": "dialect_stream", "base": "xvec"}  # without and with equal widths


def arrays_of(case: str) -> dict[str, np.ndarray]:
    """The arrays of one run by their own names."""
    with np.load(GOLDENS / case / "expected.npz") as stored:
        prefix = f"{RUN[case]}/"
        return {n.removeprefix(prefix): stored[n] for n in stored if n.startswith(prefix)}


def request(rows: np.ndarray, text: np.ndarray, frames: int) -> Request:
    return Request(Prompt(rows, text), GREEDY, GREEDY, 0, frames)


def near(found: Any, want: Any) -> None:
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("case", RUN)
def test_frames_one_by_one_equal_all_rows_at_once(case: str) -> None:
    """What was heard frame by frame, heard as one prompt: the same hidden rows."""
    decoder, arrays = Decoder(load_weights(GOLDENS / case / "ckpt"), Reference()), arrays_of(case)
    rows = np.concatenate([arrays["prompt_embeds"], arrays["step_embeds"]])
    line = decoder.reserve(len(rows) + 1, 1)
    line.prepare(request(rows, arrays["tts_pad_embed"][None], 1))
    seen: dict[str, np.ndarray] = {}
    with probing(seen.__setitem__):
        model.start(decoder.backend, decoder.networks, line.buffers, rows)
    hidden = np.concatenate([arrays["prefill_hidden"], arrays["step_hidden"]])
    last = seen[f"talker.layer{decoder.config.talker.layers - 1}"]
    near(decoder.backend.rms_norm(last, decoder.networks.talker.norm), hidden)
    near(seen["talker.hidden"], hidden[-1:])
    assert seen["predictor.input0"].shape == (2, decoder.config.predictor.width)


def test_rows_behind_the_prompt_are_void() -> None:
    decoder, arrays = (
        Decoder(load_weights(GOLDENS / "base" / "ckpt"), Reference()),
        arrays_of("base"),
    )
    rows, text = arrays["prompt_embeds"], arrays["trailing_text_hidden"]
    padded = np.concatenate([rows, np.full((5, rows.shape[1]), 7, np.float32)])
    line = decoder.reserve(64, len(text))
    line.prepare(request(rows, text, 9))
    model.start(decoder.backend, decoder.networks, line.buffers, padded)
    _, codes = line.snapshot()()
    assert codes[0].tolist() == arrays["codes"][0].tolist()


def test_projected_tables_are_the_projection_of_every_row() -> None:
    weights = load_weights(GOLDENS / "custom_voice" / "ckpt")
    decoder = Decoder(weights, Reference())
    assert decoder.networks.projected is not None
    assert len(decoder.networks.projected) == decoder.config.groups - 1
    project = decoder.networks.predictor.project
    assert project is not None
    for table, plain in zip(
        decoder.networks.projected,
        (decoder.networks.talker.embedding, *decoder.networks.predictor.embeddings),
        strict=False,
    ):
        near(table, plain @ project.weight.T + project.bias)
    equal = Decoder(load_weights(GOLDENS / "base" / "ckpt"), Reference())
    assert equal.networks.projected is None


def test_angles_are_products_in_float32() -> None:
    table = rotary(40_000, 8, 1e6)
    assert table.cos.shape == table.sin.shape == (40_000, 4)
    assert table.cos.dtype == table.sin.dtype == np.float32
    position = 32_767
    frequency = np.float32(1) / np.float32(1e6) ** np.float32(0.25)
    angle = float(np.float32(position) * frequency)
    assert table.sin[position, 1] == np.float32(np.sin(angle))
    assert table.cos[position, 1] == np.float32(np.cos(angle))
    assert np.abs(np.sin(position * 1e6**-0.25) - table.sin[position, 1]) > 1e-5


@pytest.mark.gpu
@pytest.mark.parametrize("case", RUN)
def test_a_layer_is_five_dispatches(case: str, device: Any) -> None:
    from oscine.ops.webgpu import Gpu

    decoder = Decoder(load_weights(GOLDENS / case / "ckpt"), Gpu(device))
    assert decoder.line is not None
    config, kernels = decoder.config, [d.kernel for d in decoder.line.step.dispatches]
    layers = config.talker.layers + (config.groups - 1) * config.predictor.layers
    assert kernels.count("attend_rotary") == layers
    # Besides: the frame's input, the talker's norm and head; a row and a head for each later code;
    # where widths differ the projection of the talker's row; and the first pass has two rows, whose
    # keys are appended before they attend.
    sampled = [kernel for kernel in kernels if kernel.startswith("sample")]
    around = 3 + 2 * (config.groups - 1) + (decoder.networks.projected is not None)
    around += config.predictor.layers
    assert len(kernels) - len(sampled) == 5 * layers + around
    assert len(sampled) <= 2 * config.groups
