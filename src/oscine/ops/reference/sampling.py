"""What decides on the next token: filters, sampling, beams. Only here does a state advance.

Source: openai whisper/decoding.py; transformers generation/logits_process.py.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oscine.ops.facts import op
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
    """Uniform uint32 from (seed, count, id): PCG's output permutation, three times over."""

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


def allowed(masks: Array, rule: Array, line: Array) -> Array:
    """Which ids may follow [V]: suppression, then params a to d of specs (openai's order)."""
    first, mask = line["count"] == 0, masks[rule["mask"]]
    allowed: Array = (mask & (SUPPRESS | SUPPRESS_FIRST if first else SUPPRESS)) == 0
    begin, end = int(rule["timestamp_begin"]), int(rule["end"])
    if not rule["timestamps"]:
        return allowed
    allowed[rule["no_timestamps"]] = False
    closing = line["after_timestamp"] and not line["after_pair"]
    if line["after_timestamp"]:
        allowed[slice(0, end) if closing else slice(begin, None)] = False
    if line["last_timestamp"]:
        allowed[begin : int(line["last_timestamp"]) + (0 if closing else 1)] = False
    if first:
        allowed[:begin] = False
        allowed[begin + int(rule["max_initial"]) + 1 :] = False
    return allowed


def log_softmax(scores: Array, rule: Array) -> tuple[int, float]:
    """Rule e: the first id that may be picked, and the logarithm of Σ e^scores from it on."""
    begin, top = int(rule["timestamp_begin"]), scores.max()
    weights = np.exp(scores - top)
    text = scores[:begin].max(initial=-np.inf)
    if rule["timestamps"] and weights[begin:].sum() > np.exp(text - top):
        return begin, float(top + np.log(weights[begin:].sum()))
    return 0, float(top + np.log(weights.sum()))


def choose(scores: Array, rule: Array, line: Array) -> tuple[int, float]:
    """The token, and its log-probability among what the filters leave."""
    if scores.max() == -np.inf:  # nothing may follow
        return int(rule["end"]), 0.0
    low, total = log_softmax(scores, rule)
    finished = scores[low:]
    if line["temperature"] > 0:
        noise = gumbel(int(line["seed"]), int(line["count"]), np.arange(low, low + len(finished)))
        token = low + int(np.argmax(finished / line["temperature"] + noise))
    else:
        token = low + int(np.argmax(finished))
    return token, float(scores[token]) - total


def offers_of(
    b: int, row: Array, masks: Array, params: Array, state: TextDecoderState, beams: int
) -> list[tuple[float, int, int]]:
    """The likeliest ways on for a beam: total log-probability, the beam, the token."""
    line = state.rows[b]
    rule = params[line["slot"]]
    scores = np.where(allowed(masks, rule, line), row, -np.inf)
    if scores.max() == -np.inf:  # nothing may follow
        return [(float(line["sum_logprob"]), b, int(rule["end"]))]
    low, total = log_softmax(scores, rule)
    best = low + np.argsort(-scores[low:], kind="stable")[: beams + 1]
    before = float(line["sum_logprob"]) - total
    return [(before + float(scores[t]), b, int(t)) for t in best if scores[t] > -np.inf]


def next_beams(
    offers: list[tuple[float, int, int]],
    params: Array,
    state: TextDecoderState,
    lines: slice,
    finished: FinishedBeams,
) -> None:
    """Walk down the offers: those that end to the finished, the others as the group's beams."""
    assert state.cache_indirection is not None
    rows, tokens = state.rows.copy(), state.tokens.copy()
    indirection = state.cache_indirection.copy()
    slots, free = rows["slot"], lines.start
    rule, group = params[slots[free]], slots[free]
    for score, parent, token in offers:
        if token != rule["end"]:
            slot = slots[free]
            state.rows[free] = rows[parent]
            state.rows[free]["sum_logprob"], state.rows[free]["slot"] = score, slot
            state.tokens[slot] = tokens[slots[parent]]
            advance(token, rule, state.rows[free], state.tokens[slot])
            before = slice(0, int(state.rows[free]["position"]))
            state.cache_indirection[slot, before] = indirection[slots[parent], before]
            free += 1
            if free == lines.stop:
                break
        elif not finished.rows[group]["filled"].all():
            place = int(np.argmin(finished.rows[group]["filled"]))
            finished.rows[group, place] = (1, rows[parent]["count"], score, 0)
            finished.tokens[group, place] = tokens[slots[parent]]
    state.rows["done"][free : lines.stop] = STOP_END  # nothing is left for these
    state.rows["sum_logprob"][free : lines.stop] = NEG_INF
    if finished.rows[group]["filled"].all():
        state.rows["done"][lines] = STOP_END


def advance(token: int, rule: Array, line: Array, tokens: Array) -> None:
    """Write the token down and move on."""
    line["position"] += line["length"]
    line["length"] = 1
    if token == rule["end"]:
        line["done"] = STOP_END
        return
    same = line["count"] > 0 and token == line["token"]
    line["repeats"] = line["repeats"] + 1 if same else 1
    line["after_pair"] = line["count"] == 0 or line["after_timestamp"]
    line["after_timestamp"] = token >= rule["timestamp_begin"]
    if line["after_timestamp"]:
        line["last_timestamp"] = token
    tokens[line["count"]] = token
    line["token"] = token
    line["count"] += 1
    if rule["repeat_limit"] and line["repeats"] >= rule["repeat_limit"]:
        line["done"] = STOP_REPEAT
    elif line["count"] >= line["limit"]:
        line["done"] = STOP_LENGTH


def advance_utterance(code: int, state: TalkerState, b: int) -> None:
    """Write the code down and move on."""
    line, (_, room, groups) = state.rows[b], state.codes.shape
    state.codes[line["slot"], line["count"], line["group"]] = code
    line["token"] = code
    if line["group"] == 0:
        state.seen[line["slot"], code] = 1
    line["group"] += 1
    if line["group"] == groups:
        line["group"] = 0
        line["count"] += 1
        line["position"] += line["length"]
        line["length"] = 1
        if line["count"] >= min(int(line["limit"]), room):
            line["done"] = STOP_LENGTH


def filtered(logits: Array, rule: Any, count: int, seen: Array | None) -> Array:
    """The scores [V] whose softmax `sample` draws from, -inf for what is out.

    logits [V]; rule: one of SAMPLING_PARAMS; count: frames so far; seen [V] as in TalkerState at
    group 0, None at other groups. Greedy params (temperature 0) end after the suppression, and all
    do where a score is above all of float32's: infinity is among them then.
    """
    scores = logits.astype(np.float32)
    if seen is not None:
        penalty, end = np.float32(rule["repetition_penalty"]), int(rule["end"])
        known = seen[: len(scores)] > 0
        with np.errstate(over="ignore"):
            scores[known] = np.where(scores > 0, scores / penalty, scores * penalty)[known]
        kept = scores[end : end + 1].copy() if count >= rule["minimum"] else -np.inf
        scores[rule["suppress"] :] = -np.inf
        scores[end : end + 1] = kept
    if rule["temperature"] == 0:
        return scores
    with np.errstate(over="ignore"):
        scores /= np.float32(rule["temperature"])
    if scores.max() == np.inf:
        return scores
    if 0 < rule["top_k"] < len(scores):
        border = np.partition(scores, -int(rule["top_k"]))[-int(rule["top_k"])]
        scores[scores < border] = -np.inf
    if rule["top_p"] < 1:
        ascending = np.sort(scores)
        masses = np.exp(ascending - ascending[-1]).astype(np.float64)
        below = np.cumsum(masses)[np.searchsorted(ascending, scores, "right") - 1]
        out = below <= (1 - np.float64(rule["top_p"])) * masses.sum()
        scores[out & (scores < ascending[-1])] = -np.inf
    return scores


class SamplingOps(Protocol):
    """B rows of state; V ids of a head; params by slot."""

    @op(writes=("state.rows",))
    def no_speech(self, logits: Tensor, params: Tensor, state: TextDecoderState) -> None:
        """state.no_speech_prob = softmax(logits [2B, V])[B:, no_speech], before any filter.

        params [N] here and in all that decides: a line has those of its slot.
        """
        for line, row in zip(state.rows, logits[len(state.rows) :], strict=True):
            if not line["done"]:
                top = row.max()
                total = np.exp(row - top).sum()
                line["no_speech_prob"] = (
                    np.exp(row[params[line["slot"]]["no_speech"]] - top) / total
                )

    @op(masked="state")
    def apply_penalties(self, logits: Tensor, params: Tensor, state: TextDecoderState) -> Tensor:
        """Logits [B, V] less likely to repeat text: by repetition_penalty and no_repeat_ngram.

        A row whose params have neither, a penalty of 1 and 0 tokens, stays as it is.

        Text ids among a line's tokens: positive logits are divided by the penalty, negative ones
        multiplied. A text id that would end a run of no_repeat_ngram tokens that came before gets
        NEG_INF. Source: transformers generation/logits_process.py; timestamps are left alone.
        """
        y = logits.copy()
        for scores, line in zip(y, state.rows, strict=True):
            rule = params[line["slot"]]
            picked = state.tokens[line["slot"], : line["count"]].astype(int)
            said = np.unique(picked[picked < rule["end"]])
            penalty = rule["repetition_penalty"]
            scores[said] = np.where(
                scores[said] > 0, scores[said] / penalty, scores[said] * penalty
            )
            size = int(rule["no_repeat_ngram"])
            if 0 < size <= len(picked):
                runs = np.lib.stride_tricks.sliding_window_view(picked, size)
                again = runs[(runs[:, :-1] == picked[len(picked) - size + 1 :]).all(1), -1]
                scores[again[again < rule["end"]]] = NEG_INF
        return y

    @op(writes=("state.rows", "state.tokens"))
    def sample_token(
        self, logits: Tensor, masks: Tensor, params: Tensor, state: TextDecoderState, share: int = 1
    ) -> None:
        """Filter logits [.., V] by masks [M, V] and the timestamp params, choose, advance the
        state.

        A line has the mask that its params name, and chooses from row b // share; rows beyond are
        ignored. Greedy takes the lowest id among equals; with a temperature, Gumbel noise from a
        counter hash of (seed, count, id) is added first. Rules: openai whisper/decoding.py.
        """
        for b, line in enumerate(state.rows):
            if line["done"]:
                continue
            row = logits[b // share]
            if not np.isfinite(row).all():
                line["done"] = STOP_NONFINITE
                continue
            rule = params[line["slot"]]
            scores = np.where(allowed(masks, rule, line), row, -np.inf)
            token, logprob = choose(scores, rule, line)
            line["sum_logprob"] += logprob
            advance(token, rule, line, state.tokens[line["slot"]])

    @op(writes=("state", "finished"))
    def beam_search_step(
        self,
        logits: Tensor,
        masks: Tensor,
        params: Tensor,
        state: TextDecoderState,
        finished: FinishedBeams,
        beams: int,
        share: int = 1,
    ) -> None:
        """A step of beam search: K = `beams` lines after each other are a group.

        Beams of a group have the same params; its finished is that of its first line's slot.
        share=1: each beam that is not done offers its K + 1 likeliest tokens, from row b of logits.
        share=K, the first step: row g of logits speaks for a whole group. By total log-probability
        the offers that end go to the group's finished while it has room, the others become the K
        new beams: state, tokens and cache_indirection of the parent, advanced, each in its own
        slot. A full finished ends all of the group; a beam that nothing is left for is done.
        Source: BeamSearchDecoder in openai whisper/decoding.py.
        """
        for first in range(0, len(state.rows), beams):
            lines = slice(first, first + beams)
            speakers = range(lines.start, lines.stop, share)
            alive = [b for b in speakers if not state.rows[b]["done"]]
            if any(not np.isfinite(logits[b // share]).all() for b in alive):
                state.rows["done"][lines] = STOP_NONFINITE
            elif alive:
                offers = [
                    offer
                    for b in alive
                    for offer in offers_of(b, logits[b // share], masks, params, state, beams)
                ]
                offers.sort(key=lambda offer: -offer[0])  # stable: openai's order among equals
                next_beams(offers, params, state, lines, finished)

    @op()
    def token_probs(
        self, logits: Tensor, prompt: Tensor, params: Tensor, state: TextDecoderState
    ) -> Tensor:
        """What logits [B·L, V] give the token that follows in prompt [B, L] among text ids: [B·L].

        softmax over ids below end; 0 for other tokens and for the last row of a line.
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
        """Choose code `group` of the frame `count` from logits [B·L, V], and move on.

        Of an utterance's L rows (the predictor's first pass has two) the last one counts.
        params [S] of SAMPLING_PARAMS. In this order, at group 0 only: logits of seen ids are
        divided by the repetition penalty where positive, else multiplied; `end` is out while count
        < minimum; ids from `suppress` on, but for `end`, are out. Then, unless greedy: division by
        temperature; top_k (what is below the k-th largest is out, ties at the border stay); top_p
        (what is out has together with all that is not likelier at most 1 - top_p; the likeliest
        stays); and the largest sum with Gumbel noise from a counter hash of (seed, count · G +
        group, id), which draws from their softmax. Greedy and among equals the lowest id.

        The id goes to codes[slot, count, group], `token` and, at group 0, seen[slot, id]; then
        group + 1. After the last group: count + 1, group 0, position + length, length 1, and
        STOP_LENGTH where count reaches limit or F. At group 0, `end` is not written and stops the
        utterance (STOP_END); a logit that is not finite stops it at any group (STOP_NONFINITE), and
        so does a score above all of float32's, as division by a small temperature may make one.
        Source: transformers generation/logits_process.py; order: MODELS/qwen3_tts.md, 5.
        """
        last = logits.reshape(len(state.rows), -1, logits.shape[1])[:, -1]
        groups = state.codes.shape[2]
        for b, line in enumerate(state.rows):
            if line["done"]:
                continue
            if not np.isfinite(last[b]).all():
                line["done"] = STOP_NONFINITE
                continue
            count, group, slot = (int(line[name]) for name in ("count", "group", "slot"))
            rule, seen = params[slot], state.seen[slot] if group == 0 else None
            scores = filtered(last[b], rule, count, seen)
            if scores.max() == np.inf:
                line["done"] = STOP_NONFINITE
                continue
            if rule["temperature"] > 0:
                scores += gumbel(int(line["seed"]), count * groups + group, np.arange(len(scores)))
            code = int(np.argmax(scores))
            if group == 0 and code == rule["end"]:
                line["done"] = STOP_END
            else:
                advance_utterance(code, state, b)
