"""Cases of the ops that decide: random histories, ties, masks, every rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscine import ops
from oscine.ops.check_cases import Case, Values, noise, state_rows


def pick_case(lines: int, vocabulary: int, timestamps: int, temperature: float = 0.0) -> Case:
    """The decision after random histories: filters, rule e, sums and the state's advance."""
    begin = vocabulary - timestamps if timestamps else vocabulary
    end = begin - 12 if timestamps else vocabulary - 1

    def values(rng: np.random.Generator) -> Values:
        rows = state_rows(rng, lines, 32, 1)
        rows["count"] = rng.integers(0, 3, lines)
        rows["token"] = rng.integers(0, vocabulary, lines)
        rows["repeats"] = rng.integers(1, 8, lines)
        rows["temperature"], rows["seed"] = temperature, rng.integers(0, 2**32, lines)
        if timestamps:
            rows["after_timestamp"] = rng.integers(0, 2, lines)
            rows["after_pair"] = rng.integers(0, 2, lines)
            seen = rng.random(lines) < 0.5
            rows["last_timestamp"] = np.where(seen, begin + rng.integers(0, timestamps, lines), 0)
        rules = np.zeros(1, ops.RULES)
        numbers = (vocabulary, end, begin, begin - 1, begin - 2, timestamps > 0, 50, 8)
        rules[0] = numbers
        logits = noise(rng, 2 * lines, vocabulary) * 3
        logits[:, rng.integers(0, vocabulary, 5)] = 9.5  # ties, to be won by the lowest id
        logits[rng.random(2 * lines) < 0.3, begin:] += 4  # rows where timestamps win together
        mask = (rng.random(vocabulary) < 0.05) * ops.SUPPRESS
        mask |= (rng.random(vocabulary) < 0.05) * ops.SUPPRESS_FIRST
        return {
            "rows": rows,
            "tokens": np.zeros((lines, 32), np.uint32),
            "rules": rules,
            "logits": logits,
            "mask": mask.astype(np.uint32),
        }

    def call(backend: Any, x: Values, w: Values) -> None:
        state = ops.State(x["rows"], x["tokens"])
        backend.no_speech(x["logits"], x["rules"], state)
        backend.pick(x["logits"], x["mask"], x["rules"], state)

    kind = f"{timestamps} timestamps, temperature {temperature}"
    name = f"pick {lines} lines of {vocabulary}, {kind}"
    return Case(name, values, call, compare=("rows", "tokens"))


CASES = (
    pick_case(4, 517, 201),
    pick_case(8, 1830, 0),
    pick_case(8, 51866, 1501),
    pick_case(8, 51866, 1501, 0.6),
)
