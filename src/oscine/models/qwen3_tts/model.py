"""Talker and code predictor, written once against the op vocabulary.

Source: qwen_tts/core/models/modeling_qwen3_tts.py. B utterances of a batch, L rows of each, S
slots, D the talker's width, d the code predictor's, G codes a frame. A plan generates a whole
frame: it samples all codes from the talker's last rows on the device, without a transfer to the
host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oscine.models.qwen3_tts.buffers import TalkerBuffers
from oscine.models.qwen3_tts.config import Qwen3TtsConfig, TransformerConfig
from oscine.models.qwen3_tts.layers import TransformerLayer
from oscine.models.qwen3_tts.weights import CodePredictorWeights, TalkerWeights, TextWeights
from oscine.ops import KVCache, Ops, QKNorm, RopeTable, TalkerState, Tensor


@dataclass(frozen=True, slots=True)
class TalkerNetworks:
    """Weights of talker and code predictor on the device.

    projected_embeddings: the code predictor's inputs for codes 0 to G - 2, each [V or C, d]; None
    if both widths are equal, so that a code's own embedding is the input.
    """

    config: Qwen3TtsConfig
    talker: TalkerWeights
    code_predictor: CodePredictorWeights
    projected_embeddings: tuple[Tensor, ...] | None


def project_text(ops: Ops, w: TextWeights, x: Tensor) -> Tensor:
    """Project text embeddings [R, text_hidden_size] -> [R, D]."""
    return ops.linear(ops.linear(x, w.fc1, activation="silu"), w.fc2)


def transformer_layer(
    ops: Ops,
    x: Tensor,
    w: TransformerLayer,
    stack: TransformerConfig,
    cache: KVCache,
    rope: RopeTable,
    state: TalkerState,
    *,
    within_frame: bool = False,
) -> Tensor:
    """A transformer layer in five dispatches: x [B·L, width] -> [B·L, width].

    inner: as in causal_attention, positions count within a frame.
    """
    norms = None
    if w.q_norm is not None and w.k_norm is not None:
        norms = QKNorm(w.q_norm, w.k_norm, stack.norm_eps)
    qkv = ops.linear(x, w.qkv_proj, norm=w.input_layernorm)
    attended = ops.causal_attention(
        qkv,
        cache,
        state,
        stack.num_attention_heads,
        rope=rope,
        norms=norms,
        within_frame=within_frame,
    )
    x = ops.linear(attended, w.o_proj, add=x)
    gated = ops.swiglu_linear(x, w.gate_up_proj, norm=w.post_attention_layernorm)
    return ops.linear(gated, w.down_proj, add=x)


def talker(ops: Ops, networks: TalkerNetworks, buffers: TalkerBuffers, x: Tensor) -> Tensor:
    """The talker's layers: x [B·L, D] -> [B·L, D], before the final norm."""
    stack = networks.config.talker
    for index, (w, cache) in enumerate(zip(networks.talker.layers, buffers.kv_caches, strict=True)):
        x = transformer_layer(ops, x, w, stack, cache, buffers.rope, buffers.state)
        ops.probe(f"talker.layer{index}", x)
    return x


def code_predictor(
    ops: Ops, networks: TalkerNetworks, buffers: TalkerBuffers, hidden: Tensor
) -> None:
    """Sample codes 1 to G - 1 of the frame whose code 0 was sampled from hidden [B, D].

    buffers.embedding_sum then holds the sum of the embeddings of all codes but the last.
    """
    w, stack = networks.code_predictor, networks.config.code_predictor
    tables: Sequence[Tensor] = (networks.talker.codec_embedding, *w.codec_embeddings)
    preceding_rows = (
        hidden
        if w.small_to_mtp_projection is None
        else ops.linear(hidden, w.small_to_mtp_projection)
    )
    for group, head in enumerate(w.lm_heads):
        x = ops.code_embedding(
            tables[group],
            buffers.state,
            buffers.embedding_sum,
            networks.projected_embeddings[group]
            if networks.projected_embeddings is not None
            else None,
            overwrite=group == 0,
            preceding_rows=preceding_rows if group == 0 else None,
        )
        ops.probe(f"predictor.input{group}", x)
        for layer, cache in zip(w.layers, buffers.code_predictor_kv_caches, strict=True):
            x = transformer_layer(
                ops,
                x,
                layer,
                stack,
                cache,
                buffers.code_predictor_rope,
                buffers.state,
                within_frame=True,
            )
        ops.probe(f"predictor.rows{group}", x)  # before the norm
        logits = ops.linear(x, head, norm=w.norm)
        ops.probe(f"predictor.logits{group}", logits)
        ops.sample_code(logits, buffers.code_predictor_sampling_params, buffers.state)


def sample_frame(ops: Ops, networks: TalkerNetworks, buffers: TalkerBuffers, x: Tensor) -> None:
    """Sample all codes of a frame from the talker's last rows [B, D], or the end of the
    utterance.
    """
    hidden = ops.rms_norm(x, networks.talker.norm)
    ops.probe("talker.hidden", hidden)
    logits = ops.linear(hidden, networks.talker.codec_head)
    ops.probe("talker.logits", logits)
    ops.sample_code(logits, buffers.sampling_params, buffers.state)
    code_predictor(ops, networks, buffers, hidden)


def prefill(ops: Ops, networks: TalkerNetworks, buffers: TalkerBuffers, prompt: Tensor) -> None:
    """Run the prompt [B·L, D] and sample the first frame."""
    x = talker(ops, networks, buffers, prompt)
    sample_frame(ops, networks, buffers, ops.gather_rows(x, buffers.state))


def decode_step(ops: Ops, networks: TalkerNetworks, buffers: TalkerBuffers) -> None:
    """Run the talker on the previous frame and sample the next."""
    last = networks.code_predictor.codec_embeddings[-1]
    x = ops.sum_embeddings(buffers.embedding_sum, last, buffers.trailing_text, buffers.state)
    ops.probe("talker.input", x)
    sample_frame(ops, networks, buffers, talker(ops, networks, buffers, x))
