"""A step of the transducer's loop and what it starts from, written once against the vocabulary.

Source: NeMo nemo/collections/asr/modules/rnnt.py (RNNTDecoder, RNNTJoint). B lines, F frames of a
block, d width of the encoder, J of the joint network, V labels, n durations.
"""

from __future__ import annotations

from oscine.models.parakeet.weights import TransducerWeights
from oscine.ops import Boost, Linear, Memory, Ops, Tensor, Track


def project(ops: Ops, w: TransducerWeights, encoded: Tensor) -> Tensor:
    """The encoder's half of the joint network, once for all frames: [R, d] -> [R, J]."""
    return ops.linear(encoded, w.encoder)


def logits(
    ops: Ops, w: TransducerWeights, projected: Tensor, memory: Memory, track: Track, block: int
) -> Tensor:
    """What the next frames of each line say after its labels so far: [B·F, V + 1 + n]."""
    ops.predict(w.embedding, w.cells, memory, track)
    scores = ops.linear(ops.join(projected, w.predictor, memory, track, block), w.head)
    ops.probe("joint.logits", scores)
    return scores


def step(
    ops: Ops,
    w: TransducerWeights,
    projected: Tensor,
    memory: Memory,
    track: Track,
    rules: Tensor,
    *,
    block: int,
    boost: Boost | None = None,
) -> None:
    """Each line on to its next label, or past a block of blanks."""
    scores = logits(ops, w, projected, memory, track, block)
    ops.pick_labels(scores, rules, track, boost)


def frame_labels(ops: Ops, head: Linear, encoded: Tensor) -> Tensor:
    """CTC: the likeliest token of each frame and its probability: [R, d] -> [R, 2]."""
    scores = ops.linear(encoded, head)
    ops.probe("ctc.logits", scores)
    return ops.likeliest(scores)
