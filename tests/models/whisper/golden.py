"""The small multilingual checkpoint of the goldens, and what tests ask of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.engine.sequence import EncoderInput
from oscine.models.whisper.network import tokenizer_of
from oscine.models.whisper.sequences import DecodingRequest, DecodingSequence
from oscine.models.whisper.tokens import SpecialTokens, resolve_special_tokens
from oscine.models.whisper.weights import WhisperWeights
from oscine.ops.reference import Reference
from tests.engine.by_hand import ByHand

GOLDEN = Path(__file__).resolve().parents[2] / "goldens" / "whisper_multi"
META = json.loads((GOLDEN / "golden.json").read_text(encoding="utf-8"))
BACKENDS = ["numpy", pytest.param("gpu", marks=pytest.mark.gpu)]

backends = pytest.mark.parametrize("name", BACKENDS)
Engines = Callable[..., ByHand]
Backends = Callable[[str], Any]
Decoding = Callable[..., list[Any]]
Windows = list[EncoderInput]


class Halved(Reference):
    """NumPy that rounds keys and values of windows, as a GPU does where weights are float16."""

    f16_cross_kv = True


def results(engine: ByHand, *sequences: Any) -> list[Any]:
    """What sequences come to that are submitted at once."""
    for sequence in sequences:
        engine.submit(sequence)
    engine.until_idle()
    return [sequence.result(0) for sequence in sequences]


def time_first(mel: Any) -> Any:
    return np.ascontiguousarray(mel.T, np.float32)


def request_of(prompt: Any, timestamps: bool = False, **options: Any) -> DecodingRequest:
    ids = META["ids"]
    usual: dict[str, Any] = {
        "sot_index": 0,
        "suppress_tokens": tuple(META["suppress_tokens"]),
        "begin_suppress_tokens": tuple(META["begin_suppress_tokens"]),
        "eot": ids["<|endoftext|>"],
        "timestamp_begin": ids["<|0.00|>"],
        "no_timestamps": ids["<|notimestamps|>"],
        "no_speech": ids["<|nospeech|>"],
        "max_initial_timestamp_index": META["max_initial_timestamp_index"],
        "max_new_tokens": META["max_new_tokens"],
    }
    chosen = tuple(int(token) for token in prompt)
    return DecodingRequest(prompt=chosen, timestamps=timestamps, **(usual | options))


START = tuple(META["sot_sequence"])
PLAIN = request_of((*START, META["ids"]["<|notimestamps|>"]))
TIMED = request_of(START, timestamps=True)
SAMPLED = replace(TIMED, temperature=0.8, best_of=4, seed=11)
#: Some text before, as from a window before this one.
CONTEXT = request_of(
    (META["ids"]["<|startofprev|>"], 70, 80, 90, *START), timestamps=True, sot_index=4
)
BEAMS = replace(PLAIN, beam_size=4, max_candidates=4)


def tokens_of(weights: WhisperWeights) -> SpecialTokens:
    """The special ids of the checkpoint."""
    tokenizer = tokenizer_of(weights, offline=True)
    assert tokenizer is not None
    return resolve_special_tokens(tokenizer, weights.config)


def side_by_side(engine: ByHand, windows: Windows, requests: list[DecodingRequest]) -> list[Any]:
    """The rows of each request, of its window, decoded together from their first tokens on."""
    sequences = [DecodingSequence(*pair) for pair in zip(windows, requests, strict=False)]
    engine._reserve(0, len(windows), sequences[0])
    results(
        engine, *(DecodingSequence(audio, replace(PLAIN, max_new_tokens=1)) for audio in windows)
    )  # encoded
    engine.occupancy.max_sequences = 0
    found = results(engine, *sequences)
    assert engine.occupancy.max_sequences == len(sequences)
    return found
