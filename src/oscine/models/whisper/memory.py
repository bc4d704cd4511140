"""Device memory of Whisper's decoder: KV caches, cross keys and values, parameters of slots.

It grows as needed. S slots, W encoder slots of windows, A encoder positions, C text positions,
d width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.errors import DeviceMemoryError
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.sequences import DecodingRequest

MAX_ROWS = 128  # slots, and rows of an executor


class DecoderMemory:
    """KV caches by slot, and cross-attention keys and values by encoder slot.

    caches: self-attention keys and values [S, C, d] of each layer. cross_kv: keys and values
    [W, A, 2d] of each layer, for A encoder positions, in `cross_kv_dtype`. tokens and
    cache_indirection [S, C], params [S] of ops.DECODE_PARAMS, masks [S, V]. prompt_states [S] of
    ops.TEXT_DECODER_STATE: by the first slot of a group, the row that computed its prompt.
    """

    def __init__(self, config: WhisperConfig, backend: ops.Backend, cross_kv_dtype: type) -> None:
        self.config, self.backend, self.cross_kv_dtype = config, backend, cross_kv_dtype
        self.slots = self.encoder_slots = 0
        self.caches: list[ops.KVCache] = []
        self.cross_kv: list[ops.Tensor] = []
        context = config.n_text_ctx
        self.tokens = backend.zeros((MAX_ROWS, context), np.uint32)
        self.cache_indirection = backend.zeros((MAX_ROWS, context), np.uint32)
        self.params = backend.zeros((MAX_ROWS,), ops.DECODE_PARAMS)
        self.prompt_states = backend.zeros((MAX_ROWS,), ops.TEXT_DECODER_STATE)
        self.mask_rows: dict[Any, int] = {}  # rows of `masks` by suppression lists
        self.mask_row_of_slot: dict[int, int] = {}  # rows of `masks` by slot

    def fits(self, slots: int, encoder_slots: int) -> bool:
        """Whether the memory is large enough for that many slots and encoder slots."""
        return slots <= self.slots and encoder_slots <= self.encoder_slots

    def reserve(self, slots: int, encoder_slots: int) -> None:
        """Grow to that many slots and encoder slots; contents are kept.

        Buffers are replaced, so plans must be recorded again. Raises DeviceMemoryError, after which
        nothing has changed.
        """
        slots, encoder_slots = max(slots, self.slots), max(encoder_slots, self.encoder_slots)
        self.check_free_memory(slots - self.slots, encoder_slots - self.encoder_slots)
        allocated: list[ops.Tensor] = []
        try:
            windows = (
                self.allocate_cross_kv(encoder_slots, allocated)
                if encoder_slots > self.encoder_slots
                else None
            )
            slot_tensors = self.allocate_slots(slots, allocated) if slots > self.slots else None
        except DeviceMemoryError:
            self.backend.release(*allocated)
            raise
        if windows is not None:
            self.move_to(self.cross_kv, windows, self.encoder_slots)
            self.cross_kv, self.encoder_slots = windows, encoder_slots
        if slot_tensors is not None:
            self.move_to(self.slot_tensors(), slot_tensors, self.slots)
            self.use_slots(slot_tensors)
            self.slots = slots

    def check_free_memory(self, slots: int, encoder_slots: int) -> None:
        """Raise DeviceMemoryError if more would take over half of the memory known to be free."""
        needed = slots * self.slot_bytes + encoder_slots * self.encoder_slot_bytes
        ops.check_free_memory(self.backend, needed, share=0.5)

    def max_batch_size(self, group_size: int) -> int:
        """How many windows of `group_size` rows each a batch can have, by speed and by memory."""
        config, (largest, free) = self.config, self.backend.memory_limits()
        encoder_slot = self.encoder_slot_bytes // config.n_text_layer
        cache = 4 * group_size * config.n_text_state * config.n_text_ctx
        counts = [
            self.backend.preferred_batch // group_size,
            largest // encoder_slot,
            largest // cache,
        ]
        if free is not None:  # a quarter: activations and other programs need memory, too
            counts.append(free // 4 // (self.encoder_slot_bytes + group_size * self.slot_bytes))
        return max(1, min(counts))

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot."""
        config = self.config
        cache = 8 * config.n_text_layer * config.n_text_ctx * config.n_text_state
        return cache + 4 * config.n_vocab

    @property
    def encoder_slot_bytes(self) -> int:
        """Bytes of an encoder slot."""
        config = self.config
        width = 2 * config.n_text_state * np.dtype(self.cross_kv_dtype).itemsize
        return config.n_text_layer * config.n_audio_ctx * width

    def allocate_cross_kv(
        self, encoder_slots: int, allocated: list[ops.Tensor]
    ) -> list[ops.Tensor]:
        """Cross keys and values of encoder slots."""
        layers, width = self.config.n_text_layer, 2 * self.config.n_text_state
        shape = encoder_slots, self.config.n_audio_ctx, width
        for _ in range(layers):
            allocated.append(self.backend.zeros(shape, self.cross_kv_dtype))
        return allocated[-layers:]

    def allocate_slots(self, slots: int, allocated: list[ops.Tensor]) -> list[ops.Tensor]:
        """All tensors that grow with the number of slots, as in `slot_tensors`."""
        config, first = self.config, len(allocated)
        for _ in range(2 * config.n_text_layer):
            allocated.append(self.backend.zeros((slots, config.n_text_ctx, config.n_text_state)))
        allocated.append(self.backend.zeros((slots, config.n_vocab), np.uint32))
        return allocated[first:]

    def slot_tensors(self) -> list[ops.Tensor]:
        """Caches and masks, [S, ...] each."""
        if not self.slots:
            return []
        caches = [tensor for cache in self.caches for tensor in (cache.keys, cache.values)]
        return [*caches, self.masks]

    def use_slots(self, slot_tensors: list[ops.Tensor]) -> None:
        """Use newly allocated tensors."""
        *caches, self.masks = slot_tensors
        self.caches = [ops.KVCache(*pair) for pair in zip(caches[::2], caches[1::2], strict=True)]

    def move_to(self, old: list[ops.Tensor], new: list[ops.Tensor], count: int) -> None:
        """Copy the first `count` items of each old tensor to the new one, and free the old ones."""
        for source, target in zip(old, new, strict=False):
            self.backend.copy(source, target, [(item, item) for item in range(count)])
        self.backend.release(*old)

    def clear(self) -> None:
        """Free all tensors that grow."""
        self.backend.release(*self.slot_tensors(), *self.cross_kv)
        self.slots = self.encoder_slots = 0
        self.cross_kv, self.caches = [], []
        self.mask_rows.clear()
        self.mask_row_of_slot.clear()

    def mask_row(self, slots: Sequence[int], request: DecodingRequest) -> int:
        """Assign the row of `masks` with a request's suppression lists to slots; -> the row.

        There are as many rows as slots and each slot uses one, so one is always free.
        """
        for slot in slots:
            self.mask_row_of_slot.pop(slot, None)
        key = request.suppress_tokens, request.begin_suppress_tokens
        row = self.mask_rows.get(key)
        if row is None:
            used = set(self.mask_row_of_slot.values())
            row = next(row for row in range(self.slots) if row not in used)
            self.mask_rows = {k: other for k, other in self.mask_rows.items() if other != row}
            self.mask_rows[key] = row
            self.backend.write(self.masks, suppression_mask(request, self.config.n_vocab), row)
        self.mask_row_of_slot.update(dict.fromkeys(slots, row))
        return row


def suppression_mask(request: DecodingRequest, vocabulary: int) -> NDArray[np.uint32]:
    """The request's suppression lists as bits, uint32 [1, V]."""
    mask = np.zeros((1, vocabulary), np.uint32)
    mask[0, list(request.suppress_tokens)] |= ops.SUPPRESS
    mask[0, list(request.begin_suppress_tokens)] |= ops.SUPPRESS_FIRST
    return mask
