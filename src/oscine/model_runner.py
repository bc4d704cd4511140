"""The protocol of what runs a loaded model's network, `ModelRunner`, which every family implements.

The engine, the models and the loader share it; engine.runner.SequenceRunner extends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from oscine.ops import Backend


class ModelRunner(Protocol):
    """A network with its weights on a device. It suffices for an engine that only takes calls."""

    device: str  # the device's name, for people
    backend: Backend
    timings: dict[str, float]  # milliseconds by stage

    def trace(self) -> dict[str, tuple[int, float]]:
        """Passes and milliseconds by stage, as the device measured them: ops.Backend.trace."""


RunnerT = TypeVar("RunnerT", bound=ModelRunner)
