"""The engine: it computes the sequences of all callers in batches on one device.

In each iteration it admits queued sequences into free slots, submits the next burst of every batch,
and reads the snapshot of the burst before. Callers never use the device themselves.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context
from threading import RLock
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from oscine.engine.batch import Batch, Occupancy
from oscine.engine.device_thread import DeviceThread, device_thread
from oscine.engine.queue import Queue
from oscine.engine.runner import BatchEntry, BatchInvariant
from oscine.engine.sequence import Call, Caller, Priority, Sequence, add_time, cancelled
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
from oscine.model_runner import RunnerT

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_SLOTS = 64
MAX_RESTARTS = 2  # of a sequence, after losses of its device
LIVE_STEPS_PER_POLL = 4  # most steps of a burst while a live caller waits
LIVE_ENCODE_BATCH = 4  # most inputs to encode at once while a live caller or another model waits


class Engine(Generic[RunnerT]):
    """The scheduler of one network on one device, shared by all callers.

    Args:
        runner: Runs the network: a SequenceRunner, or a ModelRunner if the engine only takes calls.
        rebuild: Makes another runner after a loss of the device; None: a loss fails all sequences.
        max_slots: The most rows that run at once; the engine lowers it where memory is short.
        max_waiting: The most sequences that may be queued; more raise BusyError. None: no limit.
    """

    def __init__(
        self,
        runner: RunnerT,
        rebuild: Callable[[], RunnerT] | None = None,
        *,
        max_slots: int = MAX_SLOTS,
        max_waiting: int | None = None,
    ) -> None:
        self.runner: Any = runner
        self._rebuild = rebuild
        self.max_slots, self.max_waiting = max_slots, max_waiting
        self.fixed_rows: int | None = None
        self.occupancy = Occupancy()
        self._lock = RLock()  # of the queue, and of what callers submit to it
        self._submitted: deque[Sequence[Any]] = deque()  # an interrupt of a caller leaves it whole
        self._queue = Queue()  # which the device's thread alone changes
        self._slots, self._cache = SlotAllocator(0), EncoderCache(0)
        self._batches: dict[Any, Batch] = {}
        self._entries: dict[BatchEntry, None] = {}  # of sequences between the queue and their end
        self._context: Context | None = None  # of a caller with a probe, whose sequence runs alone
        self._device_thread: DeviceThread = device_thread(runner.device)
        engines.add(self)

    # -- callers ------------------------------------------------------------------------------

    def fix_rows(self, rows: int | None = None) -> None:
        """Record every plan for this many rows, and run no more.

        The kernels, and so the rounding of results, are then the same under any load. None:
        the backend's `preferred_batch` on a GPU, and one on NumPy, as BLAS may round a row of a
        product by its place among the rows. Call it before any work.
        """
        backend = self.runner.backend
        if rows is None:
            rows = backend.preferred_batch if backend.is_async else 1
        self.fixed_rows = self.max_slots = rows
        self._make_batch_invariant()

    def _make_batch_invariant(self) -> None:
        if self.fixed_rows is not None and isinstance(self.runner, BatchInvariant):
            self.runner.make_batch_invariant()

    def submit(self, sequence: Sequence[T], caller: Caller | None = None) -> Sequence[T]:
        """Queue a sequence, and return it. Any thread may call it.

        Raises BusyError where the queue is full, and UsageError for a sequence that the network
        cannot compute or a call from the device's thread.
        """
        self._refuse_own_thread()
        if not isinstance(sequence, Call):
            self.runner.check(sequence)
        with self._lock:
            if self.max_waiting is not None and self.waiting >= self.max_waiting:
                raise BusyError(self.waiting)
            sequence.bind(caller or sequence.caller, lambda: self._device_thread.wake(self))
            self._submitted.append(sequence)
        self._device_thread.wake(self)
        return sequence

    def _refuse_own_thread(self) -> None:
        if self._device_thread.is_current:
            raise UsageError(
                "the model was called from within its own work, as from a probe; call it after that"
            )

    def call(self, work: Callable[[RunnerT], T], caller: Caller | None = None) -> T:
        """Wait for the result of a function of the runner, which runs between two bursts.

        It is called again where its device is lost.
        """
        return self.submit(Call(work), caller).wait()

    @property
    def running(self) -> int:
        """The number of sequences that run."""
        return sum(len(batch.entries) for batch in self._batches.values())

    @property
    def waiting(self) -> int:
        """The number of sequences in the queue."""
        with self._lock:
            return len(self._submitted) + len(self._queue)

    # -- the device's thread ------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether an iteration would do anything."""
        waiting = self._submitted or len(self._queue)  # without the lock, which a caller may hold
        return bool(waiting) or any(batch.has_work for batch in self._batches.values())

    def _queue_submitted(self) -> Queue:
        """The queue, with all sequences that callers have submitted."""
        with self._lock:
            while self._submitted:
                self._queue.add(self._submitted.popleft())
            return self._queue

    def run_iteration(self) -> None:
        """Admit sequences, submit a burst of every batch, and read the burst before."""
        try:
            try:
                self._abort_cancelled()
                self._admit()
                self._in_probe_context(self._step_batches)
                if not any(batch.has_work for batch in self._batches.values()):
                    self._context = None
            except DeviceLostError:
                raise
            except BaseException as error:  # a fault of the engine: else callers would wait forever
                self._fail_all(error)
        except DeviceLostError as lost:
            self._recover(lost)

    def _in_probe_context(self, work: Callable[..., None], *given: Any) -> None:
        """Call a function in the context of the caller with a probe, if there is one."""
        if self._context is None:
            work(*given)
        else:
            self._context.run(work, *given)

    def _step_batches(self) -> None:
        """Run a burst of every batch; a batch that fails ends without the others."""
        urgent = self._queue_submitted().is_urgent
        for key, batch in list(self._batches.items()):
            try:
                self._step_batch(
                    batch, LIVE_STEPS_PER_POLL if urgent else batch.executor.steps_per_poll
                )
            except DeviceLostError:
                raise
            except DeviceMemoryError as problem:
                self._requeue_after_out_of_memory(self._remove_batch(key), problem)
            except BaseException as error:  # such as a probe's
                for entry in self._remove_batch(key):
                    entry.sequence.fail(error)
                    self._free_entry(entry)

    def _step_batch(self, batch: Batch, steps: int) -> None:
        """Run a burst of a batch, and free the entries that end."""
        started = time.perf_counter()
        entries = batch.entries
        ended: list[BatchEntry] = []
        for entry in self._run_burst(batch, steps):
            self._free_entry(entry)
            ended.append(entry)
        self._add_time(
            batch.executor.stage, started, [*entries, *(s for s in ended if s not in entries)]
        )

    def _run_burst(self, batch: Batch, steps: int) -> Iterator[BatchEntry]:
        """Submit a burst and read the one before; yields the entries as they end."""
        if batch.poll_first:  # for a low latency of the first result, such as a voice's first sound
            yield from batch.poll(0)
            yield from batch.deliver()
        batch.submit_burst(steps)
        yield from batch.deliver()
        yield from batch.poll(1 if self.runner.backend.is_async and batch.entries else 0)

    def _add_time(self, stage: str, started: float, entries: list[BatchEntry]) -> None:
        """Add the time since `started` to a stage, in equal shares to the callers of entries."""
        passed = 1000 * (time.perf_counter() - started)
        add_time(self.runner.timings, stage, passed)
        for entry in entries:
            entry.sequence.caller.add_time(stage, passed / len(entries))

    def _abort_cancelled(self) -> None:
        """End sequences that are cancelled or overdue."""
        now = time.monotonic()
        for batch in self._batches.values():
            for entry in batch.live_entries():
                sequence, late = entry.sequence, entry.sequence.is_overdue(now)
                if not (sequence.cancel_requested or late):
                    continue
                sequence.fail(DeadlineError() if late else cancelled())
                batch.abort(entry)
                self._free_entry(entry)
        with self._lock:
            for sequence in list(self._queue_submitted()):
                late = sequence.is_overdue(now)
                if late or sequence.done() or sequence.cancel_requested:
                    sequence.fail(DeadlineError() if late else cancelled())
                    self._queue.remove(sequence)

    # -- admission ----------------------------------------------------------------------------

    def _admit(self) -> None:
        """Admit queued sequences that memory is free for: encode their inputs and start them."""
        picked: list[BatchEntry] = []
        missing: list[BatchEntry] = []
        self._select(picked, missing)
        if picked:
            self._in_probe_context(self._start, picked, missing)

    def _select(self, picked: list[BatchEntry], missing: list[BatchEntry]) -> None:
        """Allocate memory for queued sequences; appends to `picked`, and to encode to `missing`.

        At most `encode_batch` inputs are to be encoded, so that running rows wait no longer.
        """
        while self._context is None and not (missing and len(missing) >= self._max_encoded()):
            sequence = self._queue_submitted().head()
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
                if entry in missing and entry.encoder_slot is not None:  # it will not be encoded
                    missing.remove(entry)
                    self._cache.invalidate(entry.encoder_slot)
                self._free_entry(entry)
            elif isinstance(sequence, Call):
                self._run_call(sequence)
                self._free_entry(entry)
            else:
                picked.append(entry)

    def _max_encoded(self) -> int:
        """The most inputs that are encoded before the next burst."""
        most: int = self.runner.encode_batch
        live = self._queue_submitted().is_urgent or any(
            entry.sequence.caller.priority == Priority.LIVE for entry in self._entries
        )
        return min(most, LIVE_ENCODE_BATCH) if live or self._device_thread.is_shared else most

    def _allocate(self, sequence: Sequence[Any], missing: list[BatchEntry]) -> BatchEntry | None:
        """Slots and an encoder slot for a sequence; None where it has to wait.

        A sequence that does not fit in memory even alone fails.
        """
        if isinstance(sequence, Call):
            return BatchEntry(sequence, ())
        try:
            if not self._reserve_for(sequence):
                return None
        except DeviceMemoryError as error:
            with self._lock:
                self._queue.remove(sequence)
            sequence.fail(error)
            return None
        entry = BatchEntry(sequence, self._slots.allocate(sequence.rows))
        if sequence.audio is not None:
            claimed = self._cache.acquire(sequence.audio)
            assert claimed is not None  # it is reserved
            entry.encoder_slot, encoded = claimed
            if not encoded:
                missing.append(entry)
        return entry

    def _reserve_for(self, sequence: Sequence[Any]) -> bool:
        """Reserve a slot for each row, and one for the encoder's output; False: it has to wait.

        Raises DeviceMemoryError where the sequence does not fit even alone.
        """
        cache, slots = self._cache, self._slots
        needed, pinned = slots.in_use + sequence.rows, cache.in_use
        if sequence.audio is not None and not cache.contains(sequence.audio):
            pinned += 1
        if needed > self.max_slots and slots.in_use:
            return False
        if sequence.was_alone and not slots.in_use:
            self._reserve_alone(sequence)
            return True
        try:
            try:
                self._reserve(_next_power_of_two(needed), _next_power_of_two(pinned), sequence)
            except DeviceMemoryError:
                self._reserve(needed, pinned, sequence)
        except DeviceMemoryError as problem:
            if not slots.in_use:
                self._reserve_alone(sequence)
                return True
            if needed <= self.max_slots:
                self.max_slots = slots.in_use
                log.warning("%s; going on with %d side by side", problem, self.max_slots)
            return False
        return True

    def _reserve_alone(self, sequence: Sequence[Any]) -> None:
        """Free all memory but that of one sequence, and reserve it. Raises DeviceMemoryError."""
        self._release(sequence.rows, plans=True)
        self._reserve(sequence.rows, 1, sequence)

    def _release(self, slots: int = 1, *, plans: bool = False) -> None:
        """Free the memory of all sequences but one of that many rows; none is running."""
        self._batches.clear()
        self._slots, self._cache = SlotAllocator(0), EncoderCache(0)
        self.runner.release(slots, 1, plans=plans)

    def _reserve(self, slots: int, encoder_slots: int, sequence: Sequence[Any]) -> None:
        """Reserve at least that many slots and encoder slots. Raises DeviceMemoryError."""
        slots, encoder_slots = max(slots, self._slots.count), max(encoder_slots, self._cache.count)
        self.runner.reserve(slots, encoder_slots, sequence)
        if slots > self._slots.count:
            self._slots.resize(slots)
        if encoder_slots > self._cache.count:
            self._cache.resize(encoder_slots)

    def _start(self, entries: list[BatchEntry], missing: list[BatchEntry]) -> None:
        """Encode the inputs that are missing, then run the prompts, executor by executor."""
        try:
            self._encode(missing)
            executors: dict[Any, list[BatchEntry]] = {}
            for entry in entries:
                executors.setdefault(entry.sequence.batch_key, []).append(entry)
            for key, together in executors.items():
                batch, started = self._batch(key), time.perf_counter()
                batch.start(together)
                self._add_time(batch.executor.stage, started, together)
        except DeviceLostError:
            raise
        except DeviceMemoryError as problem:
            self._requeue_after_out_of_memory(entries, problem)
        except BaseException as error:  # such as a probe's
            for entry in entries:
                entry.sequence.fail(error)
            self._abandon(entries)

    def _encode(self, entries: list[BatchEntry]) -> None:
        """Encode inputs, those of one batch key in one pass."""
        started = time.perf_counter()
        kinds: dict[Any, list[BatchEntry]] = {}
        for entry in entries:
            assert entry.sequence.audio is not None
            kinds.setdefault(entry.sequence.audio.batch_key, []).append(entry)
        if self.fixed_rows is not None:  # the rounding of a pass may depend on its size
            kinds = {number: [entry] for number, entry in enumerate(entries)}
        for together in kinds.values():
            inputs = [
                entry.sequence.audio for entry in together if entry.sequence.audio is not None
            ]
            encoder_slots = [
                entry.encoder_slot for entry in together if entry.encoder_slot is not None
            ]
            self.runner.encode(inputs, encoder_slots)
        if not entries:
            return
        if not self.running:  # the device is idle after it, so the time can be measured
            self.runner.backend.wait()
        self._add_time("encode", started, entries)

    def _batch(self, key: Any) -> Batch:
        if key not in self._batches:
            executor = self.runner.executor(key)
            backend = self.runner.backend
            self._batches[key] = Batch(executor, backend, self.occupancy, self.fixed_rows)
        return self._batches[key]

    def _run_call(self, call: Call[Any]) -> None:
        """Run a call to its end."""
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

    def _free_entry(self, entry: BatchEntry) -> None:
        """Free the slots of an entry that has ended."""
        del self._entries[entry]
        self._slots.release(entry.slots)
        if entry.encoder_slot is not None:
            self._cache.release(entry.encoder_slot)

    def _abandon(self, entries: list[BatchEntry]) -> None:
        """Take entries out whose start failed: all, or none where their rows do not stop."""
        for entry in entries:
            for batch in self._batches.values():
                if entry in batch.by_group:
                    batch.abort(entry)
        for entry in entries:
            if entry.encoder_slot is not None:
                self._cache.invalidate(entry.encoder_slot)
            entry.removed = True
            self._free_entry(entry)

    def _remove_batch(self, key: Any) -> list[BatchEntry]:
        """Remove a batch that has failed, and return its entries."""
        batch = self._batches[key]
        entries = batch.live_entries()
        for entry in entries:
            batch.abort(entry)
        del self._batches[key]
        return entries

    def _fail_all(self, error: BaseException) -> None:
        """Fail all running and queued sequences. Raises DeviceLostError where rows do not stop."""
        batches, running = list(self._batches.values()), self._clear_running()
        with self._lock:
            waiting, self._queue = list(self._queue_submitted()), Queue()
        for sequence in [*(entry.sequence for entry in running), *waiting]:
            sequence.fail(error)
        for batch in batches:
            batch.stop_rows(range(len(batch.by_group) * batch.executor.group_size))

    def _clear_running(self) -> list[BatchEntry]:
        """Reset the engine to one without running sequences, and return their entries."""
        entries = list(self._entries)
        for entry in entries:
            entry.removed = True
        self._batches.clear()
        self._entries.clear()
        self._slots, self._cache, self._context = SlotAllocator(0), EncoderCache(0), None
        return entries

    def _requeue_after_out_of_memory(
        self, entries: list[BatchEntry], problem: DeviceMemoryError
    ) -> None:
        """Start fewer side by side where memory has run out, again from their prompts.

        A sequence that runs alone gets one more attempt, in memory of its own size and without the
        plans of others; then it fails.
        """
        self._abandon(entries)
        first = entries[0].sequence
        alone = len(entries) == 1 and not self._entries
        if alone and first.was_alone:
            first.fail(problem)
            return
        first.was_alone = alone
        if not alone:
            self.max_slots = max(1, (self.running + len(entries)) // 2)
            log.warning("%s; going on with %d side by side", problem, self.max_slots)
        if not self._entries:
            self._release()
        for entry in reversed(entries):
            self._requeue(entry.sequence, lost=False)

    def _requeue(self, sequence: Sequence[Any], *, lost: bool = True) -> None:
        """Have a sequence wait at the head of its caller's, to begin from its prompt."""
        if lost:
            sequence.count_restart()
        with self._lock:
            self._queue.add(sequence, first=True)

    def _recover(self, lost: DeviceLostError) -> None:
        """Get a runner on another device, and queue all running sequences from their prompts."""
        for entry in reversed(self._clear_running()):
            self._requeue(entry.sequence)
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
                if problem is not None or sequence.restart_count > MAX_RESTARTS:
                    self._queue.remove(sequence)
                    sequence.fail(problem or lost)

    def release_idle_memory(self) -> None:
        """Free the memory of all sequences but one. Called when the device's thread is idle."""
        if self.has_work or not self._slots.count:
            return
        with suppress(DeviceError):  # of a lost device, which the next iteration finds
            self._release()

    def close(self) -> None:
        """Cancel all sequences, as the process ends."""
        self._batches.clear()  # their rows need not be stopped: no step follows
        self._fail_all(Cancelled("the program ends"))

    def after_fork(self) -> None:
        """Fail all sequences in a forked child, which does not have the threads of its parent."""
        self._lock = RLock()
        self._device_thread = device_thread(self.runner.device)
        queued = self._queue_submitted()
        for sequence in [*(entry.sequence for entry in self._entries), *queued]:
            sequence.after_fork()
        if self._batches and self.runner.backend.is_async:
            self._batches.clear()  # a GPU cannot be used in a forked child
        self._fail_all(DeviceError("this process was forked while the model was at work"))


engines: WeakSet[Engine[Any]] = WeakSet()


def _after_fork() -> None:
    for engine in list(engines):
        engine.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _next_power_of_two(count: int) -> int:
    """The next power of two, so that memory grows in few steps; 0 for 0."""
    return 1 << (count - 1).bit_length() if count else 0
