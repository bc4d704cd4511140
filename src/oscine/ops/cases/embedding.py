"""Cases of embeddings and codebooks: prompts, single tokens, codes, nearest rows, random slots."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine import ops
from oscine.ops.cases import (
    FRAMES,
    SPARE,
    Case,
    Values,
    noise,
    state_rows,
    stored,
    talker_state,
    utterances,
)


def embed_case(lines: int, length: int, vocabulary: int, width: int, half: bool) -> Case:
    """Token and positional embeddings of prompts and of single tokens."""
    kind = np.float16 if half else np.float32
    capacity = length + 5

    def values(rng: np.random.Generator) -> Values:
        rows = state_rows(rng, lines, capacity, length)
        rows["done"], rows["length"] = 0, length
        rows["token"] = rng.integers(0, vocabulary, lines)
        prompt = rng.integers(0, vocabulary, (lines, length)).astype(np.uint32)
        return {"rows": rows, "tokens": np.zeros((lines, capacity), np.uint32), "prompt": prompt}

    def call(backend: Any, x: Values, w: Values) -> Any:
        state = ops.TextDecoderState(x["rows"], x["tokens"])
        prompt = x["prompt"] if length > 1 else None
        return backend.embed(w["table"], w["positions"], state, prompt)

    return Case(
        f"embed {lines} lines of {length}, {vocabulary}x{width} {np.dtype(kind).name}",
        values,
        call,
        lambda rng: {
            "table": noise(rng, vocabulary, width).astype(kind),
            "positions": noise(rng, capacity, width),
        },
    )


def embed_code_case(
    lines: int, width: int, row: int, kinds: tuple[str, str], first: bool, before: bool
) -> Case:
    """Rows of codes, projected where a row's width is given, and their running sums."""

    def values(rng: np.random.Generator) -> Values:
        state = utterances(rng, lines, 99, 5)
        state["token"] = rng.integers(0, 50, lines)
        ahead = noise(rng, lines, row or width)
        return {"rows": state, "total": noise(rng, lines + SPARE, width), "before": ahead}

    def call(backend: Any, x: Values, w: Values) -> Any:
        return backend.code_embedding(
            w["table"], talker_state(x), x["total"], w["projected"], first,
            x["before"] if before else None,
        )  # fmt: skip

    def weights(rng: np.random.Generator) -> Values:
        projected = stored(noise(rng, 50, row), kinds[1]) if row else None
        return {"table": stored(noise(rng, 50, width), kinds[0]), "projected": projected}

    name = f"code_embedding {lines} lines, {width} {kinds[0]}" + f" and {row} {kinds[1]}" * (
        row > 0
    )
    name += ", first" * first + ", one before" * before
    return Case(name, values, call, weights, lines="rows")


def frame_case(lines: int, width: int, kind: str) -> Case:
    """The sum of the embeddings of a frame's codes and a row of text, of which there are few."""

    def values(rng: np.random.Generator) -> Values:
        state = utterances(rng, lines, 99, 5)
        state["token"] = rng.integers(0, 50, lines)
        text = noise(rng, lines + SPARE, FRAMES, width)
        return {"rows": state, "total": noise(rng, lines + SPARE, width), "text": text}

    return Case(
        f"sum_embeddings {lines} lines of {width} {kind}",
        values,
        lambda backend, x, w: backend.sum_embeddings(
            x["total"], w["table"], x["text"], talker_state(x)
        ),
        lambda rng: {"table": stored(noise(rng, 50, width), kind)},
        lines="rows",
    )


def codebook_lookup_case(count: int, groups: int, tables: int, first: int) -> Case:
    """Some groups of codes, including the last code."""

    def values(rng: np.random.Generator) -> Values:
        codes = rng.integers(0, 40, (count, groups)).astype(np.uint32)
        codes[-1] = 39
        return {"codes": codes}

    return Case(
        f"codebook_lookup {count} of {groups} groups, {tables} tables from {first}",
        values,
        lambda backend, x, w: backend.codebook_lookup(x["codes"], w["tables"], first),
        lambda rng: {"tables": noise(rng, tables, 40, 12)},
    )


def quantise_case(count: int, entries: int, width: int) -> Case:
    """Rows near an entry, equal to one, and between two equal ones."""

    def table(rng: np.random.Generator) -> Values:
        rows = noise(rng, entries, width)
        rows[entries // 2] = rows[1]
        return {"table": rows}

    def values(rng: np.random.Generator) -> Values:
        return {
            "x": noise(rng, count, width),
            "codes": rng.integers(0, 9, (count, 3)).astype(np.uint32),
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        rest = backend.nearest_code(x["x"], w["table"], x["codes"], 1)
        return backend.nearest_code(rest, w["table"], x["codes"], 2)

    return Case(f"nearest_code {count} of {entries}x{width}", values, call, table)


def gather_rows_case(lines: int, length: int, width: int, sot: bool = False) -> Case:
    """The last row of prompts of any length, and the row of their start of transcript."""

    def values(rng: np.random.Generator) -> Values:
        draw = state_rows if sot else utterances
        return {"x": noise(rng, lines * length, width), "rows": draw(rng, lines, 99, length)}

    def call(backend: Any, x: Values, w: Values) -> Any:
        state = ops.TextDecoderState(x["rows"], None) if sot else talker_state(x)
        return backend.gather_rows(x["x"], state, sot)

    name = f"gather_rows {lines} lines of {length} rows of {width}" + ", sot" * sot
    return Case(name, values, call, lines="rows")


CASES: tuple[Case, ...] = (
    embed_case(1, 1, 517, 32, False),
    embed_case(5, 1, 1830, 40, True),
    embed_case(2, 7, 300, 384, True),
    embed_code_case(1, 2048, 1024, ("bfloat16", "float32"), True, True),
    embed_code_case(3, 36, 80, ("float16", "bfloat16"), False, False),
    embed_code_case(3, 64, 0, ("float32", "float32"), False, True),
    frame_case(1, 1024, "bfloat16"),
    frame_case(3, 36, "float16"),
    frame_case(3, 36, "float32"),
    codebook_lookup_case(1, 1, 1, 0),
    codebook_lookup_case(37, 6, 4, 2),
    quantise_case(1, 5, 4),
    quantise_case(30, 300, 20),
    gather_rows_case(1, 16, 64),
    gather_rows_case(3, 5, 36),
    gather_rows_case(1, 7, 36, sot=True),
)
