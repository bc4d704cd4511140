"""The engine: sequences of any callers in, batches on one device, results out.

At each turn it admits what waits into free slots, submits the next burst of every batch, and reads
the state that the burst before left. Callers never touch the device.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context
from threading import RLock
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from oscine.engine.batch import Batch, Occupancy
from oscine.engine.device_thread import DeviceThread, device_thread
from oscine.engine.queue import Queue
from oscine.engine.runner import BatchEntry, BatchInvariant, OnDevice
from oscine.engine.sequence import Call, Caller, Sequence, add_time, cancelled
from oscine.engine.slots import EncoderCache, SlotAllocator
from oscine.errors import (
    BusyError,
    Cancelled,
    DeadlineError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    UsageError,
)

log = logging.getLogger(__name__)

R = TypeVar("R", bound=OnDevice)
T = TypeVar("T")

MOST_SLOTS = 64
MOST_RESTARTS = 2  # of a sequence whose device was lost
URGENT_STEPS = 4  # of a burst while a live caller waits


class Engine(Generic[R]):
    """One network on one device, shared by all callers.

    Args:
        runner: What runs the network: a Runner. One that only takes calls needs no more than the
            attributes of a Runner.
        rebuild: Makes another runner where the device was lost; None: the loss ends all sequences.
        most_slots: Sequences side by side, at most; fewer where memory is short.
        most_waiting: Sequences that may wait; more are refused with BusyError. None: any number.
    """

    def __init__(
        self,
        runner: R,
        rebuild: Callable[[], R] | None = None,
        *,
        most_slots: int = MOST_SLOTS,
        most_waiting: int | None = None,
    ) -> None:
        self.runner: Any = runner
        self._rebuild = rebuild
        self.most_slots, self.most_waiting = most_slots, most_waiting
        self.fixed_rows: int | None = None
        self.occupancy = Occupancy()
        self._lock = RLock()  # of what callers and the device's thread both touch: the queue
        self._queue = Queue()
        self._slots, self._cache = SlotAllocator(0), EncoderCache(0)
        self._batches: dict[Any, Batch] = {}
        self._entries: dict[
            BatchEntry, None
        ] = {}  # of all that has left the queue and has not ended
        self._context: Context | None = None  # of a caller that looks into the network
        self._device_thread: DeviceThread = device_thread(runner.device)
        engines.add(self)

    # -- callers ------------------------------------------------------------------------------

    def fix_rows(self, rows: int | None = None) -> None:
        """Record every plan for this many rows, which are also the most that run.

        So the kernels, and with them the rounding of results, are the same under any load. None:
        the backend's `preferred_batch` on a GPU, and one on NumPy, as BLAS may round a row of a
        product by its place among the rows. To be called before any work.
        """
        backend = self.runner.backend
        if rows is None:
            rows = backend.preferred_batch if backend.is_async else 1
        self.fixed_rows = self.most_slots = rows
        self._make_batch_invariant()

    def _make_batch_invariant(self) -> None:
        if self.fixed_rows is not None and isinstance(self.runner, BatchInvariant):
            self.runner.make_batch_invariant()

    def submit(self, sequence: Sequence[T], caller: Caller | None = None) -> Sequence[T]:
        """Have a sequence computed; returns it, to wait for. Any thread may call it.

        Raises BusyError where too many wait, UsageError for what the network cannot compute, and
        within the work of the engine itself.
        """
        self._not_from_within()
        if not isinstance(sequence, Call):
            self.runner.check(sequence)
        with self._lock:
            if self.most_waiting is not None and len(self._queue) >= self.most_waiting:
                raise BusyError(len(self._queue))
            sequence.bind(caller or sequence.caller, lambda: self._device_thread.wake(self))
            self._queue.add(sequence)
        self._device_thread.wake(self)
        return sequence

    def _not_from_within(self) -> None:
        if self._device_thread.is_current:
            raise UsageError(
                "the model was called from within its own work, as from a probe; call it after that"
            )

    def call(self, work: Callable[[R], T], caller: Caller | None = None) -> T:
        """The result of work that has the device to itself between two bursts, waited for.

        It is called again where the device is lost under it.
        """
        return self.submit(Call(work), caller).wait()

    @property
    def running(self) -> int:
        """Sequences that have a slot."""
        return sum(len(batch.entries) for batch in self._batches.values())

    @property
    def waiting(self) -> int:
        """Sequences that have none yet."""
        with self._lock:
            return len(self._queue)

    # -- the device's thread ------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a turn would do anything."""
        return bool(len(self._queue)) or any(batch.busy for batch in self._batches.values())

    def run_iteration(self) -> None:
        """Admit, submit a burst of every batch, read what the burst before left."""
        try:
            try:
                self._drop_unwanted()
                self._admit()
                self._within(self._advance)
                if not any(batch.busy for batch in self._batches.values()):
                    self._context = None
            except DeviceLostError:
                raise
            except BaseException as error:  # a fault of the engine's own: no caller waits for ever
                self._end_all(error)
        except DeviceLostError as lost:
            self._recover(lost)

    def _within(self, work: Callable[..., None], *given: Any) -> None:
        """Run work in the context of a caller that looks into the network, if one does."""
        if self._context is None:
            work(*given)
        else:
            self._context.run(work, *given)

    def _advance(self) -> None:
        """A burst of every batch."""
        with self._lock:
            urgent = self._queue.is_urgent
        for key, batch in list(self._batches.items()):
            try:
                self._step(batch, URGENT_STEPS if urgent else batch.executor.steps_per_poll)
            except DeviceLostError:
                raise
            except DeviceMemoryError as problem:
                self._retreat(self._take_out(key), problem)
            except BaseException as error:  # as a probe may raise, which is one caller's
                for entry in self._take_out(key):
                    entry.sequence.fail(error)
                    self._leave(entry)

    def _step(self, batch: Batch, steps: int) -> None:
        """One burst of a batch, and what the one before has left."""
        started = time.perf_counter()
        entries = batch.entries
        ended: list[BatchEntry] = []
        for entry in self._ends(batch, steps):
            self._leave(entry)
            ended.append(entry)
        self._clock(
            batch.executor.stage, started, [*entries, *(s for s in ended if s not in entries)]
        )

    def _ends(self, batch: Batch, steps: int) -> Iterator[BatchEntry]:
        """Entries as they end, each before what comes after it may fail."""
        if batch.fresh:  # what the first look gives, such as a voice's first sound, goes first
            yield from batch.poll(0)
            yield from batch.deliver()
        batch.advance(steps)
        yield from batch.deliver()
        yield from batch.poll(1 if self.runner.backend.is_async and batch.entries else 0)

    def _clock(self, stage: str, started: float, entries: list[BatchEntry]) -> None:
        """Book the time since `started`, in equal shares to the sequences it was for."""
        passed = 1000 * (time.perf_counter() - started)
        add_time(self.runner.timings, stage, passed)
        for entry in entries:
            entry.sequence.caller.add_time(stage, passed / len(entries))

    def _drop_unwanted(self) -> None:
        """Free what callers gave up, or what is overdue."""
        now = time.monotonic()
        for batch in self._batches.values():
            for entry in batch.live_entries():
                sequence, late = entry.sequence, entry.sequence.is_overdue(now)
                if not (sequence.cancel_requested or late):
                    continue
                sequence.fail(DeadlineError() if late else cancelled())
                batch.drop(entry)
                self._leave(entry)
        with self._lock:
            for sequence in list(self._queue):
                if sequence.done() or sequence.is_overdue(now):
                    sequence.fail(DeadlineError())
                    self._queue.remove(sequence)

    # -- admission ----------------------------------------------------------------------------

    def _admit(self) -> None:
        """Give waiting sequences slots, in order; encode and start them together."""
        picked: list[BatchEntry] = []
        missing: list[BatchEntry] = []
        self._pick(picked, missing)
        if picked:
            self._within(self._start, picked, missing)

    def _pick(self, picked: list[BatchEntry], missing: list[BatchEntry]) -> None:
        """Sequences whose turn it is, as many as there is room for; `missing`: to be encoded.

        Not more than one pass of the encoder takes: what runs waits for no more than that.
        """
        while self._context is None and not (missing and len(missing) >= self.runner.encode_batch):
            with self._lock:
                sequence = self._queue.head()
            if sequence is None:
                break
            if sequence.context is not None:
                if picked or self.running:
                    break  # it runs alone
                self._context = sequence.context
            entry = self._allocate(sequence, missing)
            if entry is None:
                break
            with self._lock:
                self._queue.take(sequence)
            self._entries[entry] = None
            if not sequence.begin():
                sequence.fail(cancelled())
                self._leave(entry)
            elif isinstance(sequence, Call):
                self._run(sequence)
                self._leave(entry)
            else:
                picked.append(entry)

    def _allocate(self, sequence: Sequence[Any], missing: list[BatchEntry]) -> BatchEntry | None:
        """Slots and an encoder place for a sequence; None where it has to wait.

        Ends a sequence that there can be no room for.
        """
        if isinstance(sequence, Call):
            return BatchEntry(sequence, ())
        try:
            if not self._make_room(sequence):
                return None
        except DeviceMemoryError as error:
            with self._lock:
                self._queue.remove(sequence)
            sequence.fail(error)
            return None
        entry = BatchEntry(sequence, self._slots.allocate(sequence.rows))
        if sequence.audio is not None:
            claimed = self._cache.acquire(sequence.audio)
            assert claimed is not None  # there is room
            entry.place, encoded = claimed
            if not encoded:
                missing.append(entry)
        return entry

    def _make_room(self, sequence: Sequence[Any]) -> bool:
        """Whether there is a free slot for each row, and a place; grows memory as far as it goes.

        Raises DeviceMemoryError where not even this sequence alone fits.
        """
        cache, slots = self._cache, self._slots
        needed, pinned = slots.in_use + sequence.rows, cache.in_use
        if sequence.audio is not None and not cache.contains(sequence.audio):
            pinned += 1
        if needed > self.most_slots and slots.in_use:
            return False
        try:
            try:
                self._reserve(_rounded(needed), _rounded(pinned), sequence)
            except DeviceMemoryError:
                self._reserve(needed, pinned, sequence)
        except DeviceMemoryError as problem:
            if not slots.in_use:
                self._reserve_alone(sequence)
                return True
            if needed <= self.most_slots:
                self.most_slots = slots.in_use
                log.warning("%s; going on with %d side by side", problem, self.most_slots)
            return False
        return True

    def _reserve_alone(self, sequence: Sequence[Any]) -> None:
        """Memory for one sequence, where that for others before it is in the way.

        Raises DeviceMemoryError.
        """
        self._release()
        self._reserve(sequence.rows, 1, sequence)

    def _release(self) -> None:
        """Give back the memory for several sequences; none runs."""
        self._batches.clear()
        self._slots, self._cache = SlotAllocator(0), EncoderCache(0)
        self.runner.release(1, 1)

    def _reserve(self, slots: int, places: int, sequence: Sequence[Any]) -> None:
        """Memory for that many, or for as many as there are if these are more."""
        slots, places = max(slots, self._slots.count), max(places, self._cache.count)
        self.runner.reserve(slots, places, sequence)
        if slots > self._slots.count:
            self._slots.resize(slots)
        if places > self._cache.count:
            self._cache.resize(places)

    def _start(self, entries: list[BatchEntry], missing: list[BatchEntry]) -> None:
        """Encode what is not encoded yet, then run the prompts, executor by executor."""
        try:
            self._encode(missing)
            executors: dict[Any, list[BatchEntry]] = {}
            for entry in entries:
                executors.setdefault(entry.sequence.batch_key, []).append(entry)
            for key, together in executors.items():
                batch, started = self._batch(key), time.perf_counter()
                batch.start(together)
                self._clock(batch.executor.stage, started, together)
        except DeviceLostError:
            raise
        except DeviceMemoryError as problem:
            self._retreat(entries, problem)
        except BaseException as error:  # as above
            for entry in entries:
                entry.sequence.fail(error)
            self._abandon(entries)

    def _encode(self, entries: list[BatchEntry]) -> None:
        """Inputs of one kind side by side."""
        started = time.perf_counter()
        kinds: dict[Any, list[BatchEntry]] = {}
        for entry in entries:
            assert entry.sequence.audio is not None
            kinds.setdefault(entry.sequence.audio.batch_key, []).append(entry)
        if (
            self.fixed_rows is not None
        ):  # what a pass computes beside others may be rounded otherwise
            kinds = {number: [entry] for number, entry in enumerate(entries)}
        for together in kinds.values():
            inputs = [
                entry.sequence.audio for entry in together if entry.sequence.audio is not None
            ]
            places = [entry.place for entry in together if entry.place is not None]
            self.runner.encode(inputs, places)
        if not entries:
            return
        if not self.running:  # nothing else keeps the device busy: let the time be its own
            self.runner.backend.wait()
        self._clock("encode", started, entries)

    def _batch(self, key: Any) -> Batch:
        if key not in self._batches:
            executor = self.runner.executor(key)
            backend = self.runner.backend
            self._batches[key] = Batch(executor, backend, self.occupancy, self.fixed_rows)
        return self._batches[key]

    def _run(self, call: Call[Any]) -> None:
        """Work that has the device to itself."""
        try:
            context = call.context
            work = call.function
            result = context.run(work, self.runner) if context else work(self.runner)
        except DeviceLostError:
            raise
        except BaseException as error:
            call.fail(error)
        else:
            call.finish(result)
        finally:
            self._context = None

    # -- ends ---------------------------------------------------------------------------------

    def _leave(self, entry: BatchEntry) -> None:
        """Its slots and its place can be another's."""
        del self._entries[entry]
        self._slots.release(entry.slots)
        if entry.place is not None:
            self._cache.release(entry.place)

    def _abandon(self, entries: list[BatchEntry]) -> None:
        """Take sequences out whose start failed: all, or none where their rows do not stop."""
        for entry in entries:
            for batch in self._batches.values():
                if entry in batch.places:
                    batch.drop(entry)
        for entry in entries:
            if entry.place is not None:
                self._cache.invalidate(entry.place)
            entry.removed = True
            self._leave(entry)

    def _take_out(self, key: Any) -> list[BatchEntry]:
        """All sequences of a batch that cannot go on."""
        batch = self._batches[key]
        entries = batch.live_entries()
        for entry in entries:
            batch.drop(entry)
        del self._batches[key]
        return entries

    def _end_all(self, error: BaseException) -> None:
        """End everything that runs or waits. Raises DeviceLostError where its rows do not stop."""
        batches, running = list(self._batches.values()), self._forget_running()
        with self._lock:
            waiting, self._queue = list(self._queue), Queue()
        for sequence in [*(entry.sequence for entry in running), *waiting]:
            sequence.fail(error)
        for batch in batches:
            batch.stop_rows(range(len(batch.places) * batch.executor.group_size))

    def _forget_running(self) -> list[BatchEntry]:
        """The entries of all that runs; the engine is as if nothing did."""
        entries = list(self._entries)
        for entry in entries:
            entry.removed = True
        self._batches.clear()
        self._entries.clear()
        self._slots, self._cache, self._context = SlotAllocator(0), EncoderCache(0), None
        return entries

    def _retreat(self, entries: list[BatchEntry], problem: DeviceMemoryError) -> None:
        """Start fewer side by side where memory has run out, again from their prompts.

        Where nothing else runs, the memory for more is given back first. A sequence that is alone
        in memory of its own size fails.
        """
        self._abandon(entries)
        first = entries[0].sequence
        spare = self._slots.count > first.rows or self._cache.count > 1
        if len(entries) == 1 and not self.running and not spare:
            first.fail(problem)
            return
        self.most_slots = max(1, (self.running + len(entries)) // 2)
        log.warning("%s; going on with %d side by side", problem, self.most_slots)
        if not self._entries:
            self._release()
        for entry in reversed(entries):
            self._again(entry.sequence, lost=False)

    def _again(self, sequence: Sequence[Any], *, lost: bool = True) -> None:
        """Have a sequence wait at the head of its caller's, to begin from its prompt."""
        if lost:
            sequence.count_restart()
        with self._lock:
            self._queue.add(sequence, first=True)

    def _recover(self, lost: DeviceLostError) -> None:
        """Another device, and on it all that was running, from the prompts."""
        for entry in reversed(self._forget_running()):
            self._again(entry.sequence)
        problem: Exception | None = lost
        if self._rebuild is not None:
            log.warning("%s; going on from the piece it was at", lost)
            try:
                timings = self.runner.timings
                self.runner = self._rebuild()
                self.runner.timings = timings
                self._make_batch_invariant()
                problem = None
            except Exception as error:
                problem = error
        with self._lock:
            for sequence in list(self._queue):
                if problem is not None or sequence.restart_count > MOST_RESTARTS:
                    self._queue.remove(sequence)
                    sequence.fail(problem or lost)

    def release_idle_memory(self) -> None:
        """Give back the memory for several sequences; called where nothing has run for a while."""
        if self.has_work or not self._slots.count:
            return
        with suppress(DeviceError):  # of a lost device, which the next turn finds
            self._release()

    def close(self) -> None:
        """The process ends: so does what is under way."""
        self._batches.clear()  # rows that nothing steps any more need not be stopped
        self._end_all(Cancelled("the program ends"))

    def after_fork(self) -> None:
        """In a forked child: what was under way is the parent's, whose threads are not here."""
        self._lock = RLock()
        self._device_thread = device_thread(self.runner.device)
        for sequence in [*(entry.sequence for entry in self._entries), *self._queue]:
            sequence.after_fork()
        if self._batches and self.runner.backend.is_async:
            self._batches.clear()  # a GPU is not to be touched here
        self._end_all(DeviceError("this process was forked while the model was at work"))


engines: WeakSet[Engine[Any]] = WeakSet()


def _after_fork() -> None:
    for engine in list(engines):
        engine.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _rounded(count: int) -> int:
    """A power of two, so that memory grows in few steps; 0 stays."""
    return 1 << (count - 1).bit_length() if count else 0
