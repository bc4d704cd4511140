"""Parakeet cases: every array and sequence that tools/goldens/parakeet.py writes, stage by stage.

A stage is fed the golden input of that stage where there is one, so that a difference shows where
it arises.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checks.parakeet_decode import check_decoding, check_joint
from checks.parakeet_encoder import check_encoder, check_file
from checks.report import Report
from oscine.audio.io import decode as decode_audio
from oscine.audio.mel import mel_filters
from oscine.audio.mel_nemo import N_FFT, log_mel, raw_log_mel
from oscine.models.parakeet.weights import ParakeetWeights, load_weights
from oscine.ops import Backend
from oscine.tree import tree_paths

BANK, RAW_MEL, MEL = 1e-7, 5e-4, 2e-3


@dataclass(frozen=True)
class Case:
    """What a check of a whole model is given."""

    folder: Path
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]
    weights: ParakeetWeights
    samples: np.ndarray  # of the recording, float32 at 16 kHz
    short: np.ndarray  # of the shorter one


def check(folder: Path, backend: Backend, report: Report) -> None:
    """Compare one case."""
    meta = json.loads((folder / "golden.json").read_text("utf-8"))
    with np.load(folder / "golden.npz") as stored:
        arrays = dict(stored)
    if "files" in meta:
        check_formats(folder, meta, arrays, backend, report)
        return
    weights = load_weights(folder)
    audio = folder.parent / "audio"
    samples, short = (
        decode_audio(audio / f"{folder.name}{suffix}.wav").samples for suffix in ("", "_2")
    )
    case = Case(folder, meta, arrays, weights, samples, short)
    report.begin(folder.name, f"{weights.config}, stored {weights.stored_dtype}")
    compared = check_weights(case, report) | check_front_end(case, report)
    compared |= check_encoder(case, backend, report) | check_decoding(case, backend, report)
    report.not_yet(name for name in arrays if name not in compared)


# Weights and labels


def check_weights(case: Case, report: Report) -> set[str]:
    """Labels, and text from them; names of the arrays that were compared."""
    tokenizer = case.weights.tokenizer
    assert tokenizer is not None
    report.same("pieces", list(case.weights.vocabulary), case.meta["pieces"])
    tokens = case.arrays["ctc_tokens" if case.weights.ctc else "tokens"].tolist()
    report.same("text_from_pieces", tokenizer.decode(tokens).strip(), case.meta["text_from_pieces"])
    return set()


# Front end


def check_front_end(case: Case, report: Report) -> set[str]:
    """Mel bank, features before and after normalisation."""
    n_mels, arrays = case.weights.config.n_mels, case.arrays
    raw = raw_log_mel(case.samples, n_mels)
    report.array("mel_filters", mel_filters(n_mels, N_FFT), arrays["mel_filters"], BANK)
    report.array("mel_raw_first64", raw[:64], arrays["mel_raw_first64"], RAW_MEL)
    # Upstream has one frame more, which it leaves out of everything that follows.
    report.array("mel_raw_last17", raw[-16:], arrays["mel_raw_last17"][:16], RAW_MEL)
    report.array("mel", log_mel(case.samples, n_mels), arrays["mel"], MEL)
    return {"mel_filters", "mel_raw_first64", "mel_raw_last17", "mel"}


# File formats


def check_formats(
    folder: Path,
    meta: dict[str, Any],
    arrays: dict[str, np.ndarray],
    backend: Backend,
    report: Report,
) -> None:
    """Every file gives the same tree of tensors; quantised ones nearly, to half a step."""
    report.begin(folder.name, ", ".join(meta["files"]))
    trees, compared = {}, {"mel", "tokens"}
    for key, name in meta["files"].items():
        file = name.split(" ")[0]
        weights = load_weights(folder / file)
        trees[key] = tree_paths((weights.encoder, weights.transducer))
        report.same(f"{key}: labels", list(weights.vocabulary), meta["pieces"])
        compared |= check_joint(key, weights, arrays, backend, report)
        if "_q" not in key:
            compared |= check_file(key, weights, arrays, backend, report)
    first = trees["hf"]
    for key, tree in trees.items():
        report.same(f"{key}: tensors", sorted(tree), sorted(first))
        if "_q" not in key:
            different = [at for at in first if not np.array_equal(tree[at], first[at])]
            report.same(f"{key}: values", different, [])
    report.not_yet(name for name in arrays if name not in compared)
