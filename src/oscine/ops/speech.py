"""What the ops that speak mean, in NumPy. Shapes and meaning: oscine.ops.speech_ops.

Source: transformers models/qwen3/modeling_qwen3.py, generation/logits_process.py.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.ops import (
    STOP_END,
    STOP_LENGTH,
    STOP_NONFINITE,
    Cache,
    HeadNorms,
    Rotary,
    Utterances,
)
from oscine.ops.decisions import gumbel
from oscine.threads import each

Array = NDArray[Any]

SCORE_BYTES = 1 << 19  # of a block of scores: stays in a second-level cache


def head_norm(x: Array, weight: Array, eps: float) -> Array:
    """Root-mean-square norm over a head: x [..., W] -> [..., W]."""
    y: Array = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + np.float32(eps))
    y *= weight
    return y


def turn(x: Array, rotary: Rotary, positions: Array) -> Array:
    """Rotate the pairs (i, i + W/2) of x [R, heads, W] by the angles of its rows' positions."""
    cos, sin = rotary.cos[positions][:, None], rotary.sin[positions][:, None]
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def attend(q: Array, keys: Array, values: Array, first: int, window: int | None, y: Array) -> None:
    """Causal attention of rows q [R, H, W], scaled, over the last of C keys [C, K, W] into y.

    The first row sees keys 0 to `first`, each row after it one key more; window: so many at most.
    """
    rows, heads, width = q.shape
    group = heads // keys.shape[1]
    step = max(1, SCORE_BYTES // (4 * group * len(keys)))

    def piece(block: tuple[int, int]) -> None:
        head, start = block
        stop = min(start + step, rows)
        low = 0 if window is None else max(0, first + start - window + 1)
        high = first + stop  # keys that none of these rows sees are left out
        mine = slice(head * group, head * group + group)
        queries = q[start:stop, mine].reshape(-1, width)
        scores = (queries @ keys[low:high, head].T).reshape(stop - start, group, high - low)
        places, own = np.arange(low, high), first + np.arange(start, stop)[:, None]
        hidden = places > own
        if window is not None:
            hidden |= places <= own - window
        scores.swapaxes(1, 2)[hidden] = -np.inf
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        sums = scores.reshape(-1, high - low) @ values[low:high, head]
        y[start:stop, mine] = sums.reshape(-1, group, width) / scores.sum(-1, keepdims=True)

    each(piece, product(range(keys.shape[1]), range(0, rows, step)))


def filtered(logits: Array, rule: Any, count: int, seen: Array | None) -> Array:
    """The scores [V] whose softmax `sample` draws from, -inf for what is out.

    logits [V]; rule: one of SAMPLING; count: frames so far; seen [V] as in Utterances at group 0,
    None at other groups. Greedy rules (temperature 0) end after the suppression, and all do where
    a score is above all of float32's: infinity is among them then.
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


class Speaking:
    """Shapes and meaning: oscine.ops.Ops."""

    def attend_rotary(
        self,
        qkv: Array,
        cache: Cache,
        rotary: Rotary,
        utterances: Utterances,
        heads: int,
        *,
        norms: HeadNorms | None = None,
        window: int | None = None,
        inner: bool = False,
    ) -> Array:
        lines, (_, room, key_width) = len(utterances.rows), cache.keys.shape
        width = (qkv.shape[1] - 2 * key_width) // heads
        key_heads = key_width // width
        rows = qkv.reshape(lines, -1, heads + 2 * key_heads, width)
        y = np.zeros((lines, rows.shape[1], heads, width), np.float32)
        for b, line in enumerate(utterances.rows):
            slot, start, count = (int(line[name]) for name in ("slot", "position", "length"))
            if inner:
                count = rows.shape[1]
                start = int(line["group"]) + 1 - count
            if line["done"] or count == 0:
                continue
            positions = np.arange(start, start + count)
            q, k, v = np.split(rows[b, :count], [heads, heads + key_heads], axis=1)
            if norms is not None:
                q, k = head_norm(q, norms.q, norms.eps), head_norm(k, norms.k, norms.eps)
            q = turn(q, rotary, positions) * np.float32(width**-0.5)
            cache.keys[slot, positions % room] = turn(k, rotary, positions).reshape(count, -1)
            cache.values[slot, positions % room] = v.reshape(count, -1)
            low = 0 if window is None else max(0, start - window + 1)
            held = slice(0, start + count) if low == 0 else np.arange(low, start + count) % room
            keys, values = (
                part[slot, held].astype(np.float32, copy=False).reshape(-1, key_heads, width)
                for part in (cache.keys, cache.values)
            )
            attend(q, keys, values, start - low, window, y[b, :count])
        return y.reshape(-1, heads * width)

    def last_rows(self, x: Array, utterances: Utterances) -> Array:
        lines = x.reshape(len(utterances.rows), -1, x.shape[1])
        last = np.maximum(utterances.rows["length"].astype(int) - 1, 0)
        y: Array = lines[np.arange(len(lines)), last]
        return y

    def sample(self, logits: Array, rules: Array, utterances: Utterances) -> None:
        last = logits.reshape(len(utterances.rows), -1, logits.shape[1])[:, -1]
        groups = utterances.codes.shape[2]
        for b, line in enumerate(utterances.rows):
            if line["done"]:
                continue
            if not np.isfinite(last[b]).all():
                line["done"] = STOP_NONFINITE
                continue
            count, group, slot = (int(line[name]) for name in ("count", "group", "slot"))
            rule, seen = rules[slot], utterances.seen[slot] if group == 0 else None
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
                self.advance_utterance(code, utterances, b)

    def advance_utterance(self, code: int, utterances: Utterances, b: int) -> None:
        """Write the code down and move on."""
        line, (_, room, groups) = utterances.rows[b], utterances.codes.shape
        utterances.codes[line["slot"], line["count"], line["group"]] = code
        line["token"] = code
        if line["group"] == 0:
            utterances.seen[line["slot"], code] = 1
        line["group"] += 1
        if line["group"] == groups:
            line["group"] = 0
            line["count"] += 1
            line["position"] += line["length"]
            line["length"] = 1
            if line["count"] >= min(int(line["limit"]), room):
                line["done"] = STOP_LENGTH

    def embed_code(
        self,
        table: Array,
        utterances: Utterances,
        total: Array,
        projected: Array | None = None,
        first: bool = False,
        before: Array | None = None,
    ) -> Array:
        running = utterances.rows["done"] == 0
        codes = np.where(running, utterances.rows["token"], 0)
        rows, slots = table[codes], utterances.rows["slot"][running]
        total[slots] = rows[running] + (0 if first else total[slots])
        y: Array = rows if projected is None else projected[codes]
        return y if before is None else np.stack([before, y], axis=1).reshape(-1, y.shape[1])

    def frame_input(self, total: Array, table: Array, text: Array, utterances: Utterances) -> Array:
        rows, slots = utterances.rows, utterances.rows["slot"]
        codes = np.where(rows["done"] == 0, rows["token"], 0)
        places = np.minimum(rows["count"].astype(int), rows["texts"]) - 1
        y: Array = total[slots] + table[codes] + text[slots, np.maximum(places, 0)]
        return y
