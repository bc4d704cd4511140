"""What a family tells the engine: how sequences are admitted, stepped and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from oscine.engine import sequence
from oscine.ops import Backend, Plan, Tensor

Arrays: TypeAlias = tuple[Any, ...]
Wait: TypeAlias = Callable[[], Arrays]


@dataclass(eq=False, slots=True)
class BatchEntry:
    """A sequence in a batch, of the type that its lane takes, and the memory that it holds.

    slots: its slots in the buffers that last as long as it does, one for each of its rows.
    place: the place of its encoder input's encoding. row: the first of its rows in the state of
    its lane. removed: it has left the batch. rows_done: its rows have stopped, and the lane has yet
    to deliver results that were read from them.
    """

    sequence: Any
    slots: tuple[int, ...]
    place: int | None = None
    row: int = 0
    removed: bool = False
    rows_done: bool = False


#: An entry, and its first row in a snapshot of the state: the entry may have moved since.
SnapshotRow: TypeAlias = tuple[BatchEntry, int]


class Lane(Protocol):
    """Sequences that share recorded plans: rows of state that step together.

    Every method is called by the engine's thread alone.
    """

    stage: str  # the name of its share of the timings
    burst: int  # steps between two polls; 0: `start` computes all that there is
    width: int  # rows of each sequence
    most: int  # sequences that one `start` takes
    poll_after_prefill: bool  # whether what `start` leaves is read before the first burst

    def start(self, entries: Sequence[BatchEntry]) -> None:
        """Write the state of each entry at its row, and run their prompts as one prefill.

        Other rows are left as they are: steps of theirs may be under way.
        """

    def step(self, rows: int, entries: Sequence[BatchEntry]) -> Plan:
        """The recorded plan that advances the first `rows` rows, those of `entries`, by a step."""

    def outputs(self, rows: int, entries: Sequence[BatchEntry]) -> tuple[Tensor, ...]:
        """What a poll copies to the host."""

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy rows of state from one row to another."""

    def stop(self, rows: Iterable[int]) -> None:
        """Mark rows as done whose sequences were given up."""

    def collect(self, snapshot_rows: Sequence[SnapshotRow], arrays: Arrays) -> Iterable[BatchEntry]:
        """Hand over what has grown or ended in `outputs` as they were; yields the ended entries.

        A sequence ends by `finish` or `fail`.
        """


class PassLane:
    """A lane whose `start` computes all that there is: its rows last until they are read."""

    burst, width, poll_after_prefill = 0, 1, False

    def step(self, rows: int, entries: Sequence[BatchEntry]) -> Plan:
        """There are no steps."""
        raise NotImplementedError("a pass has no steps")

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Rows of a pass do not last."""

    def stop(self, rows: Iterable[int]) -> None:
        """Likewise."""


@runtime_checkable
class DeferredDelivery(Protocol):
    """A lane whose `collect` starts work of its own on the device, such as the sound of frames."""

    def deliver(self) -> Iterable[BatchEntry]:
        """Wait for that work and hand over its results; yields the entries that have ended.

        It is called after the next burst is submitted, so that the device does not idle meanwhile.
        """


class OnDevice(Protocol):
    """A network on a device; with no more than this it takes calls alone."""

    device: str  # its name, for people
    timings: dict[str, float]  # milliseconds by stage

    def trace(self) -> dict[str, tuple[int, float]]:
        """What the backend measured of itself: ops.Backend.trace."""


class Runner(OnDevice, Protocol):
    """A network on a device, as the engine drives it."""

    backend: Backend
    encode_batch: int  # encoder inputs that one pass takes

    def check(self, sequence: sequence.Sequence[Any]) -> None:
        """Raise UsageError for what the network cannot compute. Called in the caller's thread."""

    def lane(self, key: Any) -> Lane:
        """The lane of a key that this family's sequences have; made on first use."""

    def reserve(self, slots: int, places: int, sequence: sequence.Sequence[Any]) -> None:
        """Have room for that many slots and encoder places, each large enough for the sequence.

        What running rows hold is kept. Raises DeviceMemoryError, after which all is as before.
        """

    def release(self, slots: int, places: int) -> None:
        """Give back what more than that many slots and places take; no row is running."""

    def encode(self, inputs: Sequence[sequence.EncoderInput], places: Sequence[int]) -> None:
        """Encode inputs side by side, at most `encode_batch`, each into its place."""


@runtime_checkable
class BatchInvariant(Protocol):
    """A runner whose kernels would differ by more than the rows of a plan."""

    def make_batch_invariant(self) -> None:
        """Let nothing that runs beside a sequence, or ran before it, choose its kernels.

        Called before any work, where results have to be the same under any load.
        """
