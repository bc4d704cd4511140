"""The burst loop, the only one: steps of a batch are submitted ahead of the poll before them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from oscine.engine.runner import Delivers, Lane, Look, Seat, Wait
from oscine.errors import DeviceLostError
from oscine.ops import Backend


@dataclass(slots=True)
class Occupancy:
    """How full the batches of an engine are."""

    bursts: int = 0
    rows: int = 0  # summed over bursts
    sequences: int = 0  # likewise
    most: int = 0  # sequences at once
    shared: int = 0  # bursts with sequences of several callers

    def count(self, seats: Sequence[Seat], width: int) -> None:
        """A burst of these sequences."""
        self.bursts += 1
        self.rows += width * len(seats)
        self.sequences += len(seats)
        self.most = max(self.most, len(seats))
        self.shared += len({id(seat.sequence.caller) for seat in seats}) > 1

    @property
    def mean(self) -> float:
        """Sequences a burst."""
        return self.sequences / self.bursts if self.bursts else 0.0


@dataclass(slots=True)
class Batch:
    """The rows of one lane.

    `pinned`: the number of rows that every plan is recorded for, whatever is in use, and prompts
    run one by one; None: the smallest bucket that covers those in use.
    """

    lane: Lane
    backend: Backend
    occupancy: Occupancy
    pinned: int | None = None
    places: list[Seat | None] = field(default_factory=list)  # by row // width
    pending: deque[tuple[list[Look], Wait]] = field(default_factory=deque)
    fresh: bool = False  # some have just started, and what their prompts left is to be read

    @property
    def seats(self) -> list[Seat]:
        """The sequences that run."""
        return [seat for seat in self.places if seat is not None]

    def all_seats(self) -> list[Seat]:
        """Likewise, and those of passes whose results are yet to be read."""
        looked = [seat for looks, _ in self.pending for seat, _row in looks]
        return [seat for seat in dict.fromkeys([*self.seats, *looked]) if not seat.over]

    @property
    def busy(self) -> bool:
        """Whether there is anything to do or to read."""
        return bool(self.pending) or any(seat is not None for seat in self.places)

    def start(self, seats: Sequence[Seat]) -> None:
        """Give sequences their rows and run their prompts."""
        lane = self.lane
        self.fresh = lane.looks_first
        most = lane.most if self.pinned is None else 1
        for at in range(0, len(seats), most):
            part = seats[at : at + most]
            if not lane.burst:  # a pass has its rows to itself
                for number, seat in enumerate(part):
                    seat.row = number * lane.width
                lane.start(part)
                self.look([(seat, seat.row) for seat in part], len(part))
                continue
            for seat in part:
                self.sit(seat)
            lane.start(part)
            if lane.looks_first:
                self.look([(seat, seat.row) for seat in part], len(self.places))

    def sit(self, seat: Seat) -> None:
        """The first free rows."""
        if None not in self.places:
            self.places.append(None)
        number = self.places.index(None)
        self.places[number], seat.row = seat, number * self.lane.width

    def look(self, looks: list[Look], count: int) -> None:
        """Mark the state of `count` sequences' rows as it is once all before is done."""
        rows = self.bucket(count) * self.lane.width
        tensors = self.lane.outputs(rows, [seat for seat, _ in looks])
        self.pending.append((looks, self.backend.snapshot(*tensors)))

    def bucket(self, count: int) -> int:
        """The number of sequences to record a plan for."""
        if self.pinned is not None:
            return max(1, self.pinned // self.lane.width)
        return self.backend.padded_lines(max(1, count))

    def advance(self, steps: int) -> None:
        """Submit a burst of at most `steps` steps for the rows in use."""
        seats = [seat for seat in self.seats if not seat.spent]
        if not seats or not self.lane.burst:
            return
        self.fresh = False
        self.compact()
        count = len(self.places)
        self.occupancy.count(seats, self.lane.width)
        plan = self.lane.step(self.bucket(count) * self.lane.width, seats)
        plan.run(min(steps, self.lane.burst))
        self.look([(seat, seat.row) for seat in seats], count)

    def compact(self) -> None:
        """Close gaps where a smaller plan then covers all rows."""
        while self.places and self.places[-1] is None:
            self.places.pop()
        count = len(self.seats)
        if self.bucket(count) == self.bucket(len(self.places)):
            return
        moves: list[tuple[int, int]] = []
        for number in range(count, len(self.places)):
            seat = self.places[number]
            if seat is None:
                continue
            to = self.places.index(None)
            for row in range(self.lane.width):
                moves.append((seat.row + row, to * self.lane.width + row))
            self.places[to], self.places[number] = seat, None
            seat.row = to * self.lane.width
        del self.places[count:]
        self.lane.move(moves)
        self.lane.stop({row for row, _ in moves} - {row for _, row in moves})

    def poll(self, ahead: int) -> Iterator[Seat]:
        """Read snapshots until `ahead` are left; yields the seats that have ended."""
        while len(self.pending) > ahead:
            looks, wait = self.pending.popleft()
            arrays = wait()
            current = [(seat, row) for seat, row in looks if not seat.over]
            for seat in self.lane.collect(current, arrays):
                self.free(seat)
                yield seat

    def deliver(self) -> Iterator[Seat]:
        """Hand over what polls have set in motion; yields the seats that end with it."""
        if isinstance(self.lane, Delivers):
            for seat in self.lane.deliver():
                self.free(seat)
                yield seat

    def free(self, seat: Seat) -> None:
        """Take a sequence out of its rows; snapshots that are under way no longer concern it."""
        seat.over = True
        if seat in self.places:
            self.places[self.places.index(seat)] = None

    def drop(self, seat: Seat) -> None:
        """Likewise, of a sequence that has not ended: its rows are marked as done."""
        self.free(seat)
        self.stop(range(seat.row, seat.row + self.lane.width))

    def stop(self, rows: Iterable[int]) -> None:
        """Mark rows as done, or raise DeviceLostError, as others take their slots."""
        if not self.lane.burst:
            return
        try:
            self.lane.stop(rows)
        except DeviceLostError:
            raise
        except Exception as error:
            raise DeviceLostError(self.backend.name, f"its rows do not stop: {error}") from error
