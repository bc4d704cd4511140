"""Places that sequences take and free: slots of the batch, and what encoders have left."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from oscine.engine.sequence import EncoderInput

Value = TypeVar("Value")


class Slots:
    """Numbers 0 to `count` - 1, lowest first."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(reversed(range(count)))

    @property
    def free(self) -> int:
        """How many can be taken."""
        return len(self._free)

    @property
    def taken(self) -> int:
        """How many are in use."""
        return self.count - len(self._free)

    def take(self, count: int) -> tuple[int, ...]:
        """The lowest free numbers. Raises ValueError where there are fewer."""
        if count > len(self._free):
            raise ValueError(f"{count} slots are wanted, {len(self._free)} are free")
        return tuple(self._free.pop() for _ in range(count))

    def give_back(self, slots: tuple[int, ...]) -> None:
        """These can be taken again."""
        self._free = sorted({*self._free, *slots}, reverse=True)

    def resize(self, count: int) -> None:
        """More or fewer numbers; of fewer, all that are left out must be free."""
        taken = set(range(self.count)) - set(self._free)
        if any(slot >= count for slot in taken):
            raise ValueError(f"slots {sorted(taken)} are in use, {count} are to be left")
        self.count = count
        self._free = sorted(set(range(count)) - taken, reverse=True)


class EncoderCache:
    """Which encoder input is encoded in which place.

    A place is pinned while sequences read it. Of the others the one that was used longest ago is
    taken for a new input; inputs that no caller holds any more go first.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._places: dict[int, weakref.ref[EncoderInput]] = {}  # in order of use
        self._pins: dict[int, int] = {}

    @property
    def pinned(self) -> int:
        """How many places sequences read."""
        return len(self._pins)

    def find(self, audio: EncoderInput) -> int | None:
        """Where an input is encoded."""
        for place, known in self._places.items():
            if known() is audio:
                return place
        return None

    def holds(self, audio: EncoderInput) -> bool:
        """Whether an input is encoded or pinned somewhere."""
        return self.find(audio) is not None

    def claim(self, audio: EncoderInput) -> tuple[int, bool] | None:
        """A pinned place, and whether the input is encoded there; None where all are pinned."""
        place = self.find(audio)
        encoded = place is not None
        if place is None:
            place = self._spare()
        if place is None:
            return None
        self._places.pop(place, None)
        self._places[place] = weakref.ref(audio)
        self._pins[place] = self._pins.get(place, 0) + 1
        return place, encoded

    def unpin(self, place: int) -> None:
        """A sequence has ended that read it."""
        left = self._pins[place] - 1
        if left:
            self._pins[place] = left
        else:
            del self._pins[place]

    def forget(self, place: int) -> None:
        """What is in it cannot be used."""
        self._places.pop(place, None)

    def resize(self, count: int) -> None:
        """More or fewer places; those that are left out must not be pinned."""
        if any(place >= count for place in self._pins):
            raise ValueError(f"places {sorted(self._pins)} are read, {count} are to be left")
        self.count = count
        self._places = {place: known for place, known in self._places.items() if place < count}

    def _spare(self) -> int | None:
        known = [place for place in self._places if place not in self._pins]
        unknown = set(range(self.count)) - set(self._places) - set(self._pins)
        dead = [place for place in known if self._places[place]() is None]
        return next(iter([*sorted(unknown), *dead, *known]), None)


class PlanCache(Generic[Value]):
    """What is recorded by shape, made on first use; of more than `most` the oldest in use goes."""

    def __init__(self, most: int, release: Callable[[Value], None] | None = None) -> None:
        self._most, self._release = most, release
        self._made: dict[Hashable, Value] = {}

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """What is recorded for a key."""
        if key in self._made:
            value = self._made.pop(key)
        else:
            while len(self._made) >= self._most:
                self._drop(next(iter(self._made)))
            value = make()
        self._made[key] = value
        return value

    def __len__(self) -> int:
        return len(self._made)

    def clear(self) -> None:
        """All of it; what plans read or write is about to be replaced."""
        for key in list(self._made):
            self._drop(key)

    def _drop(self, key: Hashable) -> None:
        value = self._made.pop(key)
        if self._release is not None:
            self._release(value)
