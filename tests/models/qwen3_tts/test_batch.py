"""Utterances in one batch through talker and code predictor: each equals its result alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import ops
from oscine.models.qwen3_tts import model
from oscine.models.qwen3_tts.buffers import allocate_buffers, buffer_bytes, write_rope_tables
from oscine.models.qwen3_tts.config import SamplingParams
from oscine.models.qwen3_tts.prompt import Prompt
from oscine.models.qwen3_tts.sequences import UtteranceRequest, initial_state, pack_sampling_params
from oscine.models.qwen3_tts.talker_runner import POSITION_BLOCK, round_up
from oscine.models.qwen3_tts.weights import Qwen3TtsWeights, load_weights
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts"
SLOTS, POSITIONS, TEXTS, LONGEST, FRAMES = 33, 16, 3, 10, 5
CHOICES = (
    SamplingParams(do_sample=False),
    SamplingParams(),
    SamplingParams(temperature=1.5, top_k=0, top_p=0.8, repetition_penalty=1.0),
    SamplingParams(temperature=0.6, top_k=5, repetition_penalty=1.4),
)


@pytest.fixture(scope="module")
def weights() -> Qwen3TtsWeights:
    return load_weights(GOLDENS / "base" / "ckpt")


class Batch:
    """Plans of a prompt and of a step of some rows, whose memory is in slots of other numbers."""

    def __init__(self, weights: Qwen3TtsWeights, backend: Any, rows: int) -> None:
        self.config, self.backend = weights.config, backend
        networks = model.TalkerNetworks(
            weights.config,
            ops.upload(backend, weights.talker),
            ops.upload(backend, weights.code_predictor),
            None,
        )
        made = allocate_buffers(backend.zeros, weights.config, SLOTS, POSITIONS, TEXTS)
        write_rope_tables(backend, weights.config, made)
        self.rows = backend.zeros((rows,), ops.TALKER_STATE)
        self.lead = backend.zeros((1,), ops.TALKER_STATE)
        self.prompt = backend.zeros((LONGEST, weights.config.talker.hidden_size))
        self.buffers, lead = (
            replace(made, state=replace(made.state, rows=state)) for state in (self.rows, self.lead)
        )
        self.start = backend.record(
            lambda: model.prefill(backend, networks, lead, self.prompt), self.lead
        )
        self.step = backend.record(
            lambda: model.decode_step(backend, networks, self.buffers), self.rows
        )

    def run(self, requests: Mapping[int, UtteranceRequest]) -> dict[int, tuple[Any, ...]]:
        """Speak in some rows, of which the others are done: of each its state, codes and keys."""
        rows = np.zeros(self.rows.shape[0], ops.TALKER_STATE)
        rows["done"] = ops.STOP_LENGTH
        self.backend.write(self.rows, rows)
        for row, request in requests.items():
            self.admit(row, request)
        self.step.run(FRAMES)
        state, utterances = self.backend.read(self.rows), self.buffers.state
        codes, keys = (
            self.backend.read(memory)
            for memory in (utterances.codes, self.buffers.kv_caches[-1].keys)
        )
        found = {}
        for row in requests:
            spoken, length = state[row]["count"], state[row]["position"]
            slot = SLOTS - 1 - row
            found[row] = state[row], codes[slot, :spoken], keys[slot, :length]
        return found

    def admit(self, row: int, request: UtteranceRequest) -> None:
        """Hear a prompt in a row of its own, and then be a row of the batch."""
        backend, buffers, slot = self.backend, self.buffers, SLOTS - 1 - row
        for memory, array in (
            *zip(
                (buffers.sampling_params, buffers.code_predictor_sampling_params),
                pack_sampling_params(request, self.config),
                strict=True,
            ),
            (buffers.state.seen, np.zeros((1, self.config.vocab_size), np.uint32)),
            (
                buffers.trailing_text,
                np.resize(request.prompt.trailing_text, (1, *buffers.trailing_text.shape[1:])),
            ),
        ):
            backend.write(memory, array, slot)
        backend.write(self.lead, initial_state(request, slot))
        backend.write(self.prompt, request.prompt.embeddings)
        self.start.run()
        backend.copy(self.lead, self.rows, [(0, row)])


def requests(weights: Qwen3TtsWeights, rows: int, seed: int = 0) -> dict[int, UtteranceRequest]:
    """Prompts, options and limits that differ from row to row."""
    rng = np.random.default_rng(seed)
    width = weights.config.talker.hidden_size
    made = {}
    for row in range(rows):
        heard = rng.standard_normal((rng.integers(1, LONGEST + 1), width), np.float32)
        text = rng.standard_normal((rng.integers(1, TEXTS + 1), width), np.float32)
        first, later = CHOICES[row % 4], CHOICES[(row // 4 + row) % 4]
        frames, least = int(rng.integers(1, FRAMES + 1)), int(rng.integers(0, 4))
        made[row] = UtteranceRequest(Prompt(heard, text), first, later, seed + row, frames, least)
    return made


def equal(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """Bit for bit."""
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[2], expected[2])


def check_batch(weights: Qwen3TtsWeights, backend: Any, rows: int) -> None:
    """Rows alone and beside others equal those in the full batch; so does a batch of one."""
    batch, asked = Batch(weights, backend, rows), requests(weights, rows)
    together = batch.run(asked)
    assert all(state["done"] for state, _, _ in together.values())
    assert len({codes.tobytes() for _, codes, _ in together.values()}) > rows // 2
    some = {0, rows // 2, rows - 1}
    beside_others = batch.run(
        {**requests(weights, rows, seed=1000), **{row: asked[row] for row in some}}
    )
    single = Batch(weights, backend, 1)
    for row in some:
        equal(beside_others[row], together[row])
        equal(batch.run({row: asked[row]})[row], together[row])
        state, codes, _ = single.run({0: asked[row]})[0]
        assert state["done"] == together[row][0]["done"]
        assert codes.tolist() == together[row][1].tolist()


@pytest.mark.parametrize("rows", [2, 4, 8, 16, 32])
def test_a_row_is_what_it_is_alone(weights: Qwen3TtsWeights, rows: int) -> None:
    check_batch(weights, Reference(), rows)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [2, 16])
def test_a_row_is_what_it_is_alone_on_a_gpu(weights: Qwen3TtsWeights, gpu: Gpu, rows: int) -> None:
    check_batch(weights, gpu, rows)


# -- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", [np.float32, np.float16])
def test_bytes_are_those_of_the_buffers(weights: Qwen3TtsWeights, cache: Any) -> None:
    made: list[np.ndarray] = []

    def allocate(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        made.append(np.zeros(shape, dtype))
        return made[-1]

    allocate_buffers(allocate, weights.config, 3, 20, 7, cache_dtype=cache)
    assert sum(array.nbytes for array in made) == buffer_bytes(
        weights.config, 3, 20, 7, cache_dtype=cache
    )


def test_sixteen_voices_of_a_minute_fit_beside_the_largest_model(weights: Qwen3TtsWeights) -> None:
    """In 8 GB: a minute is 750 frames; numbers of MODELS/qwen3_tts.md, section 1."""
    config = weights.config
    talker = replace(
        config.talker,
        num_hidden_layers=28,
        hidden_size=2048,
        intermediate_size=6144,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
    )
    predictor = replace(
        config.code_predictor,
        num_hidden_layers=5,
        hidden_size=1024,
        intermediate_size=3072,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
    )
    config = replace(
        config, talker=talker, code_predictor=predictor, vocab_size=3072, num_code_groups=16
    )
    text_embedding = 151936 * 2048  # stays on the host
    networks = 2 * (1_928_677_440 - text_embedding)
    projected = 4 * 1024 * (3072 + 14 * 2048)  # the predictor's inputs, float32
    codec = 4 * (114_323_137 + 56_234_304)
    held = networks + projected + codec
    assert held + buffer_bytes(config, 16, 800) < 7.1e9
    positions = round_up(50 + 750, POSITION_BLOCK)  # as the runner makes them
    assert held + buffer_bytes(config, 16, positions, 256) < 7.5e9
    assert held + buffer_bytes(config, 16, 1024, 1024, cache_dtype=np.float16) < 6.2e9
