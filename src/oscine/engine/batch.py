"""The burst loop, the only one: steps of a batch are submitted ahead of the poll before them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from oscine.engine.runner import BatchEntry, BatchExecutor, DeferredDelivery, SnapshotRow, Wait
from oscine.errors import DeviceLostError
from oscine.ops import Backend


@dataclass(slots=True)
class Occupancy:
    """How full the batches of an engine are."""

    bursts: int = 0
    rows: int = 0  # summed over bursts
    sequences: int = 0  # likewise
    max_sequences: int = 0  # sequences at once
    shared: int = 0  # bursts with sequences of several callers

    def count(self, entries: Sequence[BatchEntry], group_size: int) -> None:
        """A burst of these sequences."""
        self.bursts += 1
        self.rows += group_size * len(entries)
        self.sequences += len(entries)
        self.max_sequences = max(self.max_sequences, len(entries))
        self.shared += len({id(entry.sequence.caller) for entry in entries}) > 1

    @property
    def mean(self) -> float:
        """Sequences a burst."""
        return self.sequences / self.bursts if self.bursts else 0.0


@dataclass(slots=True)
class Batch:
    """The rows of one executor.

    `fixed_rows`: the number of rows that every plan is recorded for, few or many in use; prompts
    then run one by one. None: the smallest bucket that covers the rows in use.
    """

    executor: BatchExecutor
    backend: Backend
    occupancy: Occupancy
    fixed_rows: int | None = None
    places: list[BatchEntry | None] = field(default_factory=list)  # by row // width
    pending: deque[tuple[list[SnapshotRow], Wait]] = field(default_factory=deque)
    fresh: bool = False  # some have just started, and what their prompts left is to be read

    @property
    def entries(self) -> list[BatchEntry]:
        """The sequences that run."""
        return [entry for entry in self.places if entry is not None]

    def live_entries(self) -> list[BatchEntry]:
        """Likewise, and those of passes whose results are yet to be read."""
        looked = [entry for snapshot_rows, _ in self.pending for entry, _row in snapshot_rows]
        return [entry for entry in dict.fromkeys([*self.entries, *looked]) if not entry.removed]

    @property
    def busy(self) -> bool:
        """Whether there is anything to do or to read."""
        return bool(self.pending) or any(entry is not None for entry in self.places)

    def start(self, entries: Sequence[BatchEntry]) -> None:
        """Give sequences their rows and run their prompts."""
        executor = self.executor
        self.fresh = executor.poll_after_prefill
        size = executor.prefill_batch if self.fixed_rows is None else 1
        for at in range(0, len(entries), size):
            part = entries[at : at + size]
            if not executor.steps_per_poll:  # a pass has its rows to itself
                for number, entry in enumerate(part):
                    entry.row = number * executor.group_size
                executor.start(part)
                self.look([(entry, entry.row) for entry in part], len(part))
                continue
            for entry in part:
                self.sit(entry)
            executor.start(part)
            if executor.poll_after_prefill:
                self.look([(entry, entry.row) for entry in part], len(self.places))

    def sit(self, entry: BatchEntry) -> None:
        """The first free rows."""
        if None not in self.places:
            self.places.append(None)
        number = self.places.index(None)
        self.places[number], entry.row = entry, number * self.executor.group_size

    def look(self, snapshot_rows: list[SnapshotRow], count: int) -> None:
        """Mark the state of `count` sequences' rows as it is once all before is done."""
        rows = self.bucket(count) * self.executor.group_size
        tensors = self.executor.outputs(rows, [entry for entry, _ in snapshot_rows])
        self.pending.append((snapshot_rows, self.backend.snapshot(*tensors)))

    def bucket(self, count: int) -> int:
        """The number of sequences to record a plan for."""
        if self.fixed_rows is not None:
            return max(1, self.fixed_rows // self.executor.group_size)
        return self.backend.bucket_rows(max(1, count))

    def advance(self, steps: int) -> None:
        """Submit a burst of at most `steps` steps for the rows in use."""
        entries = [entry for entry in self.entries if not entry.rows_done]
        if not entries or not self.executor.steps_per_poll:
            return
        self.fresh = False
        self.compact()
        count = len(self.places)
        self.occupancy.count(entries, self.executor.group_size)
        plan = self.executor.step(self.bucket(count) * self.executor.group_size, entries)
        plan.run(min(steps, self.executor.steps_per_poll))
        self.look([(entry, entry.row) for entry in entries], count)

    def compact(self) -> None:
        """Close gaps where a smaller plan then covers all rows."""
        while self.places and self.places[-1] is None:
            self.places.pop()
        count = len(self.entries)
        if self.bucket(count) == self.bucket(len(self.places)):
            return
        moves: list[tuple[int, int]] = []
        for number in range(count, len(self.places)):
            entry = self.places[number]
            if entry is None:
                continue
            to = self.places.index(None)
            for row in range(self.executor.group_size):
                moves.append((entry.row + row, to * self.executor.group_size + row))
            self.places[to], self.places[number] = entry, None
            entry.row = to * self.executor.group_size
        del self.places[count:]
        self.executor.move_rows(moves)
        self.executor.stop_rows({row for row, _ in moves} - {row for _, row in moves})

    def poll(self, ahead: int) -> Iterator[BatchEntry]:
        """Read snapshots until `ahead` are left; yields the entries that have ended."""
        while len(self.pending) > ahead:
            snapshot_rows, wait = self.pending.popleft()
            arrays = wait()
            current = [(entry, row) for entry, row in snapshot_rows if not entry.removed]
            for entry in self.executor.collect(current, arrays):
                self.free(entry)
                yield entry

    def deliver(self) -> Iterator[BatchEntry]:
        """Hand over what polls have set in motion; yields the entries that end with it."""
        if isinstance(self.executor, DeferredDelivery):
            for entry in self.executor.deliver():
                self.free(entry)
                yield entry

    def free(self, entry: BatchEntry) -> None:
        """Take a sequence out of its rows; snapshots that are under way no longer concern it."""
        entry.removed = True
        if entry in self.places:
            self.places[self.places.index(entry)] = None

    def drop(self, entry: BatchEntry) -> None:
        """Likewise, of a sequence that has not ended: its rows are marked as done."""
        self.free(entry)
        self.stop_rows(range(entry.row, entry.row + self.executor.group_size))

    def stop_rows(self, rows: Iterable[int]) -> None:
        """Mark rows as done, or raise DeviceLostError, as others take their slots."""
        if not self.executor.steps_per_poll:
            return
        try:
            self.executor.stop_rows(rows)
        except DeviceLostError:
            raise
        except Exception as error:
            raise DeviceLostError(self.backend.name, f"its rows do not stop: {error}") from error
