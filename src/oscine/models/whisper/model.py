"""Whisper's forward pass, written once against the op vocabulary.

Source: Radford et al. 2022, arXiv:2212.04356; openai/whisper whisper/model.py. N windows in a pass
of the encoder, S positions of each, d width, R rows of the decoder. Every residual sum rides on the
linear layer before it.
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
from oscine.ops import Cache, ConvParams, Linear, Ops, Tensor, TextDecoderState


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """Of a layer's attention to the audio: some heads [A], and the slot [A, B·L, S] that keeps
    their weights."""

    heads: tuple[int, ...]
    slot: Tensor


NO_WEIGHTS: Mapping[int, KeptWeights] = MappingProxyType({})


def encoder_block(ops: Ops, x: Tensor, w: EncoderBlock, heads: int, batch: int) -> Tensor:
    """x [N·S, d] -> [N·S, d]."""
    qkv = ops.linear(x, w.qkv, norm=w.attention_norm)
    x = ops.linear(ops.attention(qkv, heads, batch), w.out, add=x)
    hidden = ops.linear(x, w.up, norm=w.mlp_norm, activation="gelu")
    return ops.linear(hidden, w.down, add=x)


def encode(
    ops: Ops, w: EncoderWeights, config: WhisperConfig, mel: Tensor, batch: int = 1
) -> Tensor:
    """Log-mel [N·2S, n_mels] of `batch` windows, one behind another -> [N·S, d].

    A checkpoint without a final norm is run without it.
    """
    x = ops.conv1d(mel, w.conv1, ConvParams.same(3), activation="gelu", batch=batch)
    half = ConvParams.same(3, stride=2)
    x = ops.conv1d(x, w.conv2, half, activation="gelu", add=w.positions, batch=batch)
    ops.probe("encoder.stem", x)
    for index, block in enumerate(w.blocks):
        x = encoder_block(ops, x, block, config.n_audio_head, batch)
        ops.probe(f"encoder.layer{index}", x)
    if w.norm is not None:
        x = ops.layer_norm(x, w.norm)
    ops.probe("encoder.out", x)
    return x


def remember(ops: Ops, w: DecoderWeights, audio: Tensor, memory: Sequence[Tensor]) -> None:
    """Project encoded windows [N·S, d] to every layer's cross keys and values: slots [N·S, 2d]."""
    for block, slot in zip(w.blocks, memory, strict=True):
        ops.store(ops.linear(audio, block.cross_kv), slot)


def decoder_block(
    ops: Ops,
    x: Tensor,
    w: DecoderBlock,
    heads: int,
    cache: Cache,
    kv: Tensor,
    state: TextDecoderState,
    kept: KeptWeights | None = None,
) -> Tensor:
    """x [R, d] -> [R, d]; appends to the cache."""
    qkv = ops.linear(x, w.qkv, norm=w.attention_norm)
    x = ops.linear(ops.causal_attention(qkv, cache, state, heads), w.out, add=x)
    q = ops.linear(x, w.cross_q, norm=w.cross_norm)
    if kept is not None:
        ops.store(ops.cross_attention_weights(q, kv, state, heads, kept.heads), kept.slot)
    x = ops.linear(ops.cross_attention(q, kv, state, heads), w.cross_out, add=x)
    hidden = ops.linear(x, w.up, norm=w.mlp_norm, activation="gelu")
    return ops.linear(hidden, w.down, add=x)


def decode(
    ops: Ops,
    w: DecoderWeights,
    config: WhisperConfig,
    caches: Sequence[Cache],
    memory: Sequence[Tensor],
    state: TextDecoderState,
    prompt: Tensor | None = None,
    kept: Mapping[int, KeptWeights] = NO_WEIGHTS,
) -> Tensor:
    """Hidden rows before the final norm [B·L, d], for a prompt [B, L] or each state's token.

    `kept`: by layer, the attention to the audio that is computed beside and kept.
    """
    x = ops.embed(w.embedding, w.positions, state, prompt)
    ops.probe("decoder.embedding", x)
    layers = zip(w.blocks, caches, memory, strict=True)
    for index, (block, cache, kv) in enumerate(layers):
        x = decoder_block(ops, x, block, config.n_text_head, cache, kv, state, kept.get(index))
        ops.probe(f"decoder.layer{index}", x)
    return x


def logits(ops: Ops, w: DecoderWeights, x: Tensor) -> Tensor:
    """Hidden rows [R, d] -> [R, V]; the head is the embedding, tied."""
    y = ops.linear(x, Linear(w.embedding, None), norm=w.norm)
    ops.probe("decoder.logits", y)
    return y
