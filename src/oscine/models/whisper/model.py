"""Whisper's forward pass, written once against the op vocabulary.

Source: Radford et al. 2022, arXiv:2212.04356; openai/whisper whisper/model.py. S encoder positions,
d width, R rows of the decoder. Every residual sum rides on the linear layer before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.weights import (
    DecoderBlock,
    DecoderWeights,
    EncoderBlock,
    EncoderWeights,
)
from oscine.ops import Cache, Linear, Ops, State, Tensor

Watch: TypeAlias = Callable[[Tensor, Tensor], None]
NOBODY: Mapping[int, Watch] = MappingProxyType({})


def encoder_block(ops: Ops, x: Tensor, w: EncoderBlock, heads: int) -> Tensor:
    """x [S, d] -> [S, d]."""
    qkv = ops.linear(x, w.qkv, norm=w.attention_norm)
    x = ops.linear(ops.attention(qkv, heads), w.out, add=x)
    hidden = ops.linear(x, w.up, norm=w.mlp_norm, activation="gelu")
    return ops.linear(hidden, w.down, add=x)


def encode(
    ops: Ops, w: EncoderWeights, config: WhisperConfig, mel: Tensor, layers: int | None = None
) -> Tensor:
    """Log-mel [2S, n_mels] -> [S, d].

    layers=n stops after n blocks and leaves the final norm out (0: the stem alone), to find by
    bisection where two implementations part. A checkpoint without a final norm goes without.
    """
    x = ops.conv1d(mel, w.conv1, activation="gelu")
    x = ops.conv1d(x, w.conv2, stride=2, activation="gelu", add=w.positions)
    for block in w.blocks[:layers]:
        x = encoder_block(ops, x, block, config.n_audio_head)
    return x if w.norm is None or layers is not None else ops.layer_norm(x, w.norm)


def remember(ops: Ops, w: DecoderWeights, audio: Tensor, memory: Sequence[Tensor]) -> None:
    """Project the encoded window [S, d] to every layer's cross keys and values: slots [S, 2d]."""
    for block, slot in zip(w.blocks, memory, strict=True):
        ops.keep(ops.linear(audio, block.cross_kv), slot)


def decoder_block(
    ops: Ops,
    x: Tensor,
    w: DecoderBlock,
    heads: int,
    cache: Cache,
    kv: Tensor,
    state: State,
    watch: Watch | None = None,
) -> Tensor:
    """x [R, d] -> [R, d]; appends to the cache, and shows `watch` the query and kv it asks."""
    qkv = ops.linear(x, w.qkv, norm=w.attention_norm)
    x = ops.linear(ops.attend_self(qkv, cache, state, heads), w.out, add=x)
    q = ops.linear(x, w.cross_q, norm=w.cross_norm)
    if watch is not None:
        watch(q, kv)
    x = ops.linear(ops.attend_cross(q, kv, state, heads), w.cross_out, add=x)
    hidden = ops.linear(x, w.up, norm=w.mlp_norm, activation="gelu")
    return ops.linear(hidden, w.down, add=x)


def decode(
    ops: Ops,
    w: DecoderWeights,
    config: WhisperConfig,
    caches: Sequence[Cache],
    memory: Sequence[Tensor],
    state: State,
    prompt: Tensor | None = None,
    watch: Mapping[int, Watch] = NOBODY,
) -> Tensor:
    """Hidden rows before the final norm [B·L, d], for a prompt [B, L] or each state's token.

    `watch`: by layer, who is shown the queries [B·L, d] and keys‖values [W, S, 2d] of its
    attention to the audio.
    """
    x = ops.embed(w.embedding, w.positions, state, prompt)
    layers = zip(w.blocks, caches, memory, strict=True)
    for layer, (block, cache, kv) in enumerate(layers):
        x = decoder_block(ops, x, block, config.n_text_head, cache, kv, state, watch.get(layer))
    return x


def logits(ops: Ops, w: DecoderWeights, x: Tensor) -> Tensor:
    """Hidden rows [R, d] -> [R, V]; the head is the embedding, tied."""
    return ops.linear(x, Linear(w.embedding, None), norm=w.norm)
