"""A network for the engine's tests: it counts.

A sequence begins with a number and takes some steps, each of which multiplies it and adds what its
encoder input was encoded to. What a step does depends on the row's own state alone, kept in slots,
so a mistake of rows, slots, encoder slots or order shows in the result. The device is emulated:
work is done in the order of the queue, and a snapshot shows the moment of its request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from oscine.engine.runner import Arrays, BatchEntry, SnapshotRow
from oscine.engine.sequence import EncoderInput, Sequence, StreamedSequence
from oscine.errors import DeviceLostError, DeviceMemoryError, UsageError

MODULUS = 1_000_003
ROW = np.dtype(
    [("done", np.uint32), ("slot", np.uint32), ("left", np.uint32), ("encoder_slot", np.int32)]
)


class Count(StreamedSequence[int, int]):
    """Result: the number after `steps` steps; pieces: how many steps each poll has seen."""

    def __init__(
        self, number: int, steps: int, audio: EncoderInput | None = None, rows: int = 1
    ) -> None:
        super().__init__(audio, rows, ("count", rows))
        self.number, self.steps, self.seen = number, steps, 0

    def alone(self) -> int:
        """What it must come to."""
        added = 0 if self.audio is None else encoded(self.audio)
        total = 0
        for row in range(self.rows):
            number = self.number + row
            for _ in range(self.steps):
                number = (number * 31 + 7 + added) % MODULUS
            total += number
        return total


class Pass(Sequence[int]):
    """A single pass: result is the encoding plus the number."""

    def __init__(self, number: int, audio: EncoderInput) -> None:
        super().__init__(audio, 1, "pass")
        self.number = number

    def alone(self) -> int:
        assert self.audio is not None
        return self.number + encoded(self.audio)


def audio(number: int) -> EncoderInput:
    return EncoderInput(np.full((2, 2), number, np.float32))


def encoded(given: EncoderInput) -> int:
    return int(given.features.sum()) + 1


class Device:
    """The part of a backend that the engine uses.

    After `lose_after` submits it is lost; those that `faults` numbers raise what it has for them.
    """

    name = "counting"

    def __init__(self, is_async: bool, lose_after: int | None = None) -> None:
        self.is_async, self.lose_after = is_async, lose_after
        self.submits = 0
        self.faults: dict[int, BaseException] = {}

    def submit(self) -> None:
        self.submits += 1
        if self.submits in self.faults:
            raise self.faults[self.submits]
        if self.lose_after is not None and self.submits > self.lose_after:
            raise DeviceLostError(self.name, "a test")

    def snapshot(self, *tensors: Any) -> Callable[[], tuple[Any, ...]]:
        self.submit()
        copies = tuple(tensor.copy() for tensor in tensors)
        return lambda: copies

    def wait(self) -> None:
        self.submit()

    def bucket_rows(self, count: int) -> int:
        return 1 << (count - 1).bit_length()


class Plan:
    def __init__(self, step: Callable[[], None], device: Device) -> None:
        self.step, self.device = step, device

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            self.device.submit()
            self.step()


class Counting:
    """Rows that count."""

    poll_after_prefill, prefill_batch = False, 3

    def __init__(self, runner: Runner, group_size: int) -> None:
        self.runner, self.group_size = runner, group_size
        self.stage, self.steps_per_poll = "count", runner.steps_per_poll
        self.rows = np.zeros(256, ROW)
        self.rows["done"] = 1
        self.poll_after_prefill = runner.poll_after_prefill

    def start(self, entries: list[BatchEntry]) -> None:
        self.runner.device_.submit()
        for entry in entries:
            sequence = entry.sequence
            assert isinstance(sequence, Count)
            assert len(entry.slots) == self.group_size
            for number, slot in enumerate(entry.slots):
                assert self.rows["done"][entry.row + number], "a running row is overwritten"
                encoder_slot = -1 if entry.encoder_slot is None else entry.encoder_slot
                done = int(sequence.steps == 0)
                self.rows[entry.row + number] = (done, slot, sequence.steps, encoder_slot)
                self.runner.numbers[slot] = sequence.number + number

    def step_plan(self, rows: int, entries: list[BatchEntry]) -> Plan:
        return Plan(lambda: self.advance(rows), self.runner.device_)

    def advance(self, rows: int) -> None:
        running = [row for row in self.rows[:rows] if not row["done"]]
        slots = [int(row["slot"]) for row in running]
        assert len(set(slots)) == len(slots), "two rows have one slot"
        for row in running:
            added = 0 if row["encoder_slot"] < 0 else self.runner.encodings[row["encoder_slot"]]
            number = self.runner.numbers[row["slot"]]
            self.runner.numbers[row["slot"]] = (number * 31 + 7 + added) % MODULUS
            row["left"] -= 1
            row["done"] = int(row["left"] == 0)

    def outputs(self, rows: int, entries: list[BatchEntry]) -> tuple[Any, ...]:
        return self.rows[:rows], self.runner.numbers

    def move_rows(self, moves: Iterable[tuple[int, int]]) -> None:
        for source, target in moves:
            self.rows[target] = self.rows[source]

    def stop_rows(self, rows: Iterable[int]) -> None:
        for row in rows:
            self.runner.device_.submit()
            self.rows["done"][row] = 1

    def collect(self, snapshot_rows: list[SnapshotRow], arrays: Arrays) -> Iterator[BatchEntry]:
        rows, numbers = arrays
        for entry, row in snapshot_rows:
            sequence = entry.sequence
            assert isinstance(sequence, Count)
            state = rows[row : row + self.group_size]
            assert tuple(state["slot"]) == entry.slots
            steps = sequence.steps - int(state["left"][0])
            if steps > sequence.seen:
                sequence.push(steps - sequence.seen)
                sequence.seen = steps
            if state["done"].all():
                sequence.finish(int(numbers[list(entry.slots)].sum()))
                yield entry


class Delivering(Counting):
    """Whose results are handed over a turn after they are read."""

    def __init__(self, runner: Runner, group_size: int) -> None:
        super().__init__(runner, group_size)
        self.ended: list[tuple[BatchEntry, int]] = []

    def collect(self, snapshot_rows: list[SnapshotRow], arrays: Arrays) -> Iterator[BatchEntry]:
        rows, numbers = arrays
        for entry, row in snapshot_rows:
            if not entry.rows_done and rows["done"][row : row + self.group_size].all():
                entry.rows_done = True
                self.ended.append((entry, int(numbers[list(entry.slots)].sum())))
        yield from ()

    def deliver(self) -> Iterator[BatchEntry]:
        ended, self.ended = self.ended, []
        for entry, result in ended:
            if not entry.removed:
                entry.sequence.finish(result)
                yield entry


class Passing:
    """What is computed at once."""

    stage, steps_per_poll, group_size, prefill_batch, poll_after_prefill = (
        "pass",
        0,
        1,
        2,
        False,
    )

    def __init__(self, runner: Runner) -> None:
        self.runner, self.results = runner, np.zeros(4, np.int64)

    def start(self, entries: list[BatchEntry]) -> None:
        for entry in entries:
            sequence = entry.sequence
            assert isinstance(sequence, Pass) and entry.encoder_slot is not None
            self.results[entry.row] = sequence.number + self.runner.encodings[entry.encoder_slot]

    def step_plan(self, rows: int, entries: list[BatchEntry]) -> Plan:
        raise AssertionError

    move_rows = stop_rows = step_plan

    def outputs(self, rows: int, entries: list[BatchEntry]) -> tuple[Any, ...]:
        return (self.results[:rows],)

    def collect(self, snapshot_rows: list[SnapshotRow], arrays: Arrays) -> Iterator[BatchEntry]:
        for entry, row in snapshot_rows:
            entry.sequence.finish(int(arrays[0][row]))
            yield entry


class Runner:
    """Counts on an emulated device with room for `room` slots."""

    def __init__(
        self,
        *,
        is_async: bool = True,
        steps_per_poll: int = 4,
        room: int = 1000,
        encode_batch: int = 2,
        lose_after: int | None = None,
        poll_after_prefill: bool = False,
        delivers: bool = False,
        name: str = "counting",
    ) -> None:
        self.backend: Any = Device(is_async, lose_after)
        self.device_ = self.backend
        self.device, self.steps_per_poll, self.room = name, steps_per_poll, room
        self.encode_batch, self.poll_after_prefill = encode_batch, poll_after_prefill
        self.delivers = delivers
        self.timings: dict[str, float] = {}
        self.numbers = np.zeros(0, np.int64)
        self.encodings = np.zeros(0, np.int64)
        self.encoded: list[int] = []
        self.executors: dict[Any, Any] = {}
        self.reserved: list[tuple[int, int]] = []

    def check(self, sequence: Sequence[Any]) -> None:
        if isinstance(sequence, Count) and sequence.steps < 0:
            raise UsageError("fewer than no steps")

    def executor(self, key: Any) -> Any:
        if key not in self.executors:
            counting = Delivering if self.delivers else Counting
            self.executors[key] = Passing(self) if key == "pass" else counting(self, key[1])
        return self.executors[key]

    def reserve(self, slots: int, encoder_slots: int, sequence: Sequence[Any]) -> None:
        self.device_.submit()
        if slots > self.room:
            raise DeviceMemoryError(self.device, f"no room for {slots} slots")
        self.reserved.append((slots, encoder_slots))
        self.numbers = np.concatenate(
            [self.numbers, np.zeros(max(0, slots - len(self.numbers)), np.int64)]
        )
        more = np.zeros(max(0, encoder_slots - len(self.encodings)), np.int64)
        self.encodings = np.concatenate([self.encodings, more])

    def release(self, slots: int, encoder_slots: int, *, plans: bool = False) -> None:
        self.numbers, self.encodings = self.numbers[:slots], self.encodings[:encoder_slots]
        self.executors.clear()

    def encode(self, inputs: list[EncoderInput], encoder_slots: list[int]) -> None:
        assert len(inputs) <= self.encode_batch
        self.device_.submit()
        for given, encoder_slot in zip(inputs, encoder_slots, strict=True):
            self.encodings[encoder_slot] = encoded(given)
            self.encoded.append(encoder_slot)
