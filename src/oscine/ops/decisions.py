"""What the ops that decide mean, in NumPy: filters, picking, sampling and beams.

Source: openai whisper/decoding.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.ops import (
    NEVER,
    STOP_END,
    STOP_LENGTH,
    STOP_NONFINITE,
    STOP_REPEAT,
    SUPPRESS,
    SUPPRESS_FIRST,
    Pool,
    State,
)

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


class Decisions:
    """Shapes and meaning: oscine.ops.Ops."""

    def no_speech(self, logits: Array, rules: Array, state: State) -> None:
        for line, row in zip(state.rows, logits[len(state.rows) :], strict=True):
            if not line["done"]:
                top = row.max()
                total = np.exp(row - top).sum()
                line["no_speech_prob"] = np.exp(row[rules[line["slot"]]["no_speech"]] - top) / total

    def penalise(self, logits: Array, rules: Array, state: State) -> Array:
        y = logits.copy()
        for scores, line in zip(y, state.rows, strict=True):
            rule = rules[line["slot"]]
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
                scores[again[again < rule["end"]]] = NEVER
        return y

    def pick(self, logits: Array, masks: Array, rules: Array, state: State, share: int = 1) -> None:
        for b, line in enumerate(state.rows):
            if line["done"]:
                continue
            row = logits[b // share]
            if not np.isfinite(row).all():
                line["done"] = STOP_NONFINITE
                continue
            rule = rules[line["slot"]]
            scores = np.where(self.allowed(masks, rule, line), row, -np.inf)
            token, logprob = self.choose(scores, rule, line)
            line["sum_logprob"] += logprob
            self.advance(token, rule, line, state.tokens[line["slot"]])

    def allowed(self, masks: Array, rule: Array, line: Array) -> Array:
        """Which ids may follow [V]: suppression, then rules a to d of specs (openai's order)."""
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

    def log_softmax(self, scores: Array, rule: Array) -> tuple[int, float]:
        """Rule e: the first id that may be picked, and the logarithm of Σ e^scores from it on."""
        begin, top = int(rule["timestamp_begin"]), scores.max()
        weights = np.exp(scores - top)
        text = scores[:begin].max(initial=-np.inf)
        if rule["timestamps"] and weights[begin:].sum() > np.exp(text - top):
            return begin, float(top + np.log(weights[begin:].sum()))
        return 0, float(top + np.log(weights.sum()))

    def choose(self, scores: Array, rule: Array, line: Array) -> tuple[int, float]:
        """The token, and its log-probability among what the filters leave."""
        if scores.max() == -np.inf:  # nothing may follow
            return int(rule["end"]), 0.0
        low, total = self.log_softmax(scores, rule)
        pool = scores[low:]
        if line["temperature"] > 0:
            noise = gumbel(int(line["seed"]), int(line["count"]), np.arange(low, low + len(pool)))
            token = low + int(np.argmax(pool / line["temperature"] + noise))
        else:
            token = low + int(np.argmax(pool))
        return token, float(scores[token]) - total

    def pick_beams(
        self,
        logits: Array,
        masks: Array,
        rules: Array,
        state: State,
        pool: Pool,
        beams: int,
        share: int = 1,
    ) -> None:
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
                    for offer in self.offers(b, logits[b // share], masks, rules, state, beams)
                ]
                offers.sort(key=lambda offer: -offer[0])  # stable: openai's order among equals
                self.next_beams(offers, rules, state, lines, pool)

    def offers(
        self, b: int, row: Array, masks: Array, rules: Array, state: State, beams: int
    ) -> list[tuple[float, int, int]]:
        """The likeliest ways on for a beam: total log-probability, the beam, the token."""
        line = state.rows[b]
        rule = rules[line["slot"]]
        scores = np.where(self.allowed(masks, rule, line), row, -np.inf)
        if scores.max() == -np.inf:  # nothing may follow
            return [(float(line["sum_logprob"]), b, int(rule["end"]))]
        low, total = self.log_softmax(scores, rule)
        best = low + np.argsort(-scores[low:], kind="stable")[: beams + 1]
        before = float(line["sum_logprob"]) - total
        return [(before + float(scores[t]), b, int(t)) for t in best if scores[t] > -np.inf]

    def next_beams(
        self,
        offers: list[tuple[float, int, int]],
        rules: Array,
        state: State,
        lines: slice,
        pool: Pool,
    ) -> None:
        """Walk down the offers: those that end to the pool, the others as the group's beams."""
        assert state.origins is not None
        rows, tokens, origins = state.rows.copy(), state.tokens.copy(), state.origins.copy()
        slots, free = rows["slot"], lines.start
        rule, group = rules[slots[free]], slots[free]
        for score, parent, token in offers:
            if token != rule["end"]:
                slot = slots[free]
                state.rows[free] = rows[parent]
                state.rows[free]["sum_logprob"], state.rows[free]["slot"] = score, slot
                state.tokens[slot] = tokens[slots[parent]]
                self.advance(token, rule, state.rows[free], state.tokens[slot])
                before = slice(0, int(state.rows[free]["position"]))
                state.origins[slot, before] = origins[slots[parent], before]
                free += 1
                if free == lines.stop:
                    break
            elif not pool.rows[group]["filled"].all():
                place = int(np.argmin(pool.rows[group]["filled"]))
                pool.rows[group, place] = (1, rows[parent]["count"], score, 0)
                pool.tokens[group, place] = tokens[slots[parent]]
        state.rows["done"][free : lines.stop] = STOP_END  # nothing is left for these
        state.rows["sum_logprob"][free : lines.stop] = NEVER
        if pool.rows[group]["filled"].all():
            state.rows["done"][lines] = STOP_END

    def probability(self, logits: Array, prompt: Array, rules: Array, state: State) -> Array:
        shares = np.zeros(prompt.shape, np.float32)
        rows = logits.reshape(*prompt.shape, -1)
        for b, end in enumerate(rules[state.rows["slot"]]["end"]):
            for r, token in enumerate(prompt[b, 1:].astype(int)):
                if token < end:
                    weights = np.exp(rows[b, r, :end] - rows[b, r, :end].max())
                    shares[b, r] = weights[token] / weights.sum()
        return shares.reshape(-1)

    def advance(self, token: int, rule: Array, line: Array, tokens: Array) -> None:
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
