"""The ops that decode transducers and CTC: what they mean, and shadow mode over a whole loop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import ops
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import EncoderInput
from oscine.errors import DeviceError
from oscine.models.parakeet.hotwords import build_context_graph
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.sequences import ENCODED, Chunk
from oscine.models.parakeet.weights import load_weights
from oscine.ops import (
    GRAPH_ARC,
    GRAPH_NODE,
    TRANSDUCER_STATE,
    TRANSDUCER_STEP,
    ContextGraphTensors,
    Linear,
    LstmState,
    TransducerState,
)
from oscine.ops.reference import Reference
from oscine.ops.shadow import Shadow
from oscine.ops.webgpu import Gpu

GOLDEN = Path(__file__).resolve().parent.parent / "goldens" / "parakeet_tdt"
V = 4  # labels


def picked(
    logits: Any,
    durations: tuple[int, ...] = (),
    boost: ContextGraphTensors | None = None,
    **row: int,
) -> TransducerState:
    """One row after transducer_step."""
    rows = np.zeros(1, TRANSDUCER_STATE)
    rows["length"], rows["limit"], rows["token"] = 9, 9, V
    for name, value in row.items():
        rows[name] = value
    track = TransducerState(rows, np.zeros((1, 9), TRANSDUCER_STEP))
    rules = np.array([V, 2, *durations], np.uint32)
    Reference().transducer_step(np.array(logits, np.float32), rules, track, boost)
    return track


BLANK, ONE = [0, 1, 0, 0, 5], [0, 6, 0, 6, 5]


def test_the_walk_goes_past_blanks_up_to_a_label() -> None:
    track = picked([BLANK, BLANK, ONE, BLANK])
    row, looks = track.rows[0], track.decisions[0]
    assert looks["token"][:3].tolist() == [V, V, 1]  # the lowest id among equals
    assert looks["frame"][:3].tolist() == [0, 1, 2]
    assert (row["position"], row["token"], row["fresh"]) == (2, 1, 1)
    assert (row["half"], row["count"]) == (1, 3)
    expected = np.exp(6) / np.exp([0, 6, 0, 6, 5]).sum()
    assert looks["probability"][2] == pytest.approx(expected, rel=1e-5)


def test_durations_jump_out_of_the_block_and_a_blank_of_none_moves_by_one() -> None:
    none, three = [9, 0], [0, 9]
    track = picked([BLANK + none, BLANK + three, BLANK + none], (0, 3))
    assert track.decisions[0]["frame"][:2].tolist() == [0, 1]
    assert track.decisions[0]["duration"][:2].tolist() == [0, 3]
    assert track.decisions[0]["advanced"][:2].tolist() == [1, 3]
    assert (track.rows[0]["position"], track.rows[0]["fresh"], track.rows[0]["done"]) == (4, 0, 0)


def test_the_last_label_allowed_at_a_frame_moves_on_by_force() -> None:
    track = picked([ONE], symbols=1)
    assert track.decisions[0]["advanced"][0] == 1 and track.rows[0]["symbols"] == 0
    track = picked([ONE], symbols=0)
    assert track.decisions[0]["advanced"][0] == 0 and track.rows[0]["symbols"] == 1


def test_it_stops_at_the_end_at_a_full_table_and_at_no_number() -> None:
    assert picked([BLANK] * 4, length=2).rows[0]["done"] == ops.STOP_END
    full = picked([BLANK] * 4, limit=3)
    assert (full.rows[0]["done"], full.rows[0]["position"]) == (ops.STOP_LENGTH, 3)
    broken = picked([BLANK, [0, np.inf, 0, 0, 0]])
    assert (broken.rows[0]["done"], broken.rows[0]["count"]) == (ops.STOP_NONFINITE, 1)
    assert picked([ONE, [np.nan] * 5]).rows[0]["done"] == 0  # a frame that is not looked at
    assert picked([[np.nan] * 5], done=ops.STOP_END).rows[0]["done"] == ops.STOP_END


def test_phrases_decide_between_labels_never_between_label_and_blank() -> None:
    nodes, arcs = np.zeros(2, GRAPH_NODE), np.zeros(1, GRAPH_ARC)
    nodes[0], arcs[0] = (0, 1, 0, 0.0), (2, 1, 50.0)
    boost = ContextGraphTensors(nodes, arcs)
    assert picked([BLANK], boost=boost).decisions[0]["token"][0] == V
    track = picked([ONE], boost=boost)
    assert (track.decisions[0]["token"][0], track.rows[0]["node"]) == (2, 1)
    assert picked([BLANK], boost=boost, node=1).rows[0]["node"] == 1


def test_predict_writes_the_other_half_of_fresh_rows_alone() -> None:
    rng = np.random.default_rng(0)

    class Layer:
        input = Linear(rng.standard_normal((16, 4)).astype(np.float32), np.zeros(16, np.float32))
        hidden = Linear(np.zeros((16, 4), np.float32), None)

    memory = LstmState(np.zeros((3, 1, 2, 4), np.float32), np.zeros((3, 1, 2, 4), np.float32), None)
    rows = np.zeros(3, TRANSDUCER_STATE)
    rows["fresh"], rows["half"], rows["done"] = (1, 1, 1), (0, 1, 0), (0, 0, 1)
    rows["slot"] = (2, 0, 1)
    table = rng.standard_normal((2, 4)).astype(np.float32)
    Reference().prediction_network(table, (Layer(),), memory, TransducerState(rows, None))
    written = np.abs(memory.hidden[:, 0]).sum(-1) > 0
    assert written.tolist() == [[True, False], [False, False], [False, True]]
    z = Layer.input.weight @ table[0]
    i, _, g, o = np.split(z, 4)
    c = np.tanh(g) / (1 + np.exp(-i))
    assert np.allclose(memory.cell[2, 0, 1], c, atol=1e-6)
    assert np.allclose(memory.hidden[2, 0, 1], np.tanh(c) / (1 + np.exp(-o)), atol=1e-6)


def test_argmax_prob_names_what_is_no_number() -> None:
    logits = np.array([[0, 3, 3], [0, np.nan, 1], [-np.inf, 0, 0]], np.float32)
    found = Reference().argmax_prob(logits)
    assert found[:, 0].tolist() == [1, -1, -1]
    assert found[0, 1] == pytest.approx(np.exp(3) / (1 + 2 * np.exp(3)), rel=1e-5)


# -- both sides at once ---------------------------------------------------------------------------


def decode(backend: Any) -> Any:
    """The golden encoding through a whole loop, with phrases."""
    weights = load_weights(GOLDEN)
    config = replace(weights.config, n_layers=0)
    encoder = replace(weights.encoder, blocks=())
    engine = Engine(ParakeetRunner(replace(weights, config=config, encoder=encoder), backend))
    with np.load(GOLDEN / "golden.npz") as stored:
        encoded = stored["enc_out"]
    tree = build_context_graph([((3, 4), 2.0)], config.vocab_size)
    chunks = [Chunk(EncoderInput(encoded[:n], ENCODED), context_graph=tree) for n in (9, 4)]
    for chunk in chunks:
        engine.submit(chunk)
    return [chunk.wait().emissions for chunk in chunks]


@pytest.mark.gpu
def test_shadow_mode_follows_the_loop(gpu: Gpu) -> None:
    tokens = [[e.token for e in one] for one in decode(Shadow(gpu))]
    assert tokens == [[e.token for e in one] for one in decode(Reference())]


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["prediction_network", "joint_network", "transducer_step"])
def test_a_wrong_kernel_of_the_loop_is_named(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    right = getattr(Gpu, op)

    def prediction_network(self: Gpu, table: Any, cells: Any, memory: Any, track: Any) -> None:
        right(self, table, cells[:1], memory, track)

    def joint_network(self: Gpu, x: Any, project: Linear, *rest: Any) -> Any:
        return right(self, x, Linear(project.weight, None), *rest)

    def transducer_step(self: Gpu, logits: Any, rules: Any, track: Any, boost: Any = None) -> None:
        pass

    monkeypatch.setattr(Gpu, op, locals()[op])
    with pytest.raises(DeviceError, match=rf"{op} \(call \d+, .*\) differs from NumPy"):
        decode(Shadow(gpu))
