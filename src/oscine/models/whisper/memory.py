"""What Whisper's rows of text and encoded windows have on a device; it grows by need.

S slots, W places, C positions of text, d width, V vocabulary.
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

MOST_ROWS = 128  # slots, and rows of an executor


class DecoderMemory:
    """Slots of rows of text, and places of encoded windows.

    caches: of each layer, [S, C, d] twice. windows: of each layer, the keys and values of windows
    [W, S', 2d], `kind` float32 or float16; staged: likewise of one window on its way to its place,
    where there are several. tokens and cache_indirection [S, C], rules [S] of ops.DECODE_PARAMS,
    masks [S, V]. leads [S] of ops.TEXT_DECODER_STATE: of groups, the row that their prompt was
    computed in, by first slot.
    """

    def __init__(self, config: WhisperConfig, backend: ops.Backend, kind: type) -> None:
        self.config, self.backend, self.kind = config, backend, kind
        self.slots = self.places = 0
        self.caches: list[ops.Cache] = []
        self.windows: list[ops.Tensor] = []
        self.staged: list[ops.Tensor] = []
        context = config.n_text_ctx
        self.tokens = backend.zeros((MOST_ROWS, context), np.uint32)
        self.cache_indirection = backend.zeros((MOST_ROWS, context), np.uint32)
        self.rules = backend.zeros((MOST_ROWS,), ops.DECODE_PARAMS)
        self.leads = backend.zeros((MOST_ROWS,), ops.TEXT_DECODER_STATE)
        self.mask_rows: dict[Any, int] = {}  # by suppression lists
        self.masked: dict[int, int] = {}  # the row of `masks` that each slot uses

    def fits(self, slots: int, places: int) -> bool:
        """Whether there is room for that many."""
        return slots <= self.slots and places <= self.places

    def reserve(self, slots: int, places: int) -> None:
        """Room for that many; what there was is kept, in other buffers: plans are to be recorded
        again. Raises DeviceMemoryError, after which all is as before.
        """
        slots, places = max(slots, self.slots), max(places, self.places)
        self.check_room(slots - self.slots, places - self.places)
        made: list[ops.Tensor] = []
        try:
            windows = self.made_windows(places, made) if places > self.places else None
            cells = self.made_slots(slots, made) if slots > self.slots else None
        except DeviceMemoryError:
            self.backend.release(*made)
            raise
        if windows is not None:
            self.replace(self.windows, windows[0], self.places)
            self.backend.release(*self.staged)
            self.windows, self.staged = windows
            self.places = places
        if cells is not None:
            self.replace(self.cells(), cells, self.slots)
            self.take(cells)
            self.slots = slots

    def check_room(self, slots: int, places: int) -> None:
        """Raise DeviceMemoryError where more would take over half of what is known to be free."""
        _, free = self.backend.memory_limits()
        wanted = slots * self.slot_bytes + places * self.place_bytes
        if free is not None and wanted > free // 2:
            problem = (
                f"{wanted >> 20} MiB for more windows side by side are over half of the memory"
            )
            raise DeviceMemoryError(self.backend.name, f"{problem} that is free")

    def batch_that_fits(self, width: int) -> int:
        """Windows to decode side by side, of `width` rows each: what gains and has room."""
        config, (largest, free) = self.config, self.backend.memory_limits()
        place = self.place_bytes // config.n_text_layer
        cache = 4 * width * config.n_text_state * config.n_text_ctx
        counts = [self.backend.preferred_batch // width, largest // place, largest // cache]
        if free is not None:  # a quarter: activations and other programs want some too
            counts.append(free // 4 // (self.place_bytes + width * self.slot_bytes))
        return max(1, min(counts))

    @property
    def slot_bytes(self) -> int:
        """What a row of text takes."""
        config = self.config
        cache = 8 * config.n_text_layer * config.n_text_ctx * config.n_text_state
        return cache + 4 * config.n_vocab

    @property
    def place_bytes(self) -> int:
        """What an encoded window takes."""
        config = self.config
        width = 2 * config.n_text_state * np.dtype(self.kind).itemsize
        return config.n_text_layer * config.n_audio_ctx * width

    def made_windows(
        self, places: int, made: list[ops.Tensor]
    ) -> tuple[list[ops.Tensor], list[ops.Tensor]]:
        """Keys and values of that many windows, and of one on its way where there are several."""
        layers, width = self.config.n_text_layer, 2 * self.config.n_text_state
        shape = places, self.config.n_audio_ctx, width
        for _ in range(layers):
            made.append(self.backend.zeros(shape, self.kind))
        windows = made[-layers:]
        if places == 1:
            return windows, []
        for _ in range(layers):
            made.append(self.backend.zeros((1, *shape[1:]), self.kind))
        return windows, made[-layers:]

    def made_slots(self, slots: int, made: list[ops.Tensor]) -> list[ops.Tensor]:
        """All that grows with the number of rows of text, as in `cells`."""
        config, first = self.config, len(made)
        for _ in range(2 * config.n_text_layer):
            made.append(self.backend.zeros((slots, config.n_text_ctx, config.n_text_state)))
        made.append(self.backend.zeros((slots, config.n_vocab), np.uint32))
        return made[first:]

    def cells(self) -> list[ops.Tensor]:
        """Caches and masks: [S, ...] each."""
        if not self.slots:
            return []
        caches = [tensor for cache in self.caches for tensor in (cache.keys, cache.values)]
        return [*caches, self.masks]

    def take(self, cells: list[ops.Tensor]) -> None:
        """Use these."""
        *caches, self.masks = cells
        self.caches = [ops.Cache(*pair) for pair in zip(caches[::2], caches[1::2], strict=True)]

    def replace(self, old: list[ops.Tensor], new: list[ops.Tensor], count: int) -> None:
        """Move the first `count` items of each tensor over, and give the old ones back."""
        for source, target in zip(old, new, strict=False):
            self.backend.copy(source, target, [(item, item) for item in range(count)])
        self.backend.release(*old)

    def clear(self) -> None:
        """Give all of it back."""
        self.backend.release(*self.cells(), *self.windows, *self.staged)
        self.slots = self.places = 0
        self.windows, self.staged = [], []
        self.mask_rows.clear()
        self.masked.clear()

    def mask_row(self, slots: Sequence[int], request: DecodingRequest) -> int:
        """The row of `masks` with a request's suppression lists, from now on used by these slots.

        There is a row a slot, and each slot uses one, so one is free for other lists.
        """
        for slot in slots:
            self.masked.pop(slot, None)
        key = request.suppress_tokens, request.begin_suppress_tokens
        row = self.mask_rows.get(key)
        if row is None:
            used = set(self.masked.values())
            row = next(row for row in range(self.slots) if row not in used)
            self.mask_rows = {k: other for k, other in self.mask_rows.items() if other != row}
            self.mask_rows[key] = row
            self.backend.write(self.masks, mask_of(request, self.config.n_vocab), row)
        self.masked.update(dict.fromkeys(slots, row))
        return row


def mask_of(request: DecodingRequest, vocabulary: int) -> NDArray[np.uint32]:
    """The request's suppression lists as bits: [1, V]."""
    mask = np.zeros((1, vocabulary), np.uint32)
    mask[0, list(request.suppress_tokens)] |= ops.SUPPRESS
    mask[0, list(request.begin_suppress_tokens)] |= ops.SUPPRESS_FIRST
    return mask
