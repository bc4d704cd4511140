"""Allocation of slots: numbered places of a batch's sequences and of encoder outputs."""

from __future__ import annotations

import weakref

from oscine.engine.sequence import EncoderInput


class SlotAllocator:
    """Hands out the slots 0 to `count` - 1, lowest first.

    A slot is a numbered place in the buffers of the sequences: their caches, tokens and parameters.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(reversed(range(count)))

    @property
    def available(self) -> int:
        """The number of free slots."""
        return len(self._free)

    @property
    def in_use(self) -> int:
        """The number of allocated slots."""
        return self.count - len(self._free)

    def allocate(self, count: int) -> tuple[int, ...]:
        """The lowest free slots. Raises ValueError where fewer are free."""
        if count > len(self._free):
            raise ValueError(f"cannot allocate {count} slots: {len(self._free)} are free")
        return tuple(self._free.pop() for _ in range(count))

    def release(self, slots: tuple[int, ...]) -> None:
        """Free slots, to be allocated again."""
        self._free = sorted({*self._free, *slots}, reverse=True)

    def resize(self, count: int) -> None:
        """Change the number of slots. Raises ValueError where one beyond `count` is in use."""
        in_use = set(range(self.count)) - set(self._free)
        if any(slot >= count for slot in in_use):
            raise ValueError(f"cannot shrink to {count} slots: {sorted(in_use)} are in use")
        self.count = count
        self._free = sorted(set(range(count)) - in_use, reverse=True)


class EncoderCache:
    """Which encoder input has its output in which slot of the encoder's output buffers.

    Slots are counted by the sequences that read them; a slot in use is not evicted. Of the others,
    a new input takes an empty slot first, then one whose input no caller holds, then the least
    recently used.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._inputs: dict[int, weakref.ref[EncoderInput]] = {}  # the least recently used first
        self._readers: dict[int, int] = {}  # of slots in use

    @property
    def in_use(self) -> int:
        """The number of slots that sequences read."""
        return len(self._readers)

    def find(self, audio: EncoderInput) -> int | None:
        """The slot of an input's encoding; None where it has none."""
        for slot, known in self._inputs.items():
            if known() is audio:
                return slot
        return None

    def contains(self, audio: EncoderInput) -> bool:
        """Whether an input has a slot."""
        return self.find(audio) is not None

    def acquire(self, audio: EncoderInput) -> tuple[int, bool] | None:
        """A slot for an input, and whether the input is encoded in it; None where all are in use.

        Each call is undone by one of `release`.
        """
        slot = self.find(audio)
        encoded = slot is not None
        if slot is None:
            slot = self._evictable()
        if slot is None:
            return None
        self._inputs.pop(slot, None)
        self._inputs[slot] = weakref.ref(audio)
        self._readers[slot] = self._readers.get(slot, 0) + 1
        return slot, encoded

    def release(self, slot: int) -> None:
        """Note that one sequence fewer reads a slot."""
        readers = self._readers[slot] - 1
        if readers:
            self._readers[slot] = readers
        else:
            del self._readers[slot]

    def invalidate(self, slot: int) -> None:
        """Forget the input of a slot, whose contents are not its encoding."""
        self._inputs.pop(slot, None)

    def resize(self, count: int) -> None:
        """Change the number of slots. Raises ValueError where one beyond `count` is in use."""
        if any(slot >= count for slot in self._readers):
            raise ValueError(f"cannot shrink to {count}: {sorted(self._readers)} are in use")
        self.count = count
        self._inputs = {slot: known for slot, known in self._inputs.items() if slot < count}

    def _evictable(self) -> int | None:
        unused = [slot for slot in self._inputs if slot not in self._readers]
        empty = set(range(self.count)) - set(self._inputs) - set(self._readers)
        dead = [slot for slot in unused if self._inputs[slot]() is None]
        return next(iter([*sorted(empty), *dead, *unused]), None)
