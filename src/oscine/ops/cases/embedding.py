"""Cases of embeddings and codebooks: prompts, single tokens, codes, nearest rows, random slots."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine import ops
from oscine.ops.cases import (
    FRAMES_PER_SLOT,
    SPARE_SLOTS,
    Case,
    Values,
    decoder_rows,
    noise,
    talker_rows,
    talker_state,
    to_dtype,
)

CODES = 70  # of a table: from 64 on the compiled backend leaves its rows in half precision


def embed_case(batch: int, length: int, vocabulary: int, width: int, dtype: str) -> Case:
    """Token and positional embeddings of prompts and of single tokens."""
    capacity = length + 5

    def values(rng: np.random.Generator) -> Values:
        rows = decoder_rows(rng, batch, capacity, length)
        rows["done"], rows["length"] = 0, length
        rows["token"] = rng.integers(0, vocabulary, batch)
        prompt = rng.integers(0, vocabulary, (batch, length)).astype(np.uint32)
        return {"rows": rows, "tokens": np.zeros((batch, capacity), np.uint32), "prompt": prompt}

    def call(backend: Any, x: Values, w: Values) -> Any:
        state = ops.TextDecoderState(x["rows"], x["tokens"])
        prompt = x["prompt"] if length > 1 else None
        return backend.embed(w["table"], w["positions"], state, prompt)

    return Case(
        f"embed {batch} sequences of {length}, {vocabulary}x{width} {dtype}",
        values,
        call,
        lambda rng: {
            "table": to_dtype(noise(rng, vocabulary, width), dtype),
            "positions": noise(rng, capacity, width),
        },
    )


def code_embedding_case(
    batch: int, width: int, row: int, dtypes: tuple[str, str], overwrite: bool, preceding: bool
) -> Case:
    """Rows of codes, projected where a row's width is given, and their running sums."""

    def values(rng: np.random.Generator) -> Values:
        state = talker_rows(rng, batch, 99, 5)
        state["token"] = rng.integers(0, CODES, batch)
        total, before = noise(rng, batch + SPARE_SLOTS, width), noise(rng, batch, row or width)
        return {"rows": state, "total": total, "preceding_rows": before}

    def call(backend: Any, x: Values, w: Values) -> Any:
        return backend.code_embedding(
            w["table"], talker_state(x), x["total"], w["projected"], overwrite,
            x["preceding_rows"] if preceding else None,
        )  # fmt: skip

    def weights(rng: np.random.Generator) -> Values:
        projected = to_dtype(noise(rng, CODES, row), dtypes[1]) if row else None
        return {"table": to_dtype(noise(rng, CODES, width), dtypes[0]), "projected": projected}

    name = f"code_embedding {batch} rows, {width} {dtypes[0]}" + f" and {row} {dtypes[1]}" * (
        row > 0
    )
    name += ", overwriting" * overwrite + ", with preceding rows" * preceding
    return Case(name, values, call, weights, row_mask="rows")


def sum_embeddings_case(batch: int, width: int, dtype: str) -> Case:
    """The sum of the embeddings of a frame's codes and a row of text, of which there are few."""

    def values(rng: np.random.Generator) -> Values:
        state = talker_rows(rng, batch, 99, 5)
        state["token"] = rng.integers(0, CODES, batch)
        text = noise(rng, batch + SPARE_SLOTS, FRAMES_PER_SLOT, width)
        return {"rows": state, "total": noise(rng, batch + SPARE_SLOTS, width), "text": text}

    return Case(
        f"sum_embeddings {batch} rows of {width} {dtype}",
        values,
        lambda backend, x, w: backend.sum_embeddings(
            x["total"], w["table"], x["text"], talker_state(x)
        ),
        lambda rng: {"table": to_dtype(noise(rng, CODES, width), dtype)},
        row_mask="rows",
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


def nearest_code_case(count: int, entries: int, width: int) -> Case:
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


def gather_rows_case(batch: int, length: int, width: int, sot: bool = False) -> Case:
    """The last row of prompts of any length, and the row of their start of transcript."""

    def values(rng: np.random.Generator) -> Values:
        draw = decoder_rows if sot else talker_rows
        return {"x": noise(rng, batch * length, width), "rows": draw(rng, batch, 99, length)}

    def call(backend: Any, x: Values, w: Values) -> Any:
        state = ops.TextDecoderState(x["rows"], None) if sot else talker_state(x)
        return backend.gather_rows(x["x"], state, sot)

    name = f"gather_rows {batch} sequences of {length} rows of {width}" + ", sot" * sot
    return Case(name, values, call, row_mask="rows")


CASES: tuple[Case, ...] = (
    embed_case(1, 1, 517, 32, "float32"),
    embed_case(5, 1, 1830, 40, "float16"),
    embed_case(2, 7, 300, 384, "float16"),
    embed_case(2, 7, 301, 96, "q8"),
    embed_case(5, 1, 517, 96, "q4"),
    code_embedding_case(1, 2048, 1024, ("bfloat16", "float32"), True, True),
    code_embedding_case(3, 36, 80, ("float16", "bfloat16"), False, False),
    code_embedding_case(3, 64, 0, ("float32", "float32"), False, True),
    sum_embeddings_case(1, 1024, "bfloat16"),
    sum_embeddings_case(3, 36, "float16"),
    sum_embeddings_case(3, 36, "float32"),
    codebook_lookup_case(1, 1, 1, 0),
    codebook_lookup_case(37, 6, 4, 2),
    nearest_code_case(1, 5, 4),
    nearest_code_case(30, 300, 20),
    gather_rows_case(1, 16, 64),
    gather_rows_case(3, 5, 36),
    gather_rows_case(1, 7, 36, sot=True),
)
