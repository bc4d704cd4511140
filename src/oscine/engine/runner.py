"""The interface between the engine and a family of models: SequenceRunner and BatchExecutor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from oscine.engine import sequence
from oscine.model_runner import ModelRunner
from oscine.ops import Plan, Tensor

Arrays: TypeAlias = tuple[Any, ...]
Wait: TypeAlias = Callable[[], Arrays]


@dataclass(eq=False, slots=True)
class BatchEntry:
    """A sequence in a batch, and the memory and rows that it holds.

    Args:
        sequence: Of the type that its executor takes.
        slots: Its slots in the buffers of the sequences (caches, tokens), one for each row.
        encoder_slot: The slot of its input's encoding in the encoder cache; None without an input.
        row: Its first row in the state of its executor; the others follow.
        removed: Whether it has left the batch.
        rows_done: Whether its rows have stopped, while results read from them are not delivered
            yet.
    """

    sequence: Any
    slots: tuple[int, ...]
    encoder_slot: int | None = None
    row: int = 0
    removed: bool = False
    rows_done: bool = False


#: An entry, and its first row in a snapshot of the state: the entry may have moved since.
SnapshotRow: TypeAlias = tuple[BatchEntry, int]


class BatchExecutor(Protocol):
    """Runs the sequences of one batch key: rows of state that step together in recorded plans.

    The engine calls every method from the device's thread.
    """

    stage: str  # the name of its share of the timings
    steps_per_poll: int  # steps between two polls; 0: `start` computes the whole result
    group_size: int  # rows of each sequence, such as its beams
    prefill_batch: int  # most sequences that one `start` takes
    poll_after_prefill: bool  # whether the output of `start` is read before the first step

    def start(self, entries: Sequence[BatchEntry]) -> None:
        """Write the state of each entry at its row, and run the prompts in one prefill.

        Other rows stay as they are: their steps may be running.
        """

    def step_plan(self, rows: int, entries: Sequence[BatchEntry]) -> Plan:
        """The recorded plan that advances the first `rows` rows, those of `entries`, by a step."""

    def outputs(self, rows: int, entries: Sequence[BatchEntry]) -> tuple[Tensor, ...]:
        """The tensors that a poll copies to the host: state of the first `rows` rows, and results.

        `collect` receives them as arrays, in the same order.
        """

    def move_rows(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy rows of state, each (from, to), in order."""

    def stop_rows(self, rows: Iterable[int]) -> None:
        """Mark rows as done whose sequences were cancelled."""

    def collect(self, snapshot_rows: Sequence[SnapshotRow], arrays: Arrays) -> Iterable[BatchEntry]:
        """Read a snapshot of `outputs`: hand over new results, and yield the entries that ended.

        A sequence ends by `finish` or `fail`.
        """


class SinglePassExecutor:
    """A BatchExecutor without steps: `start` computes the whole result, and rows are read once."""

    steps_per_poll, group_size, poll_after_prefill = 0, 1, False

    def step_plan(self, rows: int, entries: Sequence[BatchEntry]) -> Plan:
        """Raises NotImplementedError: there are no steps."""
        raise NotImplementedError("a single pass has no steps")

    def move_rows(self, moves: Sequence[tuple[int, int]]) -> None:
        """Does nothing: the rows of a pass are not kept."""

    def stop_rows(self, rows: Iterable[int]) -> None:
        """Does nothing: the rows of a pass do not run after `start`."""


@runtime_checkable
class DeferredDelivery(Protocol):
    """A BatchExecutor whose `collect` submits further work, such as the codec's for new frames."""

    def deliver(self) -> Iterable[BatchEntry]:
        """Wait for that work and hand over its results; yields the entries that ended.

        The engine calls it after it has submitted the next burst, so that the device is not idle.
        """


class SequenceRunner(ModelRunner, Protocol):
    """A ModelRunner that computes sequences: it has their memory, the encoder and the executors."""

    encode_batch: int  # most encoder inputs that `encode` takes

    def check(self, sequence: sequence.Sequence[Any]) -> None:
        """Raise UsageError for a sequence that the network cannot compute.

        It is called in the caller's thread, before the sequence is queued.
        """

    def executor(self, key: Any) -> BatchExecutor:
        """The executor of a batch key, made on first use."""

    def reserve(self, slots: int, encoder_slots: int, sequence: sequence.Sequence[Any]) -> None:
        """Allocate that many slots and encoder slots, each large enough for the sequence.

        The contents of those in use are kept. Raises DeviceMemoryError, and then changes nothing.
        """

    def release(self, slots: int, encoder_slots: int, *, plans: bool = False) -> None:
        """Free memory beyond that many slots and encoder slots; no row is running.

        `plans`: also free what recorded plans hold; they are recorded again when needed.
        """

    def encode(self, inputs: Sequence[sequence.EncoderInput], encoder_slots: Sequence[int]) -> None:
        """Encode at most `encode_batch` inputs in few passes, each into its encoder slot."""


@runtime_checkable
class BatchInvariant(Protocol):
    """A runner whose choice of kernels depends on more than the number of rows of a plan."""

    def make_batch_invariant(self) -> None:
        """Make the choice of kernels independent of concurrent and earlier sequences.

        The engine calls it before any work where results must be the same under any load.
        """
