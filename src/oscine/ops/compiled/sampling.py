"""The greedy choice of a text token, compiled."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oscine.ops.compiled.linear import address
from oscine.ops.compiled.team import Team
from oscine.ops.reference import Reference
from oscine.ops.reference.sampling import advance
from oscine.ops.state import STOP_NONFINITE, SUPPRESS, SUPPRESS_FIRST, TextDecoderState

Array = NDArray[Any]


class Best(NamedTuple):
    """The best id of a range, or -1 where none is allowed; its logit; Σ e^(x - logit)."""

    token: int
    logit: float
    total: float


def allowed_ranges(slot_params: Array, row: Array, vocabulary: int) -> tuple[range, range]:
    """The text ids and the timestamps that the timestamp rules a to d leave.

    They are those of oscine.ops.reference.sampling.allowed_by_timestamp_rules, without the mask.
    """
    begin, end = int(slot_params["timestamp_begin"]), int(slot_params["end"])
    if not slot_params["timestamps"]:
        return range(vocabulary), range(0)
    text, times = [0, int(slot_params["no_timestamps"])], [begin, vocabulary]
    closing = row["after_timestamp"] and not row["after_pair"]
    if closing:
        text[0] = end
    elif row["after_timestamp"]:
        times[1] = begin
    if row["last_timestamp"]:
        times[0] = int(row["last_timestamp"]) + (0 if closing else 1)
    if row["count"] == 0:
        text[1] = 0
        times[1] = min(times[1], begin + int(slot_params["max_initial"]) + 1)
    return range(*text), range(*times)


class CompiledSampling(Reference):
    """The op of oscine.ops.reference.sampling that every step of Whisper ends with."""

    team: Team

    def sample_token(
        self, logits: Array, masks: Array, params: Array, state: TextDecoderState, share: int = 1
    ) -> None:
        by_slot = params[state.rows["slot"]]
        timed = by_slot["timestamps"] > 0
        gaps = by_slot["no_timestamps"] + 1 != by_slot["timestamp_begin"]
        if (state.rows["temperature"] > 0).any() or (timed & gaps).any():
            super().sample_token(logits, masks, params, state, share)
            return
        for b, row in enumerate(state.rows):
            if row["done"]:
                continue
            row_logits = np.ascontiguousarray(logits[b // share], np.float32)
            if self._has_nonfinite(row_logits):
                row["done"] = STOP_NONFINITE
                continue
            token, logprob = self._greedy(row_logits, masks, by_slot[b], row)
            row["sum_logprob"] += logprob
            advance(token, by_slot[b], row, state.tokens[row["slot"]])

    def _greedy(
        self, logits: Array, masks: Array, slot_params: Array, row: Array
    ) -> tuple[int, float]:
        """The most likely token, and its log-probability among the ids that the filters leave."""
        bits = SUPPRESS | SUPPRESS_FIRST if row["count"] == 0 else SUPPRESS
        mask = masks[slot_params["mask"]]
        text, times = (
            self._best(logits, mask, bits, ids)
            for ids in allowed_ranges(slot_params, row, len(logits))
        )
        if text.token < 0 and times.token < 0:
            return int(slot_params["end"]), 0.0
        top = max(text.logit, times.logit)
        of_text = text.total * math.exp(text.logit - top)
        of_times = times.total * math.exp(times.logit - top)
        if of_times > (math.exp(text.logit - top) if text.token >= 0 else 0.0):  # rule e
            return times.token, -math.log(times.total)
        best = text if text.logit >= times.logit else times
        return best.token, best.logit - top - math.log(of_text + of_times)

    def _best(self, logits: Array, mask: Array, bits: int, ids: range) -> Best:
        if not ids:
            return Best(-1, -math.inf, 0.0)
        found = (ctypes.c_float * 3)()
        words = (ctypes.c_int64 * 4)(address(logits), address(mask), bits, ctypes.addressof(found))
        self.team.library.call["choose"](words, ids.start, ids.stop)
        token = int(found[0])
        return Best(token, found[1], found[2]) if token >= 0 else Best(-1, -math.inf, 0.0)

    def _has_nonfinite(self, values: Array) -> bool:
        found = ctypes.c_int64()
        words = (ctypes.c_int64 * 2)(address(values), ctypes.addressof(found))
        self.team.library.call["count_nonfinite"](words, 0, values.size)
        return found.value > 0
