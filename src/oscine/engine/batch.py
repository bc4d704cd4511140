"""A batch of sequences on the device: its rows, the bursts of steps, and the polls of its state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from oscine.engine.runner import BatchEntry, BatchExecutor, DeferredDelivery, SnapshotRow, Wait
from oscine.errors import DeviceLostError
from oscine.ops import Backend


@dataclass(slots=True)
class Occupancy:
    """How full the batches of an engine were, counted over its bursts."""

    bursts: int = 0
    rows: int = 0  # sum over the bursts
    sequences: int = 0  # sum over the bursts
    max_sequences: int = 0  # in one burst
    multi_caller_bursts: int = 0  # bursts with sequences of several callers

    def count(self, entries: Sequence[BatchEntry], group_size: int) -> None:
        """Count a burst of sequences of `group_size` rows each."""
        self.bursts += 1
        self.rows += group_size * len(entries)
        self.sequences += len(entries)
        self.max_sequences = max(self.max_sequences, len(entries))
        self.multi_caller_bursts += len({id(entry.sequence.caller) for entry in entries}) > 1

    @property
    def mean(self) -> float:
        """The mean number of sequences in a burst; 0 before the first."""
        return self.sequences / self.bursts if self.bursts else 0.0


@dataclass(slots=True)
class Batch:
    """The running sequences of one executor, in rows of its state.

    A burst is submitted before the snapshot of the burst before it is read, so that the device does
    not wait for the host. `fixed_rows`: the number of rows that every plan is recorded for, however
    few are in use; prompts then run one by one. None: the smallest bucket of rows that are in use.
    """

    executor: BatchExecutor
    backend: Backend
    occupancy: Occupancy
    fixed_rows: int | None = None
    by_group: list[BatchEntry | None] = field(default_factory=list)  # by row // group_size
    pending: deque[tuple[list[SnapshotRow], Wait]] = field(default_factory=deque)
    poll_first: bool = False  # whether a prefill's output has to be read before the next burst

    @property
    def entries(self) -> list[BatchEntry]:
        """The entries that have rows."""
        return [entry for entry in self.by_group if entry is not None]

    def live_entries(self) -> list[BatchEntry]:
        """The entries that have rows, and those in snapshots that are not read yet."""
        pending = [entry for snapshot_rows, _ in self.pending for entry, _row in snapshot_rows]
        return [entry for entry in dict.fromkeys([*self.entries, *pending]) if not entry.removed]

    @property
    def has_work(self) -> bool:
        """Whether there is a row to step or a snapshot to read."""
        return bool(self.pending) or any(entry is not None for entry in self.by_group)

    def start(self, entries: Sequence[BatchEntry]) -> None:
        """Assign rows to entries, and run their prompts."""
        executor = self.executor
        self.poll_first = executor.poll_after_prefill
        size = executor.prefill_batch if self.fixed_rows is None else 1
        for at in range(0, len(entries), size):
            part = entries[at : at + size]
            if not executor.steps_per_poll:  # a pass has its rows to itself
                for number, entry in enumerate(part):
                    entry.row = number * executor.group_size
                executor.start(part)
                self.snapshot([(entry, entry.row) for entry in part], len(part))
                continue
            for entry in part:
                self.assign_rows(entry)
            executor.start(part)
            if executor.poll_after_prefill:
                self.snapshot([(entry, entry.row) for entry in part], len(self.by_group))

    def assign_rows(self, entry: BatchEntry) -> None:
        """Assign the first free rows to an entry."""
        if None not in self.by_group:
            self.by_group.append(None)
        number = self.by_group.index(None)
        self.by_group[number], entry.row = entry, number * self.executor.group_size

    def snapshot(self, snapshot_rows: list[SnapshotRow], count: int) -> None:
        """Queue a copy of the rows of `count` sequences, as they are after the work so far."""
        rows = self.bucket(count) * self.executor.group_size
        tensors = self.executor.outputs(rows, [entry for entry, _ in snapshot_rows])
        self.pending.append((snapshot_rows, self.backend.snapshot(*tensors)))

    def bucket(self, count: int) -> int:
        """The number of sequences to record a plan for, of which `count` are in use."""
        if self.fixed_rows is not None:
            return max(1, self.fixed_rows // self.executor.group_size)
        return self.backend.bucket_rows(max(1, count))

    def submit_burst(self, steps: int) -> None:
        """Submit a burst of at most `steps` steps of the rows in use, and a snapshot after it."""
        entries = [entry for entry in self.entries if not entry.rows_done]
        if not entries or not self.executor.steps_per_poll:
            return
        self.poll_first = False
        self.compact()
        count = len(self.by_group)
        self.occupancy.count(entries, self.executor.group_size)
        plan = self.executor.step_plan(self.bucket(count) * self.executor.group_size, entries)
        plan.run(min(steps, self.executor.steps_per_poll))
        self.snapshot([(entry, entry.row) for entry in entries], count)

    def compact(self) -> None:
        """Move entries into free rows where a plan of a smaller bucket then covers all of them."""
        while self.by_group and self.by_group[-1] is None:
            self.by_group.pop()
        count = len(self.entries)
        if self.bucket(count) == self.bucket(len(self.by_group)):
            return
        moves: list[tuple[int, int]] = []
        for number in range(count, len(self.by_group)):
            entry = self.by_group[number]
            if entry is None:
                continue
            to = self.by_group.index(None)
            for row in range(self.executor.group_size):
                moves.append((entry.row + row, to * self.executor.group_size + row))
            self.by_group[to], self.by_group[number] = entry, None
            entry.row = to * self.executor.group_size
        del self.by_group[count:]
        self._must(self.executor.move_rows, moves)
        self.stop_rows({row for row, _ in moves} - {row for _, row in moves})

    def poll(self, ahead: int) -> Iterator[BatchEntry]:
        """Read snapshots until `ahead` are left; yields the entries that have ended."""
        while len(self.pending) > ahead:
            snapshot_rows, wait = self.pending.popleft()
            arrays = wait()
            current = [(entry, row) for entry, row in snapshot_rows if not entry.removed]
            for entry in self.executor.collect(current, arrays):
                self.remove(entry)
                yield entry

    def deliver(self) -> Iterator[BatchEntry]:
        """Deliver the results of work that polls have started; yields the entries that end."""
        if isinstance(self.executor, DeferredDelivery):
            for entry in self.executor.deliver():
                self.remove(entry)
                yield entry

    def remove(self, entry: BatchEntry) -> None:
        """Take an entry that has ended out of its rows; later snapshots ignore it."""
        entry.removed = True
        if entry in self.by_group:
            self.by_group[self.by_group.index(entry)] = None

    def abort(self, entry: BatchEntry) -> None:
        """Take an entry that has not ended out of its rows, and stop them."""
        self.remove(entry)
        self.stop_rows(range(entry.row, entry.row + self.executor.group_size))

    def stop_rows(self, rows: Iterable[int]) -> None:
        """Mark rows as done. Raises DeviceLostError where that fails, as others get their slots."""
        if self.executor.steps_per_poll:
            self._must(self.executor.stop_rows, rows)

    def _must(self, work: Callable[..., None], *given: Any) -> None:
        """Call what may not fail: without it, rows would run in slots of other sequences."""
        try:
            work(*given)
        except DeviceLostError:
            raise
        except BaseException as error:  # also SystemExit, as a probe may raise
            raise DeviceLostError(self.backend.name, f"its rows do not stop: {error}") from error
