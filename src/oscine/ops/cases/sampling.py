"""Cases of logits processors, sampling and beam search: histories, ties, masks, every rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine import ops
from oscine.ops.cases import (
    FRAMES,
    SPARE,
    Array,
    Case,
    Values,
    indirection,
    noise,
    state_rows,
    talker_state,
    utterances,
)
from oscine.ops.reference.sampling import beam_candidates

#: Between any two candidates of a beam group, since the two sides round their sums differently.
MIN_CANDIDATE_GAP = 2e-5


def rules_of(slots: int, vocabulary: int, stamps: int, **others: Any) -> Array:
    """DECODE_PARAMS [slots] of a vocabulary with some timestamps at its end, or without."""
    begin = vocabulary - stamps
    rules = np.zeros(slots, ops.DECODE_PARAMS)
    rules["vocabulary"], rules["timestamp_begin"] = vocabulary, begin
    rules["end"] = begin - 12 if stamps else vocabulary - 1
    rules["no_timestamps"], rules["no_speech"] = begin - 1, begin - 2
    rules["timestamps"], rules["max_initial"] = stamps > 0, 50
    rules["repeat_limit"], rules["repetition_penalty"] = 8, 1
    for name, value in others.items():
        rules[name] = value
    return rules


def histories(rng: np.random.Generator, lines: int, capacity: int, rules: Array) -> Array:
    """State rows with a few tokens, in random slots of the params."""
    begin, vocabulary = int(rules[0]["timestamp_begin"]), int(rules[0]["vocabulary"])
    rows = state_rows(rng, lines, capacity, 1, len(rules))
    rows["count"] = rng.integers(0, 3, lines)
    rows["token"] = rng.integers(0, vocabulary, lines)
    rows["repeats"] = rng.integers(1, 8, lines)
    if begin < vocabulary:
        rows["after_timestamp"] = rng.integers(0, 2, lines)
        rows["after_pair"] = rng.integers(0, 2, lines)
        seen = rng.random(lines) < 0.5
        rows["last_timestamp"] = np.where(seen, rng.integers(begin, vocabulary, lines), 0)
    return rows


def scores(rng: np.random.Generator, rows: int, rules: Array) -> Array:
    """Logits with ties, and rows where timestamps are more likely together."""
    begin, vocabulary = int(rules[0]["timestamp_begin"]), int(rules[0]["vocabulary"])
    logits = noise(rng, rows, vocabulary) * 3
    logits[:, rng.integers(0, vocabulary, 5)] = 9.5  # ties, of which the lowest id is taken
    logits[rng.random(rows) < 0.3, begin:] += 4
    return logits


def random_masks(rng: np.random.Generator, masks: int, vocabulary: int) -> Array:
    """Masks [masks, V]: one id in ten is suppressed, half of them only as the first token."""
    made = (rng.random((masks, vocabulary)) < 0.05) * ops.SUPPRESS
    made |= (rng.random((masks, vocabulary)) < 0.05) * ops.SUPPRESS_FIRST
    return made.astype(np.uint32)


def mixed(rng: np.random.Generator, slots: int, masks: int) -> Values:
    """DECODE_PARAMS that differ between slots."""
    return {
        "timestamps": rng.integers(0, 2, slots),
        "max_initial": rng.integers(0, 60, slots),
        "repeat_limit": rng.integers(0, 9, slots),
        "no_repeat_ngram": rng.integers(0, 3, slots),
        "repetition_penalty": rng.choice([1, 1, 0.7, 1.5], slots),
        "mask": rng.integers(0, masks, slots),
    }


def pick_case(
    lines: int,
    vocabulary: int,
    timestamps: int,
    temperature: float = 0.0,
    share: int = 1,
    slots: int = 0,
) -> Case:
    """The decision after random histories: filters, rule e, sums and the state's advance.

    slots: of lines whose options differ, some of them greedy; 0: as many as lines, all alike.
    """

    def values(rng: np.random.Generator) -> Values:
        rules = rules_of(
            slots or lines, vocabulary, timestamps, **mixed(rng, slots, 3) if slots else {}
        )
        rows = histories(rng, lines, 32, rules)
        rows["temperature"], rows["seed"] = temperature, rng.integers(0, 2**32, lines)
        if slots:
            rows["temperature"] *= rng.integers(0, 3, lines)
        return {
            "rows": rows,
            "tokens": rng.integers(0, 99, (len(rules), 32)).astype(np.uint32),
            "rules": rules,
            "logits": scores(rng, 2 * lines, rules),
            "masks": random_masks(rng, 3, vocabulary),
        }

    def call(backend: Any, x: Values, w: Values) -> None:
        state = ops.TextDecoderState(x["rows"], x["tokens"])
        backend.no_speech(x["logits"], x["rules"], state)
        backend.sample_token(x["logits"], x["masks"], x["rules"], state, share)

    kind = f"{timestamps} timestamps, temperature {temperature}" + f", by {share}" * (share > 1)
    kind += f", {slots} slots with options of their own" * (slots > 0)
    name = f"sample_token {lines} lines of {vocabulary}, {kind}"
    return Case(name, values, call)


def penalise_case(lines: int, vocabulary: int, ngram: int, penalty: float, slots: int = 0) -> Case:
    """Histories of few distinct ids, with timestamps, so that n-grams repeat.

    slots: of lines whose options differ, instead of these; 0: as many as lines.
    """
    capacity = 224

    def values(rng: np.random.Generator) -> Values:
        options = {"no_repeat_ngram": ngram, "repetition_penalty": penalty}
        rules = rules_of(
            slots or lines, vocabulary, 20, **mixed(rng, slots, 1) if slots else options
        )
        rows = histories(rng, lines, capacity, rules)
        rows["count"] = rng.integers(0, capacity + 1, lines)
        words = rng.integers(0, vocabulary, 6)
        return {
            "rows": rows,
            "tokens": words[rng.integers(0, 6, (len(rules), capacity))].astype(np.uint32),
            "rules": rules,
            "logits": scores(rng, lines, rules),
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        return backend.apply_penalties(
            x["logits"], x["rules"], ops.TextDecoderState(x["rows"], x["tokens"])
        )

    name = f"apply_penalties {lines} lines of {vocabulary}, "
    name += (
        f"{slots} slots with options of their own"
        if slots
        else f"runs of {ngram}, penalty {penalty}"
    )
    return Case(name, values, call, lines="rows")


def probability_case(lines: int, length: int, vocabulary: int) -> Case:
    """Next tokens of prompts, text and others; each sequence has its own end."""

    def values(rng: np.random.Generator) -> Values:
        rules = rules_of(lines + 2, vocabulary, vocabulary // 4)
        rules["end"] -= np.arange(lines + 2, dtype=np.uint32)
        return {
            "prompt": rng.integers(0, vocabulary, (lines, length)).astype(np.uint32),
            "rules": rules,
            "rows": state_rows(rng, lines, length, length, len(rules)),
            "tokens": np.zeros((len(rules), length), np.uint32),
            "logits": noise(rng, lines * length, vocabulary, spike=3.0),
        }

    def call(backend: Any, x: Values, w: Values) -> Any:
        state = ops.TextDecoderState(x["rows"], x["tokens"])
        return backend.token_probs(x["logits"], x["prompt"], x["rules"], state)

    return Case(f"token_probs {lines} lines of {length} rows of {vocabulary}", values, call)


def beams_case(
    groups: int,
    width: int,
    vocabulary: int,
    timestamps: int,
    places: int,
    first: bool = False,
    spare: int = 0,
) -> Case:
    """A step within a search: finished beams, and space for more or fewer of them.

    spare: slots beyond those of the lines.
    """
    lines, capacity = groups * width, 130
    slots = lines + spare

    def draw(rng: np.random.Generator) -> Values:
        rules = rules_of(slots, vocabulary, timestamps)
        rows = histories(rng, lines, capacity, rules)
        for field in ("position", "length", "count"):  # beams of a group are at one position
            rows[field] = np.repeat(rows[field][::width], width)
        rows["sum_logprob"] = -3 * rng.random(lines)
        rows["limit"] = rng.integers(2, 9, lines)
        pool = np.zeros((slots, places), ops.FINISHED_BEAM)
        pool["filled"] = np.arange(places) < rng.integers(0, places, (slots, 1))
        pool["count"], pool["sum_logprob"] = 3, -9 * rng.random((slots, places))
        logits = scores(rng, lines, rules)
        logits[:, rules[0]["end"]] = 9 + rng.random(lines)
        masks = random_masks(rng, 2, vocabulary)
        masks[:, rules[0]["end"]] = 0
        groups_of = rows["slot"].reshape(groups, width)
        rules["mask"][groups_of] = rng.integers(0, 2, (groups, 1))
        if timestamps:
            rules["timestamps"][groups_of] = rng.integers(0, 3, (groups, 1)) > 0
        return {
            "rows": rows,
            "tokens": rng.integers(0, 99, (slots, capacity)).astype(np.uint32),
            "indirection": indirection(rng, rows, width, (slots, capacity)),
            "pool": pool,
            "ended": rng.integers(0, 99, (slots, places, capacity)).astype(np.uint32),
            "rules": rules,
            "logits": logits,
            "masks": masks,
        }

    def values(rng: np.random.Generator) -> Values:
        while True:
            x = draw(rng)
            if clear(x, width):
                return x

    def call(backend: Any, x: Values, w: Values) -> None:
        state = ops.TextDecoderState(x["rows"], x["tokens"], cache_indirection=x["indirection"])
        pool = ops.FinishedBeams(x["pool"], x["ended"])
        share = width if first else 1
        backend.beam_search_step(x["logits"], x["masks"], x["rules"], state, pool, width, share)

    name = f"beam_search_step {groups} groups of {width}, {vocabulary} ids, {timestamps} timestamps"
    name += f", {places} places" + ", first" * first + f", {spare} spare slots" * (spare > 0)
    return Case(name, values, call)


def clear(x: Values, width: int) -> bool:
    """Whether rounding cannot reorder the candidates of a group; equal ones may be there."""
    state = ops.TextDecoderState(x["rows"], x["tokens"], cache_indirection=x["indirection"])
    for first in range(0, len(x["rows"]), width):
        running = [b for b in range(first, first + width) if not x["rows"][b]["done"]]
        candidates = [
            beam_candidates(b, x["logits"][b], x["masks"], x["rules"], state, width)
            for b in running
        ]
        gaps = np.diff(np.sort([candidate[0] for beam in candidates for candidate in beam]))
        if ((gaps > 0) & (gaps < MIN_CANDIDATE_GAP)).any():
            return False
    return True


def sample_case(
    lines: int,
    vocabulary: int,
    groups: int,
    group: int,
    rows: int = 1,
    **rules: float | tuple[float, ...],
) -> Case:
    """Codes of one group, from logits with ties and, in some rows, NaN.

    Of several values of a rule the slots take turns.
    """

    def values(rng: np.random.Generator) -> Values:
        logits = 3 * noise(rng, lines * rows, vocabulary)
        for code in rng.integers(0, vocabulary, 3):
            logits[rng.random(len(logits)) < 0.5, code] = 7.5
        likely = rng.random(len(logits)) < 0.3
        rule = np.zeros(lines + SPARE, ops.SAMPLING_PARAMS)
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
        backend.sample_code(x["logits"], x["rules"], talker_state(x))

    name = f"sample_code {lines} lines of {rows} rows, {vocabulary} ids, code {group} of {groups}"
    name += "".join(f", {rule} {value}" for rule, value in rules.items())
    return Case(name, values, call)


CASES: tuple[Case, ...] = (
    pick_case(4, 517, 201),
    pick_case(8, 1830, 0),
    pick_case(8, 51866, 1501),
    pick_case(8, 51866, 1501, 0.6),
    pick_case(6, 700, 201, 0.8, share=3),
    pick_case(7, 700, 201, 0.6, slots=12),
    pick_case(9, 1200, 301, 0.6, slots=6),
    penalise_case(3, 700, 0, 1.5),
    penalise_case(5, 1830, 2, 1.0),
    penalise_case(4, 520, 1, 0.7),
    penalise_case(2, 51866, 3, 1.2),
    penalise_case(6, 700, 0, 0, slots=9),
    beams_case(1, 5, 51866, 1501, 5),
    beams_case(3, 4, 700, 201, 6),
    beams_case(2, 16, 1200, 201, 64),
    beams_case(3, 1, 40, 0, 1),
    beams_case(3, 4, 700, 201, 6, first=True),
    beams_case(3, 4, 700, 201, 6, spare=5),
    probability_case(1, 9, 1000),
    probability_case(3, 4, 700),
    probability_case(1, 2, 51866),
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
)  # fmt: skip
