"""Talker and code predictor: positions, padding, dispatches a frame; goldens check the values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.models.qwen3_tts import model
from oscine.models.qwen3_tts.config import SamplingParams
from oscine.models.qwen3_tts.prompt import Prompt
from oscine.models.qwen3_tts.rope import rope_table
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner
from oscine.models.qwen3_tts.sequences import UtteranceRequest, initial_state
from oscine.models.qwen3_tts.talker_runner import TalkerRunner
from oscine.models.qwen3_tts.weights import load_weights
from oscine.ops.reference import Reference
from oscine.probe import probing

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts"
GREEDY = SamplingParams(do_sample=False)
RUN = {"custom_voice": "dialect_stream", "base": "xvec"}  # without and with equal widths


def arrays_of(case: str) -> dict[str, np.ndarray]:
    """The arrays of one run by their own names."""
    with np.load(GOLDENS / case / "expected.npz") as stored:
        prefix = f"{RUN[case]}/"
        return {n.removeprefix(prefix): stored[n] for n in stored if n.startswith(prefix)}


def admitted(
    runner: Qwen3TtsRunner, rows: np.ndarray, text: np.ndarray, frames: int
) -> TalkerRunner:
    """The talker, whose first row is ready for a prompt in slot 0."""
    prompt = Prompt(rows, text)
    request = UtteranceRequest(prompt, GREEDY, GREEDY, 0, frames)
    talker = runner.talker
    talker.reserve(1, request.positions, request.trailing_text_rows)
    talker.write_request(0, request, prompt)
    runner.backend.write(talker.buffers.state.rows, initial_state(request))
    return talker


def near(found: Any, want: Any) -> None:
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("case", RUN)
def test_frames_one_by_one_equal_all_rows_at_once(case: str) -> None:
    """Rows generated frame by frame, run as one prompt, give the same hidden rows."""
    runner, arrays = (
        Qwen3TtsRunner(load_weights(GOLDENS / case / "ckpt"), Reference()),
        arrays_of(case),
    )
    rows = np.concatenate([arrays["prompt_embeds"], arrays["step_embeds"]])
    talker = admitted(runner, rows, arrays["tts_pad_embed"][None], 1)
    seen: dict[str, np.ndarray] = {}
    with probing(seen.__setitem__):
        model.prefill(runner.backend, runner.networks, talker.rows(1), rows)
    hidden = np.concatenate([arrays["prefill_hidden"], arrays["step_hidden"]])
    last = seen[f"talker.layer{runner.config.talker.num_hidden_layers - 1}"]
    near(runner.backend.rms_norm(last, runner.networks.talker.norm), hidden)
    near(seen["talker.hidden"], hidden[-1:])
    assert seen["predictor.input0"].shape == (2, runner.config.code_predictor.hidden_size)


def test_rows_behind_the_prompt_are_void() -> None:
    runner, arrays = (
        Qwen3TtsRunner(load_weights(GOLDENS / "base" / "ckpt"), Reference()),
        arrays_of("base"),
    )
    rows, text = arrays["prompt_embeds"], arrays["trailing_text_hidden"]
    padded = np.concatenate([rows, np.full((5, rows.shape[1]), 7, np.float32)])
    talker = admitted(runner, rows, text, 9)
    model.prefill(runner.backend, runner.networks, talker.rows(1), padded)
    codes = runner.backend.read(talker.outputs(1, 1)[1])[0]
    assert codes[0].tolist() == arrays["codes"][0].tolist()


def test_projected_tables_are_the_projection_of_every_row() -> None:
    weights = load_weights(GOLDENS / "custom_voice" / "ckpt")
    runner = Qwen3TtsRunner(weights, Reference())
    assert runner.networks.projected_embeddings is not None
    assert len(runner.networks.projected_embeddings) == runner.config.num_code_groups - 1
    project = runner.networks.code_predictor.small_to_mtp_projection
    assert project is not None
    for table, plain in zip(
        runner.networks.projected_embeddings,
        (runner.networks.talker.codec_embedding, *runner.networks.code_predictor.codec_embeddings),
        strict=False,
    ):
        near(table, plain @ project.weight.T + project.bias)
    equal = Qwen3TtsRunner(load_weights(GOLDENS / "base" / "ckpt"), Reference())
    assert equal.networks.projected_embeddings is None


def test_angles_are_products_in_float32() -> None:
    table = rope_table(40_000, 8, 1e6)
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

    runner = Qwen3TtsRunner(load_weights(GOLDENS / case / "ckpt"), Gpu(device))
    step: Any = runner.talker.step_plan(1)
    config, kernels = runner.config, [d.kernel for d in step.dispatches]
    layers = (
        config.talker.num_hidden_layers
        + (config.num_code_groups - 1) * config.code_predictor.num_hidden_layers
    )
    assert kernels.count("rope_attention") == layers
    # Besides: the frame's input, the talker's norm and head; a row and a head for each later code;
    # where widths differ the projection of the talker's row; and the first pass has two rows, whose
    # keys are appended before they attend.
    sampled = [kernel for kernel in kernels if kernel.startswith("sample_code")]
    around = (
        3 + 2 * (config.num_code_groups - 1) + (runner.networks.projected_embeddings is not None)
    )
    around += config.code_predictor.num_hidden_layers
    assert len(kernels) - len(sampled) == 5 * layers + around
    assert len(sampled) <= 2 * config.num_code_groups
