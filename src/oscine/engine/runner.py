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
class Seat:
    """A sequence in a batch, of the kind that its lane takes.

    slots: its places in the buffers that last as long as it does, one a row. place: of its encoder
    input's encoding. row: the first of its rows in its lane's state. spent: its rows are done, and
    its lane has yet to deliver what was read of them.
    """

    sequence: Any
    slots: tuple[int, ...]
    place: int | None = None
    row: int = 0
    over: bool = False
    spent: bool = False


#: A seat and the row that it had when the state was read: it may have moved since.
Look: TypeAlias = tuple[Seat, int]


class Lane(Protocol):
    """Sequences that share recorded plans: rows of state that step together.

    Every method is called by the engine's thread alone.
    """

    stage: str  # the name of its share of the timings
    burst: int  # steps between two polls; 0: `start` computes all that there is
    width: int  # rows of each sequence
    most: int  # sequences that one `start` takes
    looks_first: bool  # whether what `start` leaves is read before the first burst

    def start(self, seats: Sequence[Seat]) -> None:
        """Write the state of each seat at its row, and run their prompts as one prefill.

        Other rows are left as they are: steps of theirs may be under way.
        """

    def step(self, rows: int, seats: Sequence[Seat]) -> Plan:
        """The recorded plan that moves the first `rows` rows on by a step; `seats` run in them."""

    def outputs(self, rows: int, seats: Sequence[Seat]) -> tuple[Tensor, ...]:
        """What a poll copies to the host."""

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy rows of state from one row to another."""

    def stop(self, rows: Iterable[int]) -> None:
        """Mark rows as done whose sequences were given up."""

    def collect(self, looks: Sequence[Look], arrays: Arrays) -> Iterable[Seat]:
        """Hand over what has grown or ended in `outputs` as they were; yields the ended seats.

        A sequence ends by `finish` or `fail`.
        """


class PassLane:
    """A lane whose `start` computes all that there is: its rows last until they are read."""

    burst, width, looks_first = 0, 1, False

    def step(self, rows: int, seats: Sequence[Seat]) -> Plan:
        """There are no steps."""
        raise NotImplementedError("a pass has no steps")

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Rows of a pass do not last."""

    def stop(self, rows: Iterable[int]) -> None:
        """Likewise."""


@runtime_checkable
class Delivers(Protocol):
    """A lane whose `collect` starts work of its own on the device, such as the sound of frames."""

    def deliver(self) -> Iterable[Seat]:
        """Wait for that work and hand over its results; yields the seats that have ended.

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
class Pins(Protocol):
    """A runner whose kernels would differ by more than the rows of a plan."""

    def pin(self) -> None:
        """Let nothing that runs beside a sequence, or ran before it, choose its kernels.

        Called before any work, where results have to be the same under any load.
        """
