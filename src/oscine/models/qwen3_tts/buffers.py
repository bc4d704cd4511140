"""The memory of utterances that are spoken side by side, and how many bytes it takes.

S slots, P positions of each (a prompt's rows and then one a frame), N rows of text, B rows of a
batch, G codes a frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from oscine import ops
from oscine.models.qwen3_tts.config import Qwen3TtsConfig, Stack
from oscine.models.qwen3_tts.rope import rotary

Allocate = Callable[[tuple[int, ...], Any], ops.Tensor]  # a shape and a dtype: Backend.zeros


@dataclass(frozen=True, slots=True)
class Buffers:
    """What plans read and write: the state of a batch's rows, and the memory of every slot.

    Caches of every layer [S, P, K·W] of the talker and [S, G, k·w] of the predictor. total [S, D]:
    the sum of the frame's rows so far. text [S, N, D]: what is added to each frame. rules and
    predictor_rules [S] of SAMPLING. A prompt's pass has state rows of its own: it takes
    `replace(buffers, utterances=...)`.
    """

    utterances: ops.TalkerState
    caches: tuple[ops.Cache, ...]
    rotary: ops.RopeTable
    predictor_caches: tuple[ops.Cache, ...]
    predictor_rotary: ops.RopeTable
    total: ops.Tensor
    text: ops.Tensor
    rules: ops.Tensor
    predictor_rules: ops.Tensor


def make_buffers(
    allocate: Allocate,
    config: Qwen3TtsConfig,
    slots: int,
    positions: int,
    texts: int = 1,
    *,
    cache: Any = np.float32,
) -> Buffers:
    """Buffers of `slots` slots, and of as many rows of a batch. cache: dtype of the talker's keys
    and values, float32 or float16. Write the tables of rotary positions: `write_tables`.
    """
    talker, predictor, groups = config.talker, config.predictor, config.groups

    def caches(stack: Stack, room: int, dtype: Any) -> tuple[ops.Cache, ...]:
        shape = slots, room, stack.key_width
        return tuple(
            ops.Cache(allocate(shape, dtype), allocate(shape, dtype)) for _ in range(stack.layers)
        )

    def tables(stack: Stack, room: int) -> ops.RopeTable:
        shape = room, stack.head_width // 2
        return ops.RopeTable(allocate(shape, np.float32), allocate(shape, np.float32))

    return Buffers(
        utterances=ops.TalkerState(
            allocate((slots,), ops.TALKER_STATE),
            allocate((slots, positions, groups), np.uint32),
            allocate((slots, config.vocabulary), np.uint32),
        ),
        caches=caches(talker, positions, cache),
        rotary=tables(talker, positions),
        predictor_caches=caches(predictor, groups, np.float32),
        predictor_rotary=tables(predictor, groups),
        total=allocate((slots, talker.width), np.float32),
        text=allocate((slots, texts, talker.width), np.float32),
        rules=allocate((slots,), ops.SAMPLING_PARAMS),
        predictor_rules=allocate((slots,), ops.SAMPLING_PARAMS),
    )


def write_tables(backend: ops.Backend, config: Qwen3TtsConfig, buffers: Buffers) -> None:
    """Write the cosines and sines of both stacks' positions."""
    for stack, slot in (
        (config.talker, buffers.rotary),
        (config.predictor, buffers.predictor_rotary),
    ):
        made = rotary(slot.cos.shape[0], stack.head_width, stack.theta)
        backend.write(slot.cos, made.cos)
        backend.write(slot.sin, made.sin)


def bytes_of(
    config: Qwen3TtsConfig, slots: int, positions: int, texts: int = 1, *, cache: Any = np.float32
) -> int:
    """Bytes of such buffers; weights, the codec's memory and what plans compute come on top."""
    sizes: list[int] = []

    def count(shape: tuple[int, ...], dtype: Any) -> None:
        sizes.append(prod(shape) * np.dtype(dtype).itemsize)

    make_buffers(count, config, slots, positions, texts, cache=cache)
    return sum(sizes)
