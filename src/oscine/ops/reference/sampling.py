"""Logits processors, sampling and beam search; these ops alone advance a state of text or speech.

Source: openai whisper/decoding.py; transformers generation/logits_process.py.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.ops.effects import op
from oscine.ops.state import (
    NEG_INF,
    STOP_END,
    STOP_LENGTH,
    STOP_NONFINITE,
    STOP_REPEAT,
    SUPPRESS,
    SUPPRESS_FIRST,
    FinishedBeams,
    TalkerState,
    TextDecoderState,
)
from oscine.ops.types import Tensor

Array = NDArray[Any]


def counter_hash(seed: int, count: int, ids: Array) -> Array:
    """Uniform uint32 from (seed, count, id): PCG's output permutation, applied three times."""

    def pcg(x: Array) -> Array:
        x = x * np.uint32(747796405) + np.uint32(2891336453)
        word = ((x >> ((x >> np.uint32(28)) + np.uint32(4))) ^ x) * np.uint32(277803737)
        mixed: Array = (word >> np.uint32(22)) ^ word
        return mixed

    start = pcg(np.array([seed], np.uint32))
    return pcg(ids.astype(np.uint32) ^ pcg(start ^ np.uint32(count)))


def gumbel(seed: int, count: int, ids: Array) -> Array:
    """Standard Gumbel noise, so that argmax(logits / T + noise) samples softmax(logits / T).

    23 bits, not 24: half more than the largest must not round up to 1, whose noise is infinite.
    """
    unit = (counter_hash(seed, count, ids) >> np.uint32(9)).astype(np.float32)
    unit = (unit + np.float32(0.5)) * np.float32(2**-23)
    noise: Array = -np.log(-np.log(unit))
    return noise


def allowed_by_timestamp_rules(masks: Array, slot_params: Array, row: Array) -> Array:
    """Ids that the suppression mask and timestamp rules a to d leave, bool [V], in openai's order.

    Rule e is apply_timestamp_probability_rule.
    """
    first, mask = row["count"] == 0, masks[slot_params["mask"]]
    allowed: Array = (mask & (SUPPRESS | SUPPRESS_FIRST if first else SUPPRESS)) == 0
    begin, end = int(slot_params["timestamp_begin"]), int(slot_params["end"])
    if not slot_params["timestamps"]:
        return allowed
    allowed[slot_params["no_timestamps"]] = False
    closing = row["after_timestamp"] and not row["after_pair"]
    if row["after_timestamp"]:
        allowed[slice(0, end) if closing else slice(begin, None)] = False
    if row["last_timestamp"]:
        allowed[begin : int(row["last_timestamp"]) + (0 if closing else 1)] = False
    if first:
        allowed[:begin] = False
        allowed[begin + int(slot_params["max_initial"]) + 1 :] = False
    return allowed


def apply_timestamp_probability_rule(scores: Array, slot_params: Array) -> tuple[int, float]:
    """Timestamp rule e: the first id that may be chosen, and log Σ e^scores from it on."""
    begin, top = int(slot_params["timestamp_begin"]), scores.max()
    weights = np.exp(scores - top)
    text = scores[:begin].max(initial=-np.inf)
    if slot_params["timestamps"] and weights[begin:].sum() > np.exp(text - top):
        return begin, float(top + np.log(weights[begin:].sum()))
    return 0, float(top + np.log(weights.sum()))


def pick_token_and_logprob(scores: Array, slot_params: Array, row: Array) -> tuple[int, float]:
    """The token, and its log-probability among the ids that the filters leave."""
    if scores.max() == -np.inf:  # every id is suppressed
        return int(slot_params["end"]), 0.0
    low, total = apply_timestamp_probability_rule(scores, slot_params)
    finished = scores[low:]
    if row["temperature"] > 0:
        noise = gumbel(int(row["seed"]), int(row["count"]), np.arange(low, low + len(finished)))
        token = low + int(np.argmax(finished / row["temperature"] + noise))
    else:
        token = low + int(np.argmax(finished))
    return token, float(scores[token]) - total


def beam_candidates(
    b: int, row_logits: Array, masks: Array, params: Array, state: TextDecoderState, beams: int
) -> list[tuple[float, int, int]]:
    """The most likely continuations of a beam: total log-probability, the beam, the token."""
    row = state.rows[b]
    slot_params = params[row["slot"]]
    scores = np.where(allowed_by_timestamp_rules(masks, slot_params, row), row_logits, -np.inf)
    if scores.max() == -np.inf:  # every id is suppressed
        return [(float(row["sum_logprob"]), b, int(slot_params["end"]))]
    low, total = apply_timestamp_probability_rule(scores, slot_params)
    best = low + np.argsort(-scores[low:], kind="stable")[: beams + 1]
    before = float(row["sum_logprob"]) - total
    return [(before + float(scores[t]), b, int(t)) for t in best if scores[t] > -np.inf]


def select_beams(
    candidates: list[tuple[float, int, int]],
    params: Array,
    state: TextDecoderState,
    group_rows: slice,
    finished: FinishedBeams,
) -> None:
    """Go through the candidates in order: those that end are finished beams, others the new
    beams."""
    assert state.cache_indirection is not None
    rows, tokens = state.rows.copy(), state.tokens.copy()
    indirection = state.cache_indirection.copy()
    slots, free = rows["slot"], group_rows.start
    slot_params, group = params[slots[free]], slots[free]
    for score, parent, token in candidates:
        if token != slot_params["end"]:
            slot = slots[free]
            state.rows[free] = rows[parent]
            state.rows[free]["sum_logprob"], state.rows[free]["slot"] = score, slot
            state.tokens[slot] = tokens[slots[parent]]
            advance(token, slot_params, state.rows[free], state.tokens[slot])
            before = slice(0, int(state.rows[free]["position"]))
            state.cache_indirection[slot, before] = indirection[slots[parent], before]
            free += 1
            if free == group_rows.stop:
                break
        elif not finished.rows[group]["filled"].all():
            index = int(np.argmin(finished.rows[group]["filled"]))
            finished.rows[group, index] = (1, rows[parent]["count"], score, 0)
            finished.tokens[group, index] = tokens[slots[parent]]
    state.rows["done"][free : group_rows.stop] = STOP_END  # no candidate is left for these
    state.rows["sum_logprob"][free : group_rows.stop] = NEG_INF
    if finished.rows[group]["filled"].all():
        state.rows["done"][group_rows] = STOP_END


def advance(token: int, slot_params: Array, row: Array, tokens: Array) -> None:
    """Append the token to a text and advance its row."""
    row["position"] += row["length"]
    row["length"] = 1
    if token == slot_params["end"]:
        row["done"] = STOP_END
        return
    same = row["count"] > 0 and token == row["token"]
    row["repeats"] = row["repeats"] + 1 if same else 1
    row["after_pair"] = row["count"] == 0 or row["after_timestamp"]
    row["after_timestamp"] = token >= slot_params["timestamp_begin"]
    if row["after_timestamp"]:
        row["last_timestamp"] = token
    tokens[row["count"]] = token
    row["token"] = token
    row["count"] += 1
    if slot_params["repeat_limit"] and row["repeats"] >= slot_params["repeat_limit"]:
        row["done"] = STOP_REPEAT
    elif row["count"] >= row["limit"]:
        row["done"] = STOP_LENGTH


def advance_talker(code: int, state: TalkerState, b: int) -> None:
    """Append the code to a sequence of the talker and advance its row."""
    row, (_, capacity, groups) = state.rows[b], state.codes.shape
    state.codes[row["slot"], row["count"], row["group"]] = code
    row["token"] = code
    if row["group"] == 0:
        state.seen[row["slot"], code] = 1
    row["group"] += 1
    if row["group"] == groups:
        row["group"] = 0
        row["count"] += 1
        row["position"] += row["length"]
        row["length"] = 1
        if row["count"] >= min(int(row["limit"]), capacity):
            row["done"] = STOP_LENGTH


def process_logits(logits: Array, slot_params: Any, count: int, seen: Array | None) -> Array:
    """The scores [V] whose softmax sample_code draws from, -inf for excluded ids.

    logits [V]; slot_params: one of SAMPLING_PARAMS; count: frames so far; seen [V] as in
    TalkerState at group 0, None at other groups. With temperature 0 the filters end after the
    suppression, and so they do where a score overflows float32: the result then contains infinity.
    """
    scores = logits.astype(np.float32)
    if seen is not None:
        penalty, end = np.float32(slot_params["repetition_penalty"]), int(slot_params["end"])
        known = seen[: len(scores)] > 0
        with np.errstate(over="ignore"):
            scores[known] = np.where(scores > 0, scores / penalty, scores * penalty)[known]
        kept = scores[end : end + 1].copy() if count >= slot_params["minimum"] else -np.inf
        scores[slot_params["suppress"] :] = -np.inf
        scores[end : end + 1] = kept
    if slot_params["temperature"] == 0:
        return scores
    with np.errstate(over="ignore"):
        scores /= np.float32(slot_params["temperature"])
    if scores.max() == np.inf:
        return scores
    if 0 < slot_params["top_k"] < len(scores):
        border = np.partition(scores, -int(slot_params["top_k"]))[-int(slot_params["top_k"])]
        scores[scores < border] = -np.inf
    if slot_params["top_p"] < 1:
        ascending = np.sort(scores)
        masses = np.exp(ascending - ascending[-1]).astype(np.float64)
        below = np.cumsum(masses)[np.searchsorted(ascending, scores, "right") - 1]
        out = below <= (1 - np.float64(slot_params["top_p"])) * masses.sum()
        scores[out & (scores < ascending[-1])] = -np.inf
    return scores


class SamplingOps(Protocol):
    """B rows of state; V ids of a head; params by slot."""

    @op(writes=("state.rows",))
    def no_speech(self, logits: Tensor, params: Tensor, state: TextDecoderState) -> None:
        """state.no_speech_prob = softmax(logits [2B, V])[B:, no_speech], before any filter.

        params [N] of DECODE_PARAMS by slot, as in every op that chooses.
        """
        for row, row_logits in zip(state.rows, logits[len(state.rows) :], strict=True):
            if not row["done"]:
                top = row_logits.max()
                total = np.exp(row_logits - top).sum()
                row["no_speech_prob"] = (
                    np.exp(row_logits[params[row["slot"]]["no_speech"]] - top) / total
                )

    @op(row_mask="state")
    def apply_penalties(self, logits: Tensor, params: Tensor, state: TextDecoderState) -> Tensor:
        """Apply repetition_penalty and no_repeat_ngram to logits [B, V] -> [B, V].

        Logits of text ids that are among the row's tokens are divided by the penalty where
        positive, else multiplied by it. A text id that would complete an n-gram of no_repeat_ngram
        tokens that occurred before gets NEG_INF. Timestamps are unchanged, and so are rows with a
        penalty of 1 and an n-gram length of 0. Source: transformers generation/logits_process.py.
        """
        y = logits.copy()
        for scores, row in zip(y, state.rows, strict=True):
            slot_params = params[row["slot"]]
            picked = state.tokens[row["slot"], : row["count"]].astype(int)
            said = np.unique(picked[picked < slot_params["end"]])
            penalty = slot_params["repetition_penalty"]
            scores[said] = np.where(
                scores[said] > 0, scores[said] / penalty, scores[said] * penalty
            )
            size = int(slot_params["no_repeat_ngram"])
            if 0 < size <= len(picked):
                runs = np.lib.stride_tricks.sliding_window_view(picked, size)
                again = runs[(runs[:, :-1] == picked[len(picked) - size + 1 :]).all(1), -1]
                scores[again[again < slot_params["end"]]] = NEG_INF
        return y

    @op(writes=("state.rows", "state.tokens"))
    def sample_token(
        self,
        logits: Tensor,
        masks: Tensor,
        params: Tensor,
        state: TextDecoderState,
        rows_per_logits: int = 1,
    ) -> None:
        """Filter logits [.., V] by masks [M, V] and the timestamp rules, choose a token, advance.

        Row b of the state uses the mask that its params name, and row b // rows_per_logits of the
        logits; further rows are ignored. Greedy takes the lowest id among equals; with a
        temperature, Gumbel noise from a counter hash of (seed, count, id) is added first. Source of
        the rules: openai whisper/decoding.py.
        """
        for b, row in enumerate(state.rows):
            if row["done"]:
                continue
            row_logits = logits[b // rows_per_logits]
            if not np.isfinite(row_logits).all():
                row["done"] = STOP_NONFINITE
                continue
            slot_params = params[row["slot"]]
            scores = np.where(
                allowed_by_timestamp_rules(masks, slot_params, row), row_logits, -np.inf
            )
            token, logprob = pick_token_and_logprob(scores, slot_params, row)
            row["sum_logprob"] += logprob
            advance(token, slot_params, row, state.tokens[row["slot"]])

    @op(writes=("state", "finished"))
    def beam_search_step(
        self,
        logits: Tensor,
        masks: Tensor,
        params: Tensor,
        state: TextDecoderState,
        finished: FinishedBeams,
        beams: int,
        rows_per_logits: int = 1,
    ) -> None:
        """A step of beam search: K = `beams` consecutive rows are a group.

        The beams of a group have the same params; its finished beams are at the slot of its first
        row. rows_per_logits=1: each running beam has K + 1 candidates, its most likely tokens by
        row b of logits. rows_per_logits=K, the first step: row g of logits is that of the whole
        group g. In the order of total log-probability, candidates that end become finished beams
        while there is space, the others become the K new beams: state, tokens and cache_indirection
        of the parent, advanced, each in its own slot. When the finished beams are full, the whole
        group is done; a beam without a candidate is done too. Source: BeamSearchDecoder in openai
        whisper/decoding.py.
        """
        for first in range(0, len(state.rows), beams):
            group_rows = slice(first, first + beams)
            sources = range(group_rows.start, group_rows.stop, rows_per_logits)
            alive = [b for b in sources if not state.rows[b]["done"]]
            if any(not np.isfinite(logits[b // rows_per_logits]).all() for b in alive):
                state.rows["done"][group_rows] = STOP_NONFINITE
            elif alive:
                candidates = [
                    candidate
                    for b in alive
                    for candidate in beam_candidates(
                        b, logits[b // rows_per_logits], masks, params, state, beams
                    )
                ]
                candidates.sort(
                    key=lambda candidate: -candidate[0]
                )  # stable: openai's order among equals
                select_beams(candidates, params, state, group_rows, finished)

    @op()
    def token_probs(
        self, logits: Tensor, prompt: Tensor, params: Tensor, state: TextDecoderState
    ) -> Tensor:
        """Probability of the next token of prompt [B, L] by logits [B·L, V]: [B·L].

        softmax over ids below end; 0 for tokens that are not text and for the last row of each
        sequence.
        """
        shares = np.zeros(prompt.shape, np.float32)
        rows = logits.reshape(*prompt.shape, -1)
        for b, end in enumerate(params[state.rows["slot"]]["end"]):
            for r, token in enumerate(prompt[b, 1:].astype(int)):
                if token < end:
                    weights = np.exp(rows[b, r, :end] - rows[b, r, :end].max())
                    shares[b, r] = weights[token] / weights.sum()
        return shares.reshape(-1)

    @op(writes=("state",))
    def sample_code(self, logits: Tensor, params: Tensor, state: TalkerState) -> None:
        """Choose code `group` of frame `count` from logits [B·L, V], and advance the state.

        The last of a sequence's L rows counts (the predictor's first pass has two). params [S] of
        SAMPLING_PARAMS. In this order, at group 0 only: logits of seen ids are divided by the
        repetition penalty where positive, else multiplied by it; `end` is excluded while count <
        minimum; ids from `suppress` on, except `end`, are excluded. Then, unless greedy: division
        by temperature; top_k (ids below the k-th largest are excluded, ties with it stay); top_p
        (an excluded id and all ids that are not more likely have together at most 1 - top_p; the
        most likely id stays); and the largest sum with Gumbel noise from a counter hash of (seed,
        count · G + group, id), which draws from their softmax. Greedy: the lowest id among equals.

        The id is written to codes[slot, count, group], `token` and, at group 0, seen[slot, id];
        then group + 1. After the last group: count + 1, group 0, position + length, length 1, and
        STOP_LENGTH where count reaches limit or F. At group 0, `end` is not written and stops the
        sequence (STOP_END). A logit that is not finite, or a score that overflows float32 by the
        division by temperature, stops it at any group (STOP_NONFINITE).
        Source: transformers generation/logits_process.py; order: MODELS/qwen3_tts.md, 5.
        """
        last = logits.reshape(len(state.rows), -1, logits.shape[1])[:, -1]
        groups = state.codes.shape[2]
        for b, row in enumerate(state.rows):
            if row["done"]:
                continue
            if not np.isfinite(last[b]).all():
                row["done"] = STOP_NONFINITE
                continue
            count, group, slot = (int(row[name]) for name in ("count", "group", "slot"))
            slot_params, seen = params[slot], state.seen[slot] if group == 0 else None
            scores = process_logits(last[b], slot_params, count, seen)
            if scores.max() == np.inf:
                row["done"] = STOP_NONFINITE
                continue
            if slot_params["temperature"] > 0:
                scores += gumbel(int(row["seed"]), count * groups + group, np.arange(len(scores)))
            code = int(np.argmax(scores))
            if group == 0 and code == slot_params["end"]:
                row["done"] = STOP_END
            else:
                advance_talker(code, state, b)
