"""Access to a network's intermediate values while it runs.

Forwards name their stages: `ops.probe("encoder.layer3", x)`. Inside `probing` each stage that is
computed is passed to a function, on NumPy and on GPUs; elsewhere a stage costs nothing.
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
    """A probing block; `probe` is None once the block has ended, in any thread."""

    __slots__ = ("outer", "probe")

    def __init__(self, probe: Probe, outer: _Block | None) -> None:
        self.probe: Probe | None = probe
        self.outer = outer


_block: ContextVar[_Block | None] = ContextVar("probe", default=None)


@contextmanager
def probing(probe: Probe) -> Iterator[None]:
    """Call `probe(name, values)` for each stage that a network computes inside the block.

    Args:
        probe: Called with the name of the stage and a copy of its values, time first, in the shape
            of the forward. It may raise to stop the call; it must not run the model itself.

    Only calls of this thread, or of this asyncio task, are probed. An inner block replaces an outer
    one, and a block that ends in another thread, as in a generator that threads pass on, has ended
    everywhere. A GPU waits at every stage, and also shows steps after the end of a sequence, with
    the values that the last one left.

    Raises:
        UsageError: If `probe` is not callable.
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
    """The probe of this thread or task; None outside a probing block."""
    block = _block.get()
    while block is not None and block.probe is None:
        block = block.outer
    return None if block is None else block.probe
