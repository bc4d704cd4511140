"""Cases of logits processors, sampling and beam search: histories, ties, masks, every rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine import ops
from oscine.ops.cases import (
    FRAMES_PER_SLOT,
    SPARE_SLOTS,
    Array,
    Case,
    Values,
    decoder_rows,
    noise,
    random_cache_indirection,
    talker_rows,
    talker_state,
)
from oscine.ops.reference.sampling import beam_candidates

#: Between any two candidates of a beam group, since the two sides round their sums differently.
MIN_CANDIDATE_GAP = 2e-5


def decode_params(slots: int, vocabulary: int, stamps: int, **others: Any) -> Array:
    """DECODE_PARAMS [slots] of a vocabulary with some timestamps at its end, or without."""
    begin = vocabulary - stamps
    params = np.zeros(slots, ops.DECODE_PARAMS)
    params["vocabulary"], params["timestamp_begin"] = vocabulary, begin
    params["end"] = begin - 12 if stamps else vocabulary - 1
    params["no_timestamps"], params["no_speech"] = begin - 1, begin - 2
    params["timestamps"], params["max_initial"] = stamps > 0, 50
    params["repeat_limit"], params["repetition_penalty"] = 8, 1
    for name, value in others.items():
        params[name] = value
    return params


def rows_with_history(rng: np.random.Generator, batch: int, capacity: int, params: Array) -> Array:
    """State rows with a few tokens, in random slots of the params."""
    begin, vocabulary = int(params[0]["timestamp_begin"]), int(params[0]["vocabulary"])
    rows = decoder_rows(rng, batch, capacity, 1, len(params))
    rows["count"] = rng.integers(0, 3, batch)
    rows["token"] = rng.integers(0, vocabulary, batch)
    rows["repeats"] = rng.integers(1, 8, batch)
    if begin < vocabulary:
        rows["after_timestamp"] = rng.integers(0, 2, batch)
        rows["after_pair"] = rng.integers(0, 2, batch)
        seen = rng.random(batch) < 0.5
        rows["last_timestamp"] = np.where(seen, rng.integers(begin, vocabulary, batch), 0)
    return rows


def logits_with_ties(rng: np.random.Generator, rows: int, params: Array) -> Array:
    """Logits with ties, and rows where timestamps are more likely together."""
    begin, vocabulary = int(params[0]["timestamp_begin"]), int(params[0]["vocabulary"])
    logits = noise(rng, rows, vocabulary) * 3
    logits[:, rng.integers(0, vocabulary, 5)] = 9.5  # ties, of which the lowest id is taken
    logits[rng.random(rows) < 0.3, begin:] += 4
    return logits


def random_masks(rng: np.random.Generator, masks: int, vocabulary: int) -> Array:
    """Masks [masks, V]: one id in ten is suppressed, half of them only as the first token."""
    made = (rng.random((masks, vocabulary)) < 0.05) * ops.SUPPRESS
    made |= (rng.random((masks, vocabulary)) < 0.05) * ops.SUPPRESS_FIRST
    return made.astype(np.uint32)


def mixed_params(rng: np.random.Generator, slots: int, masks: int) -> Values:
    """DECODE_PARAMS that differ between slots."""
    return {
        "timestamps": rng.integers(0, 2, slots),
        "max_initial": rng.integers(0, 60, slots),
        "repeat_limit": rng.integers(0, 9, slots),
        "no_repeat_ngram": rng.integers(0, 3, slots),
        "repetition_penalty": rng.choice([1, 1, 0.7, 1.5], slots),
        "mask": rng.integers(0, masks, slots),
    }


def sample_token_case(
    batch: int,
    vocabulary: int,
    timestamps: int,
    temperature: float = 0.0,
    rows_per_logits: int = 1,
    slots: int = 0,
) -> Case:
    """The decision after random histories: filters, rule e, sums and the state's advance.

    slots: number of slots, whose options differ, some of them greedy; 0: one for each row, all
    with the same options.
    """

    def values(rng: np.random.Generator) -> Values:
        params = decode_params(
            slots or batch, vocabulary, timestamps, **mixed_params(rng, slots, 3) if slots else {}
        )
        rows = rows_with_history(rng, batch, 32, params)
        rows["temperature"], rows["seed"] = temperature, rng.integers(0, 2**32, batch)
        if slots:
            rows["temperature"] *= rng.integers(0, 3, batch)
        return {
            "rows": rows,
            "tokens": rng.integers(0, 99, (len(params), 32)).astype(np.uint32),
            "params": params,
            "logits": logits_with_ties(rng, 2 * batch, params),
            "masks": random_masks(rng, 3, vocabulary),
        }

    def call(backend: Any, x: Values, w: Values) -> None:
        state = ops.TextDecoderState(x["rows"], x["tokens"])
        backend.no_speech(x["logits"], x["params"], state)
        backend.sample_token(x["logits"], x["masks"], x["params"], state, rows_per_logits)

    description = (
        f"{timestamps} timestamps, temperature {temperature}"
        + f", {rows_per_logits} rows per logits" * (rows_per_logits > 1)
    )
    description += f", {slots} slots with options of their own" * (slots > 0)
    name = f"sample_token {batch} rows of {vocabulary}, {description}"
    return Case(name, values, call)


def apply_penalties_case(
    batch: int, vocabulary: int, ngram: int, penalty: float, slots: int = 0
) -> Case:
    """Histories of few distinct ids, with timestamps, so that n-grams repeat.

    slots: number of slots, whose options differ from these; 0: one for each row, with these.
    """
    capacity = 224

    def values(rng: np.random.Generator) -> Values:
        options = {"no_repeat_ngram": ngram, "repetition_penalty": penalty}
        params = decode_params(
            slots or batch, vocabulary, 20, **mixed_params(rng, slots, 1) if slots else options
        )
        rows = rows_with_history(rng, batch, capacity, params)
        rows["count"] = rng.integers(0, capacity + 1, batch)
        words = rng.integers(0, vocabulary, 6)
        return {
            "rows": rows,
            "tokens": words[rng.integers(0, 6, (len(params), capacity))].astype(np.uint32),
            "params": params,
            "logits": logits_with_ties(rng, batch, params),
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        return backend.apply_penalties(
            x["logits"], x["params"], ops.TextDecoderState(x["rows"], x["tokens"])
        )

    name = f"apply_penalties {batch} rows of {vocabulary}, "
    name += (
        f"{slots} slots with options of their own"
        if slots
        else f"runs of {ngram}, penalty {penalty}"
    )
    return Case(name, values, call, row_mask="rows")


def token_probs_case(batch: int, length: int, vocabulary: int) -> Case:
    """Next tokens of prompts, text and others; each sequence has its own end."""

    def values(rng: np.random.Generator) -> Values:
        params = decode_params(batch + 2, vocabulary, vocabulary // 4)
        params["end"] -= np.arange(batch + 2, dtype=np.uint32)
        return {
            "prompt": rng.integers(0, vocabulary, (batch, length)).astype(np.uint32),
            "params": params,
            "rows": decoder_rows(rng, batch, length, length, len(params)),
            "tokens": np.zeros((len(params), length), np.uint32),
            "logits": noise(rng, batch * length, vocabulary, spike=3.0),
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        state = ops.TextDecoderState(x["rows"], x["tokens"])
        return backend.token_probs(x["logits"], x["prompt"], x["params"], state)

    return Case(f"token_probs {batch} sequences of {length} rows of {vocabulary}", values, call)


def beam_search_step_case(
    groups: int,
    width: int,
    vocabulary: int,
    timestamps: int,
    max_finished: int,
    first: bool = False,
    spare: int = 0,
) -> Case:
    """A step within a search: finished beams, and space for more or fewer of them.

    spare: slots without a row.
    """
    batch, capacity = groups * width, 130
    slots = batch + spare

    def draw(rng: np.random.Generator) -> Values:
        params = decode_params(slots, vocabulary, timestamps)
        rows = rows_with_history(rng, batch, capacity, params)
        for field in ("position", "length", "count"):  # beams of a group are at one position
            rows[field] = np.repeat(rows[field][::width], width)
        rows["sum_logprob"] = -3 * rng.random(batch)
        rows["limit"] = rng.integers(2, 9, batch)
        finished = np.zeros((slots, max_finished), ops.FINISHED_BEAM)
        finished["filled"] = np.arange(max_finished) < rng.integers(0, max_finished, (slots, 1))
        finished["count"], finished["sum_logprob"] = 3, -9 * rng.random((slots, max_finished))
        logits = logits_with_ties(rng, batch, params)
        logits[:, params[0]["end"]] = 9 + rng.random(batch)
        masks = random_masks(rng, 2, vocabulary)
        masks[:, params[0]["end"]] = 0
        groups_of = rows["slot"].reshape(groups, width)
        params["mask"][groups_of] = rng.integers(0, 2, (groups, 1))
        if timestamps:
            params["timestamps"][groups_of] = rng.integers(0, 3, (groups, 1)) > 0
        return {
            "rows": rows,
            "tokens": rng.integers(0, 99, (slots, capacity)).astype(np.uint32),
            "indirection": random_cache_indirection(rng, rows, width, (slots, capacity)),
            "finished": finished,
            "finished_tokens": rng.integers(0, 99, (slots, max_finished, capacity)).astype(
                np.uint32
            ),
            "params": params,
            "logits": logits,
            "masks": masks,
        }

    def values(rng: np.random.Generator) -> Values:
        while True:
            x = draw(rng)
            if has_no_near_ties(x, width):
                return x

    def call(backend: Any, x: Values, w: Values) -> None:
        state = ops.TextDecoderState(x["rows"], x["tokens"], cache_indirection=x["indirection"])
        finished = ops.FinishedBeams(x["finished"], x["finished_tokens"])
        rows_per_logits = width if first else 1
        backend.beam_search_step(
            x["logits"], x["masks"], x["params"], state, finished, width, rows_per_logits
        )

    name = f"beam_search_step {groups} groups of {width}, {vocabulary} ids, {timestamps} timestamps"
    name += (
        f", up to {max_finished} finished"
        + ", first" * first
        + f", {spare} spare slots" * (spare > 0)
    )
    return Case(name, values, call)


def has_no_near_ties(x: Values, width: int) -> bool:
    """Whether rounding cannot reorder the candidates of a group; equal ones may be there."""
    state = ops.TextDecoderState(x["rows"], x["tokens"], cache_indirection=x["indirection"])
    for first in range(0, len(x["rows"]), width):
        running = [b for b in range(first, first + width) if not x["rows"][b]["done"]]
        candidates = [
            beam_candidates(b, x["logits"][b], x["masks"], x["params"], state, width)
            for b in running
        ]
        gaps = np.diff(np.sort([candidate[0] for beam in candidates for candidate in beam]))
        if ((gaps > 0) & (gaps < MIN_CANDIDATE_GAP)).any():
            return False
    return True


def sample_code_case(
    batch: int,
    vocabulary: int,
    groups: int,
    group: int,
    rows: int = 1,
    **fields: float | tuple[float, ...],
) -> Case:
    """Codes of one group, from logits with ties and, in some rows, NaN.

    fields: of SAMPLING_PARAMS; several values are given to the slots in turn.
    """

    def values(rng: np.random.Generator) -> Values:
        logits = 3 * noise(rng, batch * rows, vocabulary)
        for code in rng.integers(0, vocabulary, 3):
            logits[rng.random(len(logits)) < 0.5, code] = 7.5
        likely = rng.random(len(logits)) < 0.3
        params = np.zeros(batch + SPARE_SLOTS, ops.SAMPLING_PARAMS)
        params["end"], params["suppress"] = vocabulary, vocabulary
        params["top_p"], params["repetition_penalty"] = 1, 1
        for name, value in fields.items():
            params[name] = np.resize(value, len(params))
        for end in set(params["end"].tolist()) - {vocabulary}:
            logits[likely, end] = 20
        state = talker_rows(rng, batch, 99, 5, groups)
        state["group"] = group
        broken = rng.random(len(logits)) < (0.1 if batch > 1 else 0.0)
        logits[broken, rng.integers(0, vocabulary)] = rng.choice([np.nan, np.inf, -np.inf, 1e38])
        return {
            "logits": logits,
            "params": params,
            "rows": state,
            "codes": np.zeros((batch + SPARE_SLOTS, FRAMES_PER_SLOT, groups), np.uint32),
            "seen": rng.integers(0, 2, (batch + SPARE_SLOTS, vocabulary + 3), np.uint32),
        }

    def call(backend: Any, x: Values, w: Values) -> None:
        backend.sample_code(x["logits"], x["params"], talker_state(x))

    name = (
        f"sample_code {batch} sequences of {rows} rows, {vocabulary} ids, code {group} of {groups}"
    )
    name += "".join(f", {field} {value}" for field, value in fields.items())
    return Case(name, values, call)


CASES: tuple[Case, ...] = (
    sample_token_case(4, 517, 201),
    sample_token_case(8, 1830, 0),
    sample_token_case(8, 51866, 1501),
    sample_token_case(8, 51866, 1501, 0.6),
    sample_token_case(6, 700, 201, 0.8, rows_per_logits=3),
    sample_token_case(7, 700, 201, 0.6, slots=12),
    sample_token_case(9, 1200, 301, 0.6, slots=6),
    apply_penalties_case(3, 700, 0, 1.5),
    apply_penalties_case(5, 1830, 2, 1.0),
    apply_penalties_case(4, 520, 1, 0.7),
    apply_penalties_case(2, 51866, 3, 1.2),
    apply_penalties_case(6, 700, 0, 0, slots=9),
    beam_search_step_case(1, 5, 51866, 1501, 5),
    beam_search_step_case(3, 4, 700, 201, 6),
    beam_search_step_case(2, 16, 1200, 201, 64),
    beam_search_step_case(3, 1, 40, 0, 1),
    beam_search_step_case(3, 4, 700, 201, 6, first=True),
    beam_search_step_case(3, 4, 700, 201, 6, spare=5),
    token_probs_case(1, 9, 1000),
    token_probs_case(3, 4, 700),
    token_probs_case(1, 2, 51866),
    sample_code_case(1, 2048, 16, 3, rows=2, temperature=0.9, top_k=50),
    sample_code_case(
        3, 3072, 16, 0, temperature=0.9, top_k=50, repetition_penalty=1.05, end=2150,
        suppress=2048, minimum=2,
    ),
    sample_code_case(8, 300, 4, 0, end=77, suppress=200, minimum=3, repetition_penalty=1.3),
    sample_code_case(8, 2500, 4, 3, temperature=1.4, top_p=0.8),
    sample_code_case(
        8, 70, 4, 0, temperature=0.7, top_k=20, top_p=0.6, end=30, repetition_penalty=1.2
    ),
    sample_code_case(8, 5, 4, 3, rows=2),
    sample_code_case(
        8, 300, 4, 0, end=77, suppress=200, temperature=0.001, repetition_penalty=1000
    ),
    sample_code_case(3, 1000, 4, 1, temperature=1.0, top_k=2000),
    sample_code_case(
        16, 300, 4, 0, end=(77, 300, 30), suppress=(200, 300, 150, 80), minimum=(3, 0, 9, 4, 1),
        top_k=(0, 50, 5, 300), temperature=(0, 0.9, 1.4, 0.001, 0.7), top_p=(1, 0.8, 0.3),
        repetition_penalty=(1, 1.3, 0.8),
    ),
    sample_code_case(
        16, 300, 4, 2, rows=2, end=300, top_k=(0, 50, 5, 300), temperature=(0, 0.9, 1.4, 0.7),
        top_p=(1, 0.8, 0.3),
    ),
)  # fmt: skip
