"""The loop over frames: upstream's traces, and a definition of its own, in plain Python."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import ops
from oscine.models.parakeet import transducer
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.decode import Decoder
from oscine.models.parakeet.request import Decoded
from oscine.models.parakeet.weights import Cell, EncoderWeights, ParakeetWeights, TransducerWeights
from oscine.ops import TRACK, Linear, Memory, Track
from oscine.ops.reference import Reference

ORACLES = Path(__file__).resolve().parents[4] / "shared" / "oracles" / "asr-seed0"
LOGITS = 2e-3


def tensors(file: Path) -> dict[str, Any]:
    """A safetensors file of float32."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    body = memoryview(data)[8 + size :]
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], np.float32).reshape(entry["shape"])
        for name, entry in json.loads(data[8 : 8 + size]).items()
        if name != "__metadata__" and entry["dtype"] == "F32"
    }


def no_encoder() -> EncoderWeights:
    """For tests that begin at its output."""
    none = Linear(np.zeros((3, 3, 4), np.float32), np.zeros(4, np.float32))
    return EncoderWeights(none, (), Linear(np.zeros((1, 4), np.float32), None), ())


def weights_of(
    config: ParakeetConfig, head: TransducerWeights | None, ctc: Linear | None = None
) -> ParakeetWeights:
    return ParakeetWeights(
        config, no_encoder(), head, ctc, Path("m"), Path("."), "made up", (), "f32"
    )


def config_of(**sizes: Any) -> ParakeetConfig:
    usual = {
        "n_mels": 8, "width": 8, "heads": 2, "layers": 0, "inner": 8, "kernel": 9, "channels": 4,
        "factor": 8, "scaled": False, "labels": 5, "predictor": 8, "predictor_layers": 1,
        "joint": 8, "durations": (), "most_symbols": 10, "has_ctc": False,
    }  # fmt: skip
    return ParakeetConfig(**(usual | sizes))


def golden(case: str) -> tuple[ParakeetWeights, Any, dict[str, Any]]:
    """An oracle's heads, arrays and facts."""
    folder = ORACLES / case
    if not folder.exists():
        pytest.skip(f"no oracles in {ORACLES}")
    t, c = tensors(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    arrays, facts = np.load(folder / "golden.npz"), json.loads((folder / "golden.json").read_text())
    sizes = {
        "n_mels": c["encoder_config"]["num_mel_bins"], "width": c["encoder_config"]["hidden_size"],
        "labels": c["vocab_size"] - 1,
    }  # fmt: skip
    if "ctc_head.weight" in t:
        config = config_of(**sizes, predictor=0, predictor_layers=0, joint=0, has_ctc=True)
        head = Linear(t["ctc_head.weight"][..., 0], t["ctc_head.bias"])
        return weights_of(config, None, head), arrays, facts
    layers, names = c["num_decoder_layers"], ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    cells = []
    for layer in range(layers):
        wi, wh, bi, bh = (t[f"decoder.lstm.{name}_l{layer}"] for name in names)
        cells.append(Cell(Linear(wi, bi + bh), Linear(wh, None)))
    projections = ("encoder_projector", "decoder.decoder_projector", "joint.head")
    head = TransducerWeights(
        t["decoder.embedding.weight"],
        tuple(cells),
        *(Linear(t[f"{name}.weight"], t[f"{name}.bias"]) for name in projections),
    )
    config = config_of(
        **sizes, predictor=c["decoder_hidden_size"], predictor_layers=layers,
        joint=len(head.encoder.weight), durations=tuple(c.get("durations", ())),
        most_symbols=c["max_symbols_per_step"],
    )  # fmt: skip
    return weights_of(config, head), arrays, facts


def trace_of(found: Decoded, config: ParakeetConfig) -> list[list[int]]:
    """As the goldens have it: frame, token, the duration's index (-1 without), frames advanced."""
    index = {length: place for place, length in enumerate(config.durations)}
    return [
        [int(look["frame"]), int(look["token"]), index.get(int(look["duration"]), -1)
         if config.durations else -1, int(look["advanced"])]
        for look in found.decisions
    ]  # fmt: skip


@pytest.fixture(params=["NumPy", pytest.param("gpu", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Any:
    return Reference() if request.param == "NumPy" else request.getfixturevalue("gpu")


CASES = ("parakeet_tdt", "parakeet_rnnt")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("most", [None, 2])
def test_traces_are_upstreams(backend: Any, case: str, most: int | None) -> None:
    weights, arrays, _ = golden(case)
    if most is not None:
        weights = replace(weights, config=replace(weights.config, most_symbols=most))
    decoder = Decoder(weights, backend)
    decoder.take([arrays["enc_out"]])
    (found,) = decoder.decode()
    wanted = arrays["trace" if most is None else f"own_trace_maxsym{most}"]
    assert trace_of(found, weights.config) == wanted.tolist()
    if most is None:
        assert [emission.token for emission in found.emissions] == arrays["tokens"].tolist()
        seconds = weights.config.frame_seconds
        starts = [emission.frame * seconds for emission in found.emissions]
        ends = [(emission.frame + emission.duration) * seconds for emission in found.emissions]
        assert np.allclose(starts, arrays["token_start_s"], atol=1e-5)
        assert np.allclose(ends, arrays["token_end_s"], atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_prediction_and_joint_networks_are_upstreams(backend: Any, case: str) -> None:
    weights, arrays, _ = golden(case)
    config, w = weights.config, ops.upload(backend, weights.transducer)
    frames = len(arrays["enc_proj"])
    halves = config.predictor_layers, 2, 1, config.predictor
    memory = Memory(backend.slot(halves), backend.slot(halves), backend.slot((1, config.joint)))
    track = Track(backend.slot((1,), TRACK), backend.slot((1, 8), np.uint32))
    projected = backend.slot((frames, config.joint))
    backend.write(projected, arrays["enc_proj"])
    columns = config.labels + 1 + len(config.durations)
    out = backend.slot((frames, columns))

    def trace() -> None:
        scores = transducer.logits(backend, w, projected, memory, track, frames)
        backend.keep(scores, out)

    plan, row = backend.record(trace), np.zeros(1, TRACK)
    row["frames"], row["fresh"] = frames, 1
    for index, token in enumerate(arrays["pred_tokens"]):
        row["token"] = token
        backend.write(track.rows, row)
        plan.run()
        row["half"] ^= 1
        hidden, cell, joint = (
            backend.read(part) for part in (memory.hidden, memory.cell, memory.joint)
        )
        half = int(row["half"][0])
        assert np.abs(hidden[-1, half, 0] - arrays["pred_lstm"][index]).max() < 1e-4
        assert np.abs(joint[0] - arrays["pred_proj"][index]).max() < 1e-4
        found = backend.read(out)[arrays["joint_frames"]]
        assert np.abs(found - arrays["joint_logits"][:, index]).max() < LOGITS
    assert np.abs(hidden[:, half, 0] - arrays["pred_state_h"]).max() < 1e-4
    assert np.abs(cell[:, half, 0] - arrays["pred_state_c"]).max() < 1e-4


def test_ctc_is_upstreams(backend: Any) -> None:
    weights, arrays, _ = golden("parakeet_ctc")
    decoder = Decoder(weights, backend)
    decoder.take([arrays["enc_out"]])
    (found,) = decoder.decode()
    assert [e.token for e in found.emissions] == arrays["ctc_tokens"].tolist()
    assert [e.frame for e in found.emissions] == arrays["ctc_start_frame"].tolist()
    assert [e.frame + e.duration for e in found.emissions] == arrays["ctc_end_frame"].tolist()
    scores = arrays["ctc_logits"]
    shares = np.exp(scores - scores.max(1, keepdims=True))
    shares = (shares / shares.sum(1, keepdims=True)).max(1)
    for e in found.emissions:
        assert abs(e.probability - shares[e.frame : e.frame + e.duration].max()) < 1e-4
