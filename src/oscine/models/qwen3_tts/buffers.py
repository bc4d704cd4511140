"""Buffers of utterances that are generated in one batch, and how many bytes they take.

S slots, P positions of each (the prompt's rows, then one a frame), N rows of trailing text, B rows
of a batch, G codes a frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from oscine import ops
from oscine.models.qwen3_tts.config import Qwen3TtsConfig, TransformerConfig
from oscine.models.qwen3_tts.rope import rope_table

Allocate = Callable[[tuple[int, ...], Any], ops.Tensor]  # a shape and a dtype: Backend.zeros


@dataclass(frozen=True, slots=True)
class TalkerBuffers:
    """Buffers that plans read and write: the state of a batch's rows, and the data of every slot.

    KV caches of every layer: [S, P, K·W] of the talker, [S, G, k·w] of the code predictor.
    embedding_sum [S, D]: the sum of the embeddings of the frame's codes so far. trailing_text [S,
    N, D]: the text embedding that is added to each frame. sampling_params and
    code_predictor_sampling_params: [S] of SAMPLING_PARAMS. A prefill has state rows of its own: it
    takes `replace(buffers, state=...)`.
    """

    state: ops.TalkerState
    kv_caches: tuple[ops.KVCache, ...]
    rope: ops.RopeTable
    code_predictor_kv_caches: tuple[ops.KVCache, ...]
    code_predictor_rope: ops.RopeTable
    embedding_sum: ops.Tensor
    trailing_text: ops.Tensor
    sampling_params: ops.Tensor
    code_predictor_sampling_params: ops.Tensor


def allocate_buffers(
    allocate: Allocate,
    config: Qwen3TtsConfig,
    slots: int,
    positions: int,
    trailing_text_rows: int = 1,
    *,
    cache_dtype: Any = np.float32,
) -> TalkerBuffers:
    """Buffers of `slots` slots, and of as many rows of a batch.

    cache_dtype: float32 or float16, the dtype of the talker's keys and values. The RoPE tables are
    written by `write_rope_tables`.
    """
    talker, predictor, groups = config.talker, config.code_predictor, config.num_code_groups

    def caches(stack: TransformerConfig, capacity: int, dtype: Any) -> tuple[ops.KVCache, ...]:
        shape = slots, capacity, stack.kv_size
        return tuple(
            ops.KVCache(allocate(shape, dtype), allocate(shape, dtype))
            for _ in range(stack.num_hidden_layers)
        )

    def tables(stack: TransformerConfig, capacity: int) -> ops.RopeTable:
        shape = capacity, stack.head_dim // 2
        return ops.RopeTable(allocate(shape, np.float32), allocate(shape, np.float32))

    return TalkerBuffers(
        state=ops.TalkerState(
            allocate((slots,), ops.TALKER_STATE),
            allocate((slots, positions, groups), np.uint32),
            allocate((slots, config.vocab_size), np.uint32),
        ),
        kv_caches=caches(talker, positions, cache_dtype),
        rope=tables(talker, positions),
        code_predictor_kv_caches=caches(predictor, groups, np.float32),
        code_predictor_rope=tables(predictor, groups),
        embedding_sum=allocate((slots, talker.hidden_size), np.float32),
        trailing_text=allocate((slots, trailing_text_rows, talker.hidden_size), np.float32),
        sampling_params=allocate((slots,), ops.SAMPLING_PARAMS),
        code_predictor_sampling_params=allocate((slots,), ops.SAMPLING_PARAMS),
    )


def write_rope_tables(backend: ops.Backend, config: Qwen3TtsConfig, buffers: TalkerBuffers) -> None:
    """Write the cosines and sines of both transformers' positions."""
    for stack, slot in (
        (config.talker, buffers.rope),
        (config.code_predictor, buffers.code_predictor_rope),
    ):
        made = rope_table(slot.cos.shape[0], stack.head_dim, stack.rope_theta)
        backend.write(slot.cos, made.cos)
        backend.write(slot.sin, made.sin)


def buffer_bytes(
    config: Qwen3TtsConfig,
    slots: int,
    positions: int,
    trailing_text_rows: int = 1,
    *,
    cache_dtype: Any = np.float32,
) -> int:
    """Bytes of these buffers, without weights, the codec's states and intermediates of plans."""
    sizes: list[int] = []

    def count(shape: tuple[int, ...], dtype: Any) -> None:
        sizes.append(prod(shape) * np.dtype(dtype).itemsize)

    allocate_buffers(count, config, slots, positions, trailing_text_rows, cache_dtype=cache_dtype)
    return sum(sizes)
