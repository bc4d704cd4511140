"""Cases of the ops that speak: rows in any slots, at any position, rings, all rules of a choice."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine import ops
from oscine.bfloat16 import BFLOAT16
from oscine.ops.check_cases import Array, Case, Values, noise

FRAMES = 6  # of a slot
SPARE = 2  # slots that no row of a batch has: they stay as they are


def utterances(
    rng: np.random.Generator, lines: int, room: int, length: int, groups: int = 4
) -> Array:
    """Rows in any slots, at any position with room for `length` more rows; one in four is done."""
    rows = np.zeros(lines, ops.UTTERANCE)
    rows["slot"] = rng.permutation(lines + SPARE)[:lines]
    rows["done"] = rng.random(lines) < (0.25 if lines > 1 else 0.0)
    rows["position"] = rng.integers(0, room - length + 1, lines)
    rows["length"] = rng.integers(1, length + 1, lines)
    rows["count"] = rng.integers(1, FRAMES, lines)
    rows["limit"] = rng.integers(rows["count"] + 1, FRAMES + 2)
    rows["group"] = rng.integers(0, groups, lines)
    rows["seed"] = rng.integers(0, 2**32, lines)
    rows["texts"] = rng.integers(1, FRAMES, lines)
    return rows


def speaking(x: Values) -> ops.Utterances:
    """Of slots."""
    return ops.Utterances(x["rows"], x.get("codes"), x.get("seen"))


def rotary_case(
    lines: int,
    length: int,
    heads: tuple[int, int],
    width: int,
    room: int,
    window: int | None = None,
    **options: bool,
) -> Case:
    """Rows whose slots hold the keys before them; heads: of queries, and of keys.

    Normed where there is no window. inner: as in the op. ragged: passes are of any length, and the
    last row that counts is compared. half: the cache is float16, where a last bit is 1/2048 of a
    value.
    """
    inner, ragged, half = (options.get(key, False) for key in ("inner", "ragged", "half"))
    places, kind = room if window is None else 3 * room, np.float16 if half else np.float32
    frequency = 100.0 ** (-np.arange(width // 2) / (width // 2))
    angles = np.outer(np.arange(places), frequency)

    def values(rng: np.random.Generator) -> Values:
        rows = utterances(rng, lines, places, length)
        if inner:
            rows["group"] = rng.integers(length - 1, room, lines)
        elif not ragged:
            rows["length"] = length
        return {
            "qkv": noise(rng, lines * length, (heads[0] + 2 * heads[1]) * width, spike=4.0),
            "keys": noise(rng, lines + SPARE, room, heads[1] * width, spike=2.0).astype(kind),
            "values": noise(rng, lines + SPARE, room, heads[1] * width).astype(kind),
            "rows": rows,
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        cache, rotary = ops.Cache(x["keys"], x["values"]), ops.Rotary(w["cos"], w["sin"])
        y = backend.attend_rotary(
            x["qkv"], cache, rotary, speaking(x), heads[0], norms=w["norms"], window=window,
            inner=inner,
        )  # fmt: skip
        return backend.last_rows(y, speaking(x)) if ragged else y

    def weights(rng: np.random.Generator) -> Values:
        gains = rng.uniform(0.5, 2, (2, width)).astype(np.float32)
        return {
            "cos": np.cos(angles).astype(np.float32),
            "sin": np.sin(angles).astype(np.float32),
            "norms": ops.HeadNorms(gains[0], gains[1], 1e-5) if window is None else None,
        }

    name = (
        f"attend_rotary {lines} lines of {length} rows, {heads[0]} heads on {heads[1]} of {width}"
    )
    name += f", {room} places" + ", inner" * inner
    name += f", window {window}" * (window is not None) + ", ragged" * ragged
    name += ", float16" * half
    compare = ("keys", "values")
    limit = 1e-3 if half else 2e-5
    return Case(name, values, call, weights, compare=compare, limit=limit, lines="rows")


def last_rows_case(lines: int, length: int, width: int) -> Case:
    """The last row of prompts of any length."""
    return Case(
        f"last_rows {lines} lines of {length} rows of {width}",
        lambda rng: {
            "x": noise(rng, lines * length, width),
            "rows": utterances(rng, lines, 99, length),
        },
        lambda backend, x, w: backend.last_rows(x["x"], speaking(x)),
        lines="rows",
    )


def sample_case(
    lines: int,
    vocabulary: int,
    groups: int,
    group: int,
    rows: int = 1,
    **rules: float | tuple[float, ...],
) -> Case:
    """Choices at one group of frames, from logits with ties and, in some rows, no numbers.

    Of several values of a rule the slots take turns.
    """

    def values(rng: np.random.Generator) -> Values:
        logits = 3 * noise(rng, lines * rows, vocabulary)
        for code in rng.integers(0, vocabulary, 3):
            logits[rng.random(len(logits)) < 0.5, code] = 7.5
        likely = rng.random(len(logits)) < 0.3
        rule = np.zeros(lines + SPARE, ops.SAMPLING)
        rule["end"], rule["suppress"] = vocabulary, vocabulary
        rule["top_p"], rule["repetition_penalty"] = 1, 1
        for name, value in rules.items():
            rule[name] = np.resize(value, len(rule))
        for end in set(rule["end"].tolist()) - {vocabulary}:
            logits[likely, end] = 20
        state = utterances(rng, lines, 99, 5, groups)
        state["group"] = group
        broken = rng.random(len(logits)) < (0.1 if lines > 1 else 0.0)
        logits[broken, rng.integers(0, vocabulary)] = rng.choice([np.nan, np.inf, -np.inf, 1e38])
        return {
            "logits": logits,
            "rules": rule,
            "rows": state,
            "codes": np.zeros((lines + SPARE, FRAMES, groups), np.uint32),
            "seen": rng.integers(0, 2, (lines + SPARE, vocabulary + 3), np.uint32),
        }

    def call(backend: Any, x: Values, w: Values) -> None:
        backend.sample(x["logits"], x["rules"], speaking(x))

    name = f"sample {lines} lines of {rows} rows, {vocabulary} ids, code {group} of {groups}"
    name += "".join(f", {rule} {value}" for rule, value in rules.items())
    return Case(name, values, call, compare=("rows", "codes", "seen"))


def table(rng: np.random.Generator, rows: int, width: int, kind: str) -> Array:
    """Numbers as float32, float16 or bfloat16."""
    whole = noise(rng, rows, width)
    if kind != "bfloat16":
        return whole.astype(kind)
    return (whole.view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)


def embed_case(
    lines: int, width: int, row: int, kinds: tuple[str, str], first: bool, before: bool
) -> Case:
    """Rows of codes, projected where a row's width is given, and their running sums."""

    def values(rng: np.random.Generator) -> Values:
        state = utterances(rng, lines, 99, 5)
        state["token"] = rng.integers(0, 50, lines)
        ahead = noise(rng, lines, row or width)
        return {"rows": state, "total": noise(rng, lines + SPARE, width), "before": ahead}

    def call(backend: Any, x: Values, w: Values) -> Any:
        return backend.embed_code(
            w["table"], speaking(x), x["total"], w["projected"], first,
            x["before"] if before else None,
        )  # fmt: skip

    def weights(rng: np.random.Generator) -> Values:
        projected = table(rng, 50, row, kinds[1]) if row else None
        return {"table": table(rng, 50, width, kinds[0]), "projected": projected}

    name = f"embed_code {lines} lines, {width} {kinds[0]}" + f" and {row} {kinds[1]}" * (row > 0)
    name += ", first" * first + ", one before" * before
    return Case(name, values, call, weights, compare=("total",), lines="rows")


def frame_case(lines: int, width: int, kind: str) -> Case:
    """The sum of a frame's codes and a row of text, of which there are few."""

    def values(rng: np.random.Generator) -> Values:
        state = utterances(rng, lines, 99, 5)
        state["token"] = rng.integers(0, 50, lines)
        text = noise(rng, lines + SPARE, FRAMES, width)
        return {"rows": state, "total": noise(rng, lines + SPARE, width), "text": text}

    return Case(
        f"frame_input {lines} lines of {width} {kind}",
        values,
        lambda backend, x, w: backend.frame_input(x["total"], w["table"], x["text"], speaking(x)),
        lambda rng: {"table": table(rng, 50, width, kind)},
        lines="rows",
    )


CASES: tuple[Case, ...] = (
    rotary_case(1, 1, (4, 2), 128, 200),
    rotary_case(3, 1, (6, 2), 16, 150),
    rotary_case(3, 1, (4, 1), 32, 1100),
    rotary_case(1, 1, (2, 1), 128, 2300),
    rotary_case(3, 1, (4, 4), 8, 40),
    rotary_case(1, 2, (16, 8), 128, 16, inner=True),
    rotary_case(3, 1, (4, 2), 20, 16, inner=True),
    rotary_case(3, 70, (4, 2), 32, 260),
    rotary_case(3, 5, (6, 2), 128, 140, ragged=True),
    rotary_case(3, 1, (2, 2), 64, 21, window=20),
    rotary_case(1, 16, (4, 4), 64, 93, window=72),
    rotary_case(3, 4, (2, 1), 12, 12, window=9),
    rotary_case(16, 1, (4, 2), 32, 300),
    rotary_case(16, 2, (4, 2), 32, 8, inner=True),
    rotary_case(3, 1, (4, 2), 32, 150, half=True),
    rotary_case(3, 1, (4, 1), 128, 1100, half=True),
    rotary_case(3, 5, (6, 2), 20, 140, ragged=True, half=True),
    last_rows_case(1, 16, 64),
    last_rows_case(3, 5, 36),
    sample_case(1, 2048, 16, 3, rows=2, temperature=0.9, top_k=50),
    sample_case(
        3, 3072, 16, 0, temperature=0.9, top_k=50, repetition_penalty=1.05, end=2150,
        suppress=2048, minimum=2,
    ),
    sample_case(8, 300, 4, 0, end=77, suppress=200, minimum=3, repetition_penalty=1.3),
    sample_case(8, 2500, 4, 3, temperature=1.4, top_p=0.8),
    sample_case(
        8, 70, 4, 0, temperature=0.7, top_k=20, top_p=0.6, end=30, repetition_penalty=1.2
    ),
    sample_case(8, 5, 4, 3, rows=2),
    sample_case(8, 300, 4, 0, end=77, suppress=200, temperature=0.001, repetition_penalty=1000),
    sample_case(3, 1000, 4, 1, temperature=1.0, top_k=2000),
    sample_case(
        16, 300, 4, 0, end=(77, 300, 30), suppress=(200, 300, 150, 80), minimum=(3, 0, 9, 4, 1),
        top_k=(0, 50, 5, 300), temperature=(0, 0.9, 1.4, 0.001, 0.7), top_p=(1, 0.8, 0.3),
        repetition_penalty=(1, 1.3, 0.8),
    ),
    sample_case(
        16, 300, 4, 2, rows=2, end=300, top_k=(0, 50, 5, 300), temperature=(0, 0.9, 1.4, 0.7),
        top_p=(1, 0.8, 0.3),
    ),
    embed_case(1, 2048, 1024, ("bfloat16", "float32"), True, True),
    embed_case(3, 36, 80, ("float16", "bfloat16"), False, False),
    embed_case(3, 64, 0, ("float32", "float32"), False, True),
    frame_case(1, 1024, "bfloat16"),
    frame_case(3, 36, "float16"),
    frame_case(3, 36, "float32"),
)  # fmt: skip
