"""A look inside a network while it runs.

Forwards name their stages: `ops.probe("encoder.layer3", x)`. Inside `probing` each stage that is
computed is shown to a function, on NumPy and on a GPU alike; elsewhere a stage costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeAlias

from numpy.typing import NDArray

from oscine.errors import UsageError

Probe: TypeAlias = Callable[[str, NDArray[Any]], None]


class _Block:
    """A block that looks on; `probe` is None once it has ended, wherever that was."""

    __slots__ = ("outer", "probe")

    def __init__(self, probe: Probe, outer: _Block | None) -> None:
        self.probe: Probe | None = probe
        self.outer = outer


_block: ContextVar[_Block | None] = ContextVar("probe", default=None)


@contextmanager
def probing(probe: Probe) -> Iterator[None]:
    """Call `probe(name, values)` for each stage that a network computes inside the block.

    `values` is a copy, time first, as the forward has it. Only calls of this thread, or of this
    asyncio task, are seen; an inner block replaces an outer one, and a block that ends in another
    thread, as in a generator that threads pass on, has ended everywhere. `probe` may raise to stop
    the call; it must not run the model itself. A GPU waits at every stage, and shows steps that
    follow the end of a sequence too, with what the last one left. Raises UsageError for what cannot
    be called.
    """
    if not callable(probe):
        raise UsageError(f"probing takes a function of a name and an array, not {probe!r}")
    block = _Block(probe, _block.get())
    token = _block.set(block)
    try:
        yield
    finally:
        block.probe = None
        with suppress(ValueError):  # it ends in another thread or task than it began in
            _block.reset(token)


def current_probe() -> Probe | None:
    """The function that looks at what this thread or task runs; None where there is none."""
    block = _block.get()
    while block is not None and block.probe is None:
        block = block.outer
    return None if block is None else block.probe
