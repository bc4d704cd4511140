"""The sampler case: what is left to draw from, what is drawn, and what is taken greedily."""

from __future__ import annotations

from typing import Any

import numpy as np

from checks.report import Report
from oscine.ops import SAMPLING_PARAMS, STOP_END, TALKER_STATE, Backend, TalkerState
from oscine.ops.reference.sampling import process_logits

PROBABILITY = 1e-6
DRAWS = 64
ALWAYS_OUT = 1024  # ids at the end of the talker's vocabulary, but for the end itself


def check_sampler(
    cases: list[dict[str, Any]], arrays: dict[str, np.ndarray], backend: Backend, report: Report
) -> set[str]:
    """Probabilities by the host's filter; draws and greedy choices by the backend itself."""
    compared: set[str] = set()
    for index, stated in enumerate(cases):
        at = f"s{index}"
        logits, history, probabilities = (
            arrays[f"{at}/{part}"] for part in ("logits", "history", "probs")
        )
        seen = np.zeros(len(logits), np.uint32)
        seen[history] = 1
        rules = _rules(stated)
        scores = process_logits(logits, rules[0], len(history), seen)
        masses = np.exp(scores - scores.max())
        report.array(f"{at}/probs", masses / masses.sum(), probabilities, PROBABILITY)
        drawn = _chosen(backend, logits, rules, seen, len(history), DRAWS)
        report.same(f"{at}: drawn out of bounds", drawn[probabilities[drawn] == 0].tolist(), [])
        rules["temperature"] = 0
        greedy = _chosen(backend, logits, rules, seen, len(history), 1)
        report.same(f"{at}/greedy", int(greedy[0]), int(arrays[f"{at}/greedy"]))
        compared |= {f"{at}/{part}" for part in ("logits", "history", "probs", "greedy")}
    return compared


def _rules(stated: dict[str, Any]) -> np.ndarray:
    rules = np.zeros(1, SAMPLING_PARAMS)
    rules["end"], rules["suppress"] = stated["eos"], stated["vocab"] - ALWAYS_OUT
    rules["minimum"] = stated["min_new_tokens"]
    for name in ("top_k", "temperature", "top_p", "repetition_penalty"):
        rules[name] = stated[name]
    return rules


def _chosen(
    backend: Backend,
    logits: np.ndarray,
    rules: np.ndarray,
    seen: np.ndarray,
    count: int,
    lines: int,
) -> np.ndarray:
    """What so many utterances with different seeds choose."""
    rows = np.zeros(lines, TALKER_STATE)
    rows["count"], rows["limit"], rows["length"] = count, count + 2, 1
    rows["seed"] = rows["slot"] = np.arange(lines)
    many = TalkerState(
        rows=backend.zeros((lines,), TALKER_STATE),
        codes=backend.zeros((lines, count + 2, 2), np.uint32),
        seen=backend.zeros((lines, len(seen)), np.uint32),
    )
    rules_slot, logits_slot = (
        backend.zeros((lines,), SAMPLING_PARAMS),
        backend.zeros((lines, len(logits))),
    )
    for slot, array in (
        *(
            (many.rows, rows),
            (many.seen, np.tile(seen, (lines, 1))),
            (rules_slot, np.tile(rules, lines)),
        ),
        (logits_slot, np.tile(logits, (lines, 1))),
    ):
        backend.write(slot, array)
    backend.record(lambda: backend.sample_code(logits_slot, rules_slot, many)).run()
    after = backend.read(many.rows)
    backend.release(many.rows, many.codes, many.seen, rules_slot, logits_slot)
    return np.where(after["done"] == STOP_END, rules["end"][0], after["token"]).astype(np.int64)
