#!/usr/bin/env python3
"""Small random Parakeet checkpoints with the upstream program's outputs, stage by stage.

Usage: parakeet.py --out DIR [--seed 0] [--size mini|tiny|small] [--cases NAME,...]

Needs numpy, torch (CPU), transformers, tokenizers and safetensors; the set that is committed under
tests/goldens says in its manifest.json which versions made it. Everything is drawn from NumPy
generators keyed by seed, case and trial, and torch runs on one thread in float32, so a set can be
made again.

DIR/<case>/             checkpoint as its program stores it
DIR/<case>/golden.npz   expected arrays; DIR/<case>/golden.json  sizes, labels, results
DIR/audio/<case>.wav    16 kHz mono input; <case>_2.wav a shorter one, for a padded batch
DIR/manifest.json       versions, sizes and SHA-256 of every file in DIR
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from parakeet_case import Build
from parakeet_formats import build_formats
from whisper import synthetic_audio, write_manifest, write_wav
from whisper_case import write_goldens
from whisper_weights import rng_for


def draw_cases(seed: int, size: str) -> list[tuple[str, dict[str, Any], list[float]]]:
    """Cases: name, parameters, seconds of each recording.

    `tiny` keeps the shapes of released models (80 and 128 mels, kernel 9, durations 0 to 4);
    `small` walks away from them; `mini` is as little as proves something, to be committed. The
    seed picks heads and pieces.
    """
    rng = rng_for(seed, size, "parakeet")

    def pick(*choices: int) -> int:
        return choices[int(rng.integers(0, len(choices)))]

    base: dict[str, Any] = {"sub": 8, "dur": [], "hid": 0, "lstm": 0, "dtype": torch.float32}
    ctc, tdt, rnnt, formats = (dict(base, kind=kind) for kind in ("ctc", "tdt", "rnnt", "tdt"))
    plain, biased = {"bias": False, "scale": False}, {"bias": True, "scale": True}
    if size == "tiny":
        for case in (ctc, tdt, rnnt, formats):
            case |= {"pieces": 96, "chan": 8, "kernel": 9, "layers": 2, "local": (5,), "d": 32}
            case |= {"max_sym": (2,), "mels": 80}
        ctc |= biased | {"heads": 4}
        tdt |= plain | {"heads": pick(2, 4), "mels": 128, "hid": 32, "lstm": 2}
        tdt |= {"dur": [0, 1, 2, 3, 4]}
        rnnt |= biased | {"heads": 2, "hid": 24, "lstm": 2}
        formats |= plain | {"layers": 1, "heads": 2, "hid": 16, "lstm": 2, "dur": [0, 1, 2, 3, 4]}
        seconds = [[4.0, 1.3], [4.6, 1.3], [4.0, 1.3], []]
    elif size == "small":
        pieces = pick(80, 120)
        for case in (ctc, tdt, rnnt, formats):
            case |= {"pieces": pieces, "layers": 3, "max_sym": (1, 3)}
        ctc |= plain | {"d": 40, "heads": 5, "mels": 128, "chan": 12, "kernel": 7, "local": (3,)}
        ctc |= {"dtype": torch.bfloat16}
        tdt |= biased | {"d": 40, "heads": pick(1, 2), "mels": 80, "chan": 12, "kernel": 5}
        tdt |= {"hid": 24, "lstm": 1, "dur": [0, 1, 2, 4], "local": (9, 4)}
        rnnt |= plain | {"d": 36, "heads": 3, "mels": 128, "chan": 8, "kernel": 11, "local": (6,)}
        rnnt |= {"hid": 40, "lstm": 3, "dtype": torch.float16}
        formats |= biased | {"layers": 1, "d": 36, "heads": 3, "mels": 80, "chan": 6, "kernel": 7}
        formats |= {"hid": 20, "lstm": 1, "dur": [0, 1, 2, 4, 8]}
        seconds = [[3.4, 0.9], [4.6, 1.9], [3.6, 1.1], []]
    else:
        for case in (ctc, tdt, rnnt, formats):
            case |= {"pieces": 48, "chan": 4, "kernel": 5, "layers": 2, "local": (4,), "d": 16}
            case |= {"max_sym": (2,), "mels": 24}
        ctc |= biased | {"heads": 2, "dtype": torch.bfloat16, "kernel": 9}
        tdt |= plain | {"heads": pick(2, 3), "mels": 32, "hid": 20, "lstm": 2, "d": 24}
        tdt |= {"dur": [0, 1, 2, 4]}
        rnnt |= biased | {"heads": 2, "hid": 16, "lstm": 1, "dtype": torch.float16, "sub": 4}
        rnnt |= {"mels": 16}
        formats |= biased | {"layers": 1, "heads": 2, "hid": 16, "lstm": 2, "dur": [0, 1, 2, 3, 4]}
        formats |= {"quantised": True}
        seconds = [[3.2, 0.9], [3.4, 1.0], [2.4, 0.8], []]
    names = ("parakeet_ctc", "parakeet_tdt", "parakeet_rnnt", "parakeet_formats")
    return list(zip(names, (ctc, tdt, rnnt, formats), seconds, strict=True))


def build(case: str, seed: int, size: str, out: Path, p: dict, seconds: list[float]) -> None:
    """Make one case anew."""
    folder = out / case
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if case == "parakeet_formats":
        arrays, meta = build_formats(folder, case, seed, p)
        write_goldens(folder, arrays, {"case": case, "seed": seed, **meta})
        return
    audio = [
        synthetic_audio(rng_for(seed, size, case, f"audio{suffix}"), length)
        for suffix, length in zip(("", "2"), seconds, strict=True)
    ]
    (out / "audio").mkdir(exist_ok=True)
    for suffix, samples in zip(("", "_2"), audio, strict=True):
        write_wav(out / "audio" / f"{case}{suffix}.wav", samples)
    arrays, meta = Build(case, seed, folder, audio, p).run()
    write_goldens(folder, arrays, meta)
    print(f"{case}: trial {meta['trial']}", flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", choices=("mini", "tiny", "small"), default="mini")
    parser.add_argument("--cases", default="", help="some of them, with commas between")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    only = set(filter(None, options.cases.split(",")))
    for case, p, seconds in draw_cases(options.seed, options.size):
        if not only or case in only:
            build(case, options.seed, options.size, options.out, p, seconds)
    write_manifest(options.out, options.seed, options.size)


if __name__ == "__main__":
    main()
