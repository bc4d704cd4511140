"""Memory of a Parakeet's sequences, which grows by need while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from oscine.errors import DeviceMemoryError
from oscine.models.parakeet.config import ParakeetConfig
from oscine.ops import TRANSDUCER_STEP, Backend, Tensor, check_free_memory, copy_starts

MIN_CTC_ROWS = 64  # of results of a CTC head, at least


@dataclass(frozen=True, slots=True)
class Size:
    """Slots of sequences, encoder slots of inputs, and encoder frames of each encoder slot."""

    slots: int = 0
    encoder_slots: int = 0
    frames: int = 0

    @property
    def max_decisions(self) -> int:
        """Capacity of a slot; the host reads its decisions whenever it is full."""
        return 2 * self.frames + 16


#: Shape and dtype of each buffer, by its name.
Layout: TypeAlias = Mapping[str, tuple[tuple[int, ...], Any]]


def transducer_layout(config: ParakeetConfig, size: Size) -> Layout:
    """Decisions and LSTM state by slot, projected frames by encoder slot."""
    halves = size.slots, config.predictor_layers, 2, config.predictor_dim
    return {
        "decisions": ((size.slots, size.max_decisions), TRANSDUCER_STEP),
        "hidden": (halves, np.float32),
        "cell": (halves, np.float32),
        "joint": ((size.slots, config.joint_dim), np.float32),
        "pool": ((size.encoder_slots, size.frames, config.joint_dim), np.float32),
    }


def ctc_layout(config: ParakeetConfig, size: Size) -> Layout:
    """Label and probability of each frame by encoder slot, and rows of results."""
    return {
        "found": ((max(MIN_CTC_ROWS, size.slots), size.frames, 2), np.float32),
        "pool": ((size.encoder_slots, size.frames, 2), np.float32),
    }


def bytes_of(layout: Layout) -> int:
    """Of all its buffers."""
    return sum(prod(shape) * np.dtype(kind).itemsize for shape, kind in layout.values())


class Memory:
    """The buffers of a layout. All of them are there as soon as `grow` was called once."""

    def __init__(self, backend: Backend, layout: Callable[[Size], Layout]) -> None:
        self.backend, self.layout = backend, layout
        self.size = Size()
        self.buffers: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self.buffers[name]

    def grow(self, size: Size) -> None:
        """Make buffers of another size, which hold what those before held.

        No plan over the ones before may run after that. Raises DeviceMemoryError, after which all
        is as before.
        """
        layout = self.layout(size)
        changed = {
            name: wanted
            for name, wanted in layout.items()
            if name not in self.buffers or self.buffers[name].shape != wanted[0]
        }
        made = self.make(changed)
        old = {name: self.buffers[name] for name in made if name in self.buffers}
        for name, buffer in old.items():
            copy_starts(self.backend, buffer, made[name], [(i, i) for i in range(buffer.shape[0])])
        self.buffers |= made
        self.size = size
        self.backend.release(*old.values())

    def make(self, layout: Layout) -> dict[str, Tensor]:
        """All of these buffers, or none: DeviceMemoryError."""
        check_free_memory(self.backend, bytes_of(layout))
        made: dict[str, Tensor] = {}
        try:
            for name, (shape, kind) in layout.items():
                made[name] = self.backend.zeros(shape, kind)
        except DeviceMemoryError:
            self.backend.release(*made.values())
            raise
        return made

    def clear(self) -> None:
        """Give all of it back."""
        self.backend.release(*self.buffers.values())
        self.buffers, self.size = {}, Size()
