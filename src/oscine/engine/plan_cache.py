"""A cache of recorded plans by shape."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class PlanCache(Generic[Value]):
    """Recorded plans, or objects that hold some, by shape; the least recently used is evicted.

    Args:
        max_plans: The number of plans to keep.
        on_evict: Called with each plan that leaves the cache, to free its buffers.
    """

    def __init__(self, max_plans: int, on_evict: Callable[[Value], None] | None = None) -> None:
        self._max_plans, self._on_evict = max_plans, on_evict
        self._plans: dict[Hashable, Value] = {}  # the least recently used first

    def get(self, key: Hashable, record: Callable[[], Value]) -> Value:
        """The plan of a key; recorded, and kept, where the cache does not have it."""
        if key in self._plans:
            plan = self._plans.pop(key)
        else:
            while len(self._plans) >= self._max_plans:
                self._evict(next(iter(self._plans)))
            plan = record()
        self._plans[key] = plan
        return plan

    def __len__(self) -> int:
        return len(self._plans)

    def clear(self) -> None:
        """Evict every plan, as before buffers that plans read or write are replaced."""
        for key in list(self._plans):
            self._evict(key)

    def _evict(self, key: Hashable) -> None:
        plan = self._plans.pop(key)
        if self._on_evict is not None:
            self._on_evict(plan)
