"""Whisper's forward pass, written once against the op vocabulary.

Source: Radford et al. 2022, arXiv:2212.04356; openai/whisper whisper/model.py. N windows in a pass
of the encoder, S positions of each, d width, R rows of the decoder, V vocabulary. Residual
additions are fused into the linear layer before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.weights import (
    DecoderBlock,
    DecoderWeights,
    EncoderBlock,
    EncoderWeights,
)
from oscine.ops import ConvParams, KVCache, Linear, Ops, Tensor, TextDecoderState


@dataclass(frozen=True, slots=True)
class AttentionProbe:
    """Some heads [A] of a layer's cross-attention, and the buffer [A, B·L, S] for their weights."""

    heads: tuple[int, ...]
    buffer: Tensor


NO_PROBES: Mapping[int, AttentionProbe] = MappingProxyType({})


def encoder_block(ops: Ops, x: Tensor, w: EncoderBlock, heads: int, batch: int) -> Tensor:
    """One layer of the encoder: x [N·S, d] -> [N·S, d]."""
    qkv = ops.linear(x, w.qkv, norm=w.attn_ln)
    x = ops.linear(ops.attention(qkv, heads, batch), w.attn_out, add=x)
    hidden = ops.linear(x, w.fc1, norm=w.mlp_ln, activation="gelu")
    return ops.linear(hidden, w.fc2, add=x)


def encode(
    ops: Ops, w: EncoderWeights, config: WhisperConfig, mel: Tensor, batch: int = 1
) -> Tensor:
    """The encoder: log-mel [N·2S, n_mels] of `batch` consecutive windows -> [N·S, d].

    Checkpoints without a final norm end with the last block.
    """
    x = ops.conv1d(mel, w.conv1, ConvParams.same(3), activation="gelu", batch=batch)
    half = ConvParams.same(3, stride=2)
    x = ops.conv1d(x, w.conv2, half, activation="gelu", add=w.positional_embedding, batch=batch)
    ops.probe("encoder.stem", x)
    for index, block in enumerate(w.blocks):
        x = encoder_block(ops, x, block, config.n_audio_head, batch)
        ops.probe(f"encoder.layer{index}", x)
    if w.ln_post is not None:
        x = ops.layer_norm(x, w.ln_post)
    ops.probe("encoder.out", x)
    return x


def compute_cross_kv(ops: Ops, block: DecoderBlock, audio: Tensor, buffer: Tensor) -> None:
    """Project encoder output [N·S, d] to a layer's cross keys and values: buffer [N·S, 2d]."""
    ops.store(ops.linear(audio, block.cross_kv), buffer)


def decoder_block(
    ops: Ops,
    x: Tensor,
    w: DecoderBlock,
    heads: int,
    cache: KVCache,
    cross_kv: Tensor,
    state: TextDecoderState,
    probe: AttentionProbe | None = None,
) -> Tensor:
    """One layer of the decoder: x [R, d] -> [R, d]; appends keys and values to the cache.

    `cross_kv`: the encoder's keys and values [encoder slots, S, 2d] of this layer.
    """
    qkv = ops.linear(x, w.qkv, norm=w.attn_ln)
    x = ops.linear(ops.causal_attention(qkv, cache, state, heads), w.attn_out, add=x)
    q = ops.linear(x, w.cross_q, norm=w.cross_attn_ln)
    if probe is not None:
        weights = ops.cross_attention_weights(q, cross_kv, state, heads, probe.heads)
        ops.store(weights, probe.buffer)
    x = ops.linear(ops.cross_attention(q, cross_kv, state, heads), w.cross_attn_out, add=x)
    hidden = ops.linear(x, w.fc1, norm=w.mlp_ln, activation="gelu")
    return ops.linear(hidden, w.fc2, add=x)


def decode(
    ops: Ops,
    w: DecoderWeights,
    config: WhisperConfig,
    caches: Sequence[KVCache],
    cross_kv: Sequence[Tensor],
    state: TextDecoderState,
    prompt: Tensor | None = None,
    probes: Mapping[int, AttentionProbe] = NO_PROBES,
) -> Tensor:
    """The decoder without its final norm: [B·L, d], for a prompt [B, L] or each state's token.

    `probes`: by layer, cross-attention weights to compute in addition.
    """
    x = ops.embed(w.token_embedding, w.positional_embedding, state, prompt)
    ops.probe("decoder.embedding", x)
    layers = zip(w.blocks, caches, cross_kv, strict=True)
    for index, (block, cache, kv) in enumerate(layers):
        x = decoder_block(ops, x, block, config.n_text_head, cache, kv, state, probes.get(index))
        ops.probe(f"decoder.layer{index}", x)
    return x


def logits(ops: Ops, w: DecoderWeights, x: Tensor) -> Tensor:
    """The logits [R, V] of hidden rows [R, d]; the projection is the token embedding, tied."""
    y = ops.linear(x, Linear(w.token_embedding, None), norm=w.ln)
    ops.probe("decoder.logits", y)
    return y
