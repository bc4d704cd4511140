"""What the loop over frames is asked, what it answers, and how the device is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.engine.runner import OnDevice
from oscine.errors import UsageError
from oscine.models.parakeet.boost import Phrases
from oscine.models.parakeet.config import ParakeetConfig
from oscine.ops import DECISION, TRACK

Band = tuple[int, int] | None
Check = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """What the end of one piece of audio tells the next: the network before the last label.

    hidden and cell [Y, P] of the prediction network's Y layers, float32.
    """

    hidden: NDArray[np.float32]
    cell: NDArray[np.float32]
    token: int  # the label emitted last, the blank if none was
    skip: int  # frames of the next piece that the last duration reaches over
    node: int  # of the tree of boosted phrases; only good for the same tree

    def check(self, labels: int, nodes: int) -> None:
        """Refuse what is neither a label nor the blank, or no node of a tree of `nodes`.

        Raises UsageError.
        """
        for what, value, end in (("label", self.token, labels + 1), ("node", self.node, nodes)):
            if not 0 <= value < end:
                raise UsageError(f"{what} {value} was carried on; there are 0 to {end - 1}")
        if self.skip < 0:
            raise UsageError(f"{self.skip} frames cannot be skipped")


@dataclass(frozen=True, slots=True)
class Span:
    """Frames of an encoded utterance to decode, `start` to `stop`, and what came before them."""

    utterance: int
    start: int
    stop: int
    carried: Carried | None = None


@dataclass(frozen=True, slots=True)
class Emission:
    """A label, and the frames it begins at and lasts, from the beginning of the span on."""

    token: int
    frame: int
    duration: int
    probability: float  # softmax over labels and blank, without boosting


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """What one span says. `decisions` [N] of ops.DECISION, blanks too: the trace of the loop."""

    emissions: tuple[Emission, ...]
    decisions: NDArray[np.void]
    carried: Carried | None  # None for CTC, and where it was not asked for


class Engine(OnDevice, Protocol):
    """What long-form and streaming decoding need of decode.Decoder."""

    config: ParakeetConfig

    def encode(self, mels: Sequence[NDArray[np.float32]], band: Band = None) -> tuple[int, ...]: ...
    def encoded(self) -> tuple[NDArray[np.float32], ...]: ...
    def decode(
        self,
        spans: Sequence[Span] | None = None,
        phrases: Phrases | None = None,
        carry: bool = False,
        check: Check | None = None,
    ) -> tuple[Decoded, ...]: ...
    def hears_phrases(self) -> bool: ...


def initial_track(
    spans: Sequence[Span], lines: int, frames: int, room: int, blank: int
) -> NDArray[np.void]:
    """State rows [lines]: spans in utterances of `frames` rows each; lines without one are done."""
    track = np.zeros(lines, TRACK)
    track["done"], track["slot"] = ops.STOP_END, np.arange(lines)
    track["token"], track["fresh"], track["limit"] = blank, 1, room
    for row, span in zip(track, spans, strict=False):
        row["first"] = span.utterance * frames + span.start
        row["length"] = span.stop - span.start
        if span.carried is not None:
            row["position"] = span.carried.skip
            row["token"], row["node"] = span.carried.token, span.carried.node
        row["done"] = 0 if row["position"] < row["length"] else ops.STOP_END
    return track


def initial_memory(
    spans: Sequence[Span], lines: int, config: ParakeetConfig
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """hidden and cell [lines, Y, 2, P]: what is carried, in the first half, or zeros."""
    shape = lines, config.predictor_layers, 2, config.predictor
    hidden, cell = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for line, span in enumerate(spans):
        if span.carried is not None:
            hidden[line, :, 0], cell[line, :, 0] = span.carried.hidden, span.carried.cell
    return hidden, cell


def rules_of(config: ParakeetConfig) -> NDArray[np.uint32]:
    """As TransducerOps.pick_labels wants them."""
    return np.array([config.labels, config.most_symbols, *config.durations], np.uint32)


def emissions_of(decisions: NDArray[np.void], config: ParakeetConfig) -> tuple[Emission, ...]:
    """The labels among the decisions: as long as they moved time on, by force too.

    Without durations a label lasts one frame. Source: transformers generation of ParakeetForTDT.
    """
    return tuple(
        Emission(
            int(look["token"]),
            int(look["frame"]),
            int(look["advanced"]) if config.durations else 1,
            float(look["probability"]),
        )
        for look in decisions[decisions["token"] != config.blank]
    )


def collapse(frames: NDArray[np.float32], blank: int) -> tuple[Emission, ...]:
    """CTC: runs of one label as one, blanks left out; [T, 2] of id and probability.

    A run lasts all its frames and is as probable as the likeliest of them.
    """
    ids = frames[:, 0].astype(int)
    edges = np.flatnonzero(np.diff(ids)) + 1
    starts, stops = [0, *edges.tolist()], [*edges.tolist(), len(ids)]
    return tuple(
        Emission(int(ids[start]), start, stop - start, float(frames[start:stop, 1].max()))
        for start, stop in zip(starts, stops, strict=True)
        if stop > start and ids[start] != blank
    )


def no_decisions() -> NDArray[np.void]:
    """Of CTC, which has none."""
    return np.zeros(0, DECISION)
