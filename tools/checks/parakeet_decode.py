"""The decoding part of Parakeet cases: networks, logits, traces, tokens and times.

Traces run from the golden encoding, tokens also from the golden features through our encoder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from checks.report import Report, stages
from oscine import ops
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import EncoderInput
from oscine.models.parakeet.model import ctc_argmax, joint_logits, project_encoder
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.sequences import ENCODED, Chunk, Hypothesis, transducer_params
from oscine.models.parakeet.weights import ParakeetWeights
from oscine.ops import Backend

if TYPE_CHECKING:
    from checks.parakeet import Case

NETWORK, LOGITS, SECONDS = 1e-4, 2e-3, 1e-5


class Loop:
    """The transducer's loop over one sequence of frames, a step at a time."""

    def __init__(self, weights: ParakeetWeights, backend: Backend, frames: int) -> None:
        config = weights.config
        self.backend, self.config, self.frames = backend, config, frames
        self.w = ops.upload(backend, weights.transducer)
        halves, self.room = (1, config.predictor_layers, 2, config.predictor_dim), 4 * frames
        self.memory = ops.LstmState(
            backend.zeros(halves), backend.zeros(halves), backend.zeros((1, config.joint_dim))
        )
        self.track = ops.TransducerState(
            backend.zeros((1,), ops.TRANSDUCER_STATE),
            backend.zeros((1, self.room), ops.TRANSDUCER_STEP),
        )
        self.rules = backend.upload(transducer_params(config))
        self.projected = backend.zeros((frames, config.joint_dim))

    def project(self, encoded: np.ndarray) -> None:
        """Begin with an encoding [T, d]."""
        slot = self.backend.zeros(encoded.shape)
        self.backend.write(slot, encoded)

        def trace() -> None:
            projected = project_encoder(self.backend, self.w, slot)
            self.backend.store(projected, self.projected)

        self.backend.record(trace, name="check").run()

    def state(self) -> np.ndarray:
        """The state row of its beginning."""
        row = np.zeros(1, ops.TRANSDUCER_STATE)
        row["token"], row["fresh"] = self.config.blank_id, 1
        row["length"], row["limit"] = self.frames, self.room
        return row

    def recorded(self, block: int, pick: bool) -> ops.Plan:
        """A plan of one step over so many frames."""
        backend = self.backend

        def trace() -> None:
            scores = joint_logits(backend, self.w, self.projected, self.memory, self.track, block)
            if pick:
                backend.transducer_step(scores, self.rules, self.track)

        return backend.record(trace, name="check")


def check_decoding(case: Case, backend: Backend, report: Report) -> set[str]:
    """All arrays after the encoder; names of those that were compared."""
    if case.weights.transducer is None:
        return check_ctc(case, backend, report)
    compared = check_networks(case, backend, report) | check_first_logits(case, backend, report)
    for name in (name for name in case.arrays if "trace" in name and name != "trace_logits"):
        most = int(name.partition("maxsym")[2] or case.weights.config.max_symbols)
        config = replace(case.weights.config, max_symbols=most)
        encoded = EncoderInput(case.arrays["enc_out"], ENCODED)
        found = decoded(replace(case.weights, config=config), encoded, backend)
        report.same(name, trace_of(found, case.weights), case.arrays[name].tolist())
        compared.add(name)
    emissions = decoded(case.weights, EncoderInput(case.arrays["mel"]), backend).emissions
    second = case.weights.config.frame_seconds
    report.same("tokens", [e.token for e in emissions], case.arrays["tokens"].tolist())
    starts, ends = [e.frame for e in emissions], [e.frame + e.duration for e in emissions]
    for name, frames in (("token_start_s", starts), ("token_end_s", ends)):
        report.array(name, np.array(frames) * second, case.arrays[name], SECONDS)
    return compared | {"tokens", "token_start_s", "token_end_s"}


def decoded(weights: ParakeetWeights, audio: EncoderInput, backend: Backend) -> Hypothesis:
    """What a mel or an encoding says."""
    chunk = Chunk(audio)
    return Engine(ParakeetRunner(weights, backend)).submit(chunk).wait()


def trace_of(found: Hypothesis, weights: ParakeetWeights) -> list[list[int]]:
    """Frame, token, the duration's index (-1 without) and frames advanced, of each decision."""
    durations = weights.config.durations
    return [
        [
            int(look["frame"]),
            int(look["token"]),
            durations.index(int(look["duration"])) if durations else -1,
            int(look["advanced"]),
        ]
        for look in found.decisions
    ]


def forced(loop: Loop, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """What the networks say after each of the tokens [N], over all frames [T] of the loop.

    pred_lstm [N, P], pred_proj [N, J], joint_logits [T, N, V + 1 + n]; pred_state_h and _c [Y, P].
    """
    backend = loop.backend
    plan, row = loop.recorded(loop.frames, pick=False), loop.state()
    hidden, projected, logits = [], [], []
    for token in tokens:
        row["token"] = token
        backend.write(loop.track.rows, row)
        with stages() as seen:
            plan.run()
        row["half"] ^= 1
        memory = loop.memory
        h, c = (backend.read(x)[0, :, row["half"][0]] for x in (memory.hidden, memory.cell))
        hidden.append(h[-1])
        projected.append(backend.read(memory.joint)[0])
        logits.append(seen["joint.logits"])
    return {
        "pred_lstm": np.stack(hidden),
        "pred_proj": np.stack(projected),
        "joint_logits": np.stack(logits, axis=1),
        "pred_state_h": h,
        "pred_state_c": c,
    }


def check_networks(case: Case, backend: Backend, report: Report) -> set[str]:
    """Prediction and joint network over forced labels."""
    golden = case.arrays
    loop = Loop(case.weights, backend, len(golden["enc_proj"]))
    backend.write(loop.projected, golden["enc_proj"])
    found = forced(loop, golden["pred_tokens"])
    found["joint_logits"] = found["joint_logits"][golden["joint_frames"]]
    for name, array in found.items():
        report.array(name, array, golden[name], LOGITS if name == "joint_logits" else NETWORK)
    return {*found, "pred_tokens", "joint_frames"}


def check_joint(
    key: str,
    weights: ParakeetWeights,
    arrays: dict[str, np.ndarray],
    backend: Backend,
    report: Report,
) -> set[str]:
    """One of many files of the same weights: its joint network over the golden encoding."""
    own = f"_{key}" if f"joint_logits_{key}" in arrays else ""
    encoded, name = arrays[f"enc_out{own}"], f"joint_logits{own}"
    loop = Loop(weights, backend, len(encoded))
    loop.project(encoded)
    logits = forced(loop, arrays["tokens"])["joint_logits"]
    report.array(f"{key}: {name}", logits, arrays[name], LOGITS)
    return {name}


def check_first_logits(case: Case, backend: Backend, report: Report) -> set[str]:
    """The logits of the first decisions, from the golden encoding."""
    golden = case.arrays
    loop = Loop(case.weights, backend, len(golden["enc_out"]))
    backend.write(loop.track.rows, loop.state())
    loop.project(golden["enc_out"])
    with stages() as seen:
        loop.recorded(1, pick=True).run(len(golden["trace_logits"]))
    report.array("trace_logits", seen["joint.logits"], golden["trace_logits"], LOGITS)
    return {"trace_logits"}


def check_ctc(case: Case, backend: Backend, report: Report) -> set[str]:
    """Labels of frames and their runs."""
    golden = case.arrays
    head = ops.upload(backend, case.weights.ctc)
    encoded, out = (
        backend.zeros(golden["enc_out"].shape),
        backend.zeros((len(golden["enc_out"]), 2)),
    )
    backend.write(encoded, golden["enc_out"])

    def trace() -> None:
        backend.store(ctc_argmax(backend, head, encoded), out)

    backend.record(trace, name="check").run()
    ids = backend.read(out)[:, 0].astype(int).tolist()
    report.same("ctc_frame_argmax", ids, golden["ctc_frame_argmax"].tolist())
    emissions = decoded(case.weights, EncoderInput(golden["mel"]), backend).emissions
    report.same("ctc_tokens", [e.token for e in emissions], golden["ctc_tokens"].tolist())
    starts, ends = [e.frame for e in emissions], [e.frame + e.duration for e in emissions]
    report.same("ctc_start_frame", starts, golden["ctc_start_frame"].tolist())
    report.same("ctc_end_frame", ends, golden["ctc_end_frame"].tolist())
    return {"ctc_frame_argmax", "ctc_tokens", "ctc_start_frame", "ctc_end_frame"}
