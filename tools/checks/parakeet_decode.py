"""The decoding part of Parakeet cases: networks, logits, traces, tokens and times.

Traces run from the golden encoding, tokens also from the golden features through our encoder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from checks.report import Report, stages
from oscine import ops
from oscine.models.parakeet.decode import Decoder
from oscine.models.parakeet.lines import Shape, TransducerLines
from oscine.models.parakeet.model import frame_labels, joint_logits
from oscine.models.parakeet.request import Decoded, Span, initial_track
from oscine.models.parakeet.weights import ParakeetWeights
from oscine.ops import Backend

if TYPE_CHECKING:
    from checks.parakeet import Case

NETWORK, LOGITS, SECONDS = 1e-4, 2e-3, 1e-5


class Loop(TransducerLines):
    """The transducer's loop, a step at a time."""

    def __init__(self, decoder: Decoder, frames: int) -> None:
        assert decoder.transducer is not None
        super().__init__(decoder, Shape(1, frames), decoder.transducer)

    def recorded(self, block: int, pick: bool) -> ops.Plan:
        """A plan of one step over so many frames."""
        backend = self.decoder.backend

        def trace() -> None:
            scores = joint_logits(backend, self.w, self.projected, self.memory, self.track, block)
            if pick:
                backend.pick_labels(scores, self.rules, self.track)

        return backend.record(trace, name="check")


def check_decoding(case: Case, backend: Backend, report: Report) -> set[str]:
    """All arrays after the encoder; names of those that were compared."""
    if case.weights.transducer is None:
        return check_ctc(case, backend, report)
    decoder = Decoder(case.weights, backend)
    compared = check_networks(case, decoder, report) | check_first_logits(case, decoder, report)
    for name in (name for name in case.arrays if "trace" in name and name != "trace_logits"):
        most = int(name.partition("maxsym")[2] or case.weights.config.most_symbols)
        config = replace(case.weights.config, most_symbols=most)
        found = decoded(replace(case.weights, config=config), case.arrays["enc_out"], backend)
        report.same(name, trace_of(found, case.weights), case.arrays[name].tolist())
        compared.add(name)
    decoder.encode([case.arrays["mel"]])
    emissions, second = decoder.decode()[0].emissions, case.weights.config.frame_seconds
    report.same("tokens", [e.token for e in emissions], case.arrays["tokens"].tolist())
    starts, ends = [e.frame for e in emissions], [e.frame + e.duration for e in emissions]
    for name, frames in (("token_start_s", starts), ("token_end_s", ends)):
        report.array(name, np.array(frames) * second, case.arrays[name], SECONDS)
    return compared | {"tokens", "token_start_s", "token_end_s"}


def decoded(weights: ParakeetWeights, encoded: np.ndarray, backend: Backend) -> Decoded:
    """What an encoding says."""
    decoder = Decoder(weights, backend)
    decoder.take([encoded])
    return decoder.decode()[0]


def trace_of(found: Decoded, weights: ParakeetWeights) -> list[list[int]]:
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
    backend, frames = loop.decoder.backend, loop.shape.frames
    plan, row = loop.recorded(frames, pick=False), np.zeros(1, ops.TRACK)
    row["length"], row["fresh"] = frames, 1
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


def check_networks(case: Case, decoder: Decoder, report: Report) -> set[str]:
    """Prediction and joint network over forced labels."""
    golden = case.arrays
    loop = Loop(decoder, len(golden["enc_proj"]))
    decoder.backend.write(loop.projected, golden["enc_proj"])
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
    loop = Loop(Decoder(weights, backend), len(encoded))
    backend.write(loop.encoded, encoded)
    loop.project.run()
    logits = forced(loop, arrays["tokens"])["joint_logits"]
    report.array(f"{key}: {name}", logits, arrays[name], LOGITS)
    return {name}


def check_first_logits(case: Case, decoder: Decoder, report: Report) -> set[str]:
    """The logits of the first decisions, from the golden encoding."""
    golden, backend, config = case.arrays, decoder.backend, decoder.config
    frames = len(golden["enc_out"])
    loop = Loop(decoder, frames)
    backend.write(loop.encoded, golden["enc_out"])
    span = Span(0, 0, frames)
    rows = initial_track([span], 1, frames, loop.room, config.blank)
    backend.write(loop.track.rows, rows)
    loop.project.run()
    with stages() as seen:
        loop.recorded(1, pick=True).run(len(golden["trace_logits"]))
    report.array("trace_logits", seen["joint.logits"], golden["trace_logits"], LOGITS)
    return {"trace_logits"}


def check_ctc(case: Case, backend: Backend, report: Report) -> set[str]:
    """Labels of frames and their runs."""
    golden, decoder = case.arrays, Decoder(case.weights, backend)
    head = ops.upload(backend, case.weights.ctc)
    encoded, out = (
        backend.zeros(golden["enc_out"].shape),
        backend.zeros((len(golden["enc_out"]), 2)),
    )
    backend.write(encoded, golden["enc_out"])

    def trace() -> None:
        backend.keep(frame_labels(backend, head, encoded), out)

    backend.record(trace, name="check").run()
    ids = backend.read(out)[:, 0].astype(int).tolist()
    report.same("ctc_frame_argmax", ids, golden["ctc_frame_argmax"].tolist())
    decoder.encode([golden["mel"]])
    emissions = decoder.decode()[0].emissions
    report.same("ctc_tokens", [e.token for e in emissions], golden["ctc_tokens"].tolist())
    starts, ends = [e.frame for e in emissions], [e.frame + e.duration for e in emissions]
    report.same("ctc_start_frame", starts, golden["ctc_start_frame"].tolist())
    report.same("ctc_end_frame", ends, golden["ctc_end_frame"].tolist())
    return {"ctc_frame_argmax", "ctc_tokens", "ctc_start_frame", "ctc_end_frame"}
