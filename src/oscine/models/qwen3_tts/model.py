"""Talker and code predictor, written once against the op vocabulary.

Source: qwen_tts/core/models/modeling_qwen3_tts.py. B utterances of a batch, L rows of each, S
slots, D the talker's width, d the predictor's, G codes a frame. A plan ends with a whole frame: the
talker's last rows become codes within the plan that computed them, and no code goes to the host in
between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oscine.models.qwen3_tts.buffers import Buffers
from oscine.models.qwen3_tts.config import Qwen3TtsConfig, Stack
from oscine.models.qwen3_tts.layers import Block
from oscine.models.qwen3_tts.weights import PredictorWeights, TalkerWeights, TextWeights
from oscine.ops import Cache, Ops, QKNorm, RopeTable, TalkerState, Tensor


@dataclass(frozen=True, slots=True)
class Networks:
    """What speaks: weights on the device.

    projected: the predictor's inputs for codes 0 to G - 2, each [V or C, d]; None where both widths
    are the same, and a code's own row is the input.
    """

    config: Qwen3TtsConfig
    talker: TalkerWeights
    predictor: PredictorWeights
    projected: tuple[Tensor, ...] | None


def project_text(ops: Ops, w: TextWeights, x: Tensor) -> Tensor:
    """Rows of the text embedding [R, text width] -> [R, D]."""
    return ops.linear(ops.linear(x, w.fc1, activation="silu"), w.fc2)


def block(
    ops: Ops,
    x: Tensor,
    w: Block,
    stack: Stack,
    cache: Cache,
    rotary: RopeTable,
    utterances: TalkerState,
    *,
    within_frame: bool = False,
) -> Tensor:
    """A layer, five dispatches: x [B·L, width] -> [B·L, width]. within_frame: of the predictor."""
    norms = None
    if w.q_norm is not None and w.k_norm is not None:
        norms = QKNorm(w.q_norm, w.k_norm, stack.eps)
    qkv = ops.linear(x, w.qkv, norm=w.norm)
    attended = ops.causal_attention(
        qkv, cache, utterances, stack.heads, rope=rotary, norms=norms, within_frame=within_frame
    )
    x = ops.linear(attended, w.out, add=x)
    gated = ops.swiglu_linear(x, w.gate_up, norm=w.mlp_norm)
    return ops.linear(gated, w.down, add=x)


def talk(ops: Ops, networks: Networks, buffers: Buffers, x: Tensor) -> Tensor:
    """The talker's layers: x [B·L, D] -> [B·L, D], not yet normalised."""
    stack = networks.config.talker
    for index, (w, cache) in enumerate(zip(networks.talker.blocks, buffers.caches, strict=True)):
        x = block(ops, x, w, stack, cache, buffers.rotary, buffers.utterances)
        ops.probe(f"talker.layer{index}", x)
    return x


def predict(ops: Ops, networks: Networks, buffers: Buffers, hidden: Tensor) -> None:
    """Codes 1 to G - 1 of the frame whose code 0 was chosen from hidden [B, D].

    Leaves the sum of the rows of all codes but the last in buffers.total.
    """
    w, stack = networks.predictor, networks.config.predictor
    tables: Sequence[Tensor] = (networks.talker.embedding, *w.embeddings)
    before = hidden if w.project is None else ops.linear(hidden, w.project)
    for group, head in enumerate(w.heads):
        x = ops.code_embedding(
            tables[group],
            buffers.utterances,
            buffers.total,
            networks.projected[group] if networks.projected is not None else None,
            first=group == 0,
            before=before if group == 0 else None,
        )
        ops.probe(f"predictor.input{group}", x)
        for layer, cache in zip(w.blocks, buffers.predictor_caches, strict=True):
            x = block(
                ops,
                x,
                layer,
                stack,
                cache,
                buffers.predictor_rotary,
                buffers.utterances,
                within_frame=True,
            )
        ops.probe(f"predictor.rows{group}", x)  # before the norm
        logits = ops.linear(x, head, norm=w.norm)
        ops.probe(f"predictor.logits{group}", logits)
        ops.sample_code(logits, buffers.predictor_rules, buffers.utterances)


def choose(ops: Ops, networks: Networks, buffers: Buffers, x: Tensor) -> None:
    """All codes of a frame from the talker's last rows [B, D], or the end of the utterance."""
    hidden = ops.rms_norm(x, networks.talker.norm)
    ops.probe("talker.hidden", hidden)
    logits = ops.linear(hidden, networks.talker.head)
    ops.probe("talker.logits", logits)
    ops.sample_code(logits, buffers.rules, buffers.utterances)
    predict(ops, networks, buffers, hidden)


def start(ops: Ops, networks: Networks, buffers: Buffers, prompt: Tensor) -> None:
    """Hear the prompt [B·L, D] and choose the first frame."""
    x = talk(ops, networks, buffers, prompt)
    choose(ops, networks, buffers, ops.gather_rows(x, buffers.utterances))


def step(ops: Ops, networks: Networks, buffers: Buffers) -> None:
    """Hear the frame before and choose the next."""
    last = networks.predictor.embeddings[-1]
    x = ops.sum_embeddings(buffers.total, last, buffers.text, buffers.utterances)
    ops.probe("talker.input", x)
    choose(ops, networks, buffers, talk(ops, networks, buffers, x))
