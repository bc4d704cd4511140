#!/usr/bin/env python3
"""Small random Whisper checkpoints with the upstream program's outputs, stage by stage.

Usage: whisper.py --out DIR [--seed 0] [--size mini|tiny|small] [--cases NAME,...]

Needs numpy, torch (CPU), transformers, tokenizers and safetensors; the set that is committed under
tests/goldens says in its manifest.json which versions made it. Everything is drawn from NumPy
generators keyed by seed, case and trial, and torch runs on one thread in float32, so a set can be
made again.

DIR/<case>/             checkpoint as its program stores it
DIR/<case>/golden.npz   expected arrays; DIR/<case>/golden.json  sizes, ids, lists, results
DIR/audio/<case>.wav    16 kHz mono input; <case>_2.wav the one for the long form
DIR/manifest.json       versions, sizes and SHA-256 of every file
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import wave
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import WhisperForConditionalGeneration
from whisper_case import Build, write_goldens
from whisper_formats import build_formats
from whisper_tokenizer import write_tokenizer
from whisper_weights import model_config, rng_for, set_weights

LANGUAGES = ["en", "zh", "de", "es", "ru", "ko", "fr", "ja", "pt", "tr"]


def synthetic_audio(rng: np.random.Generator, seconds: float) -> np.ndarray:
    """Chirps under envelopes like syllables, noise and a stretch of exact zero: int16, 16 kHz."""
    count = round(seconds * 16000) + int(rng.integers(3, 120))
    t = np.arange(count) / 16000
    samples = np.zeros(count)
    for _ in range(5):
        low, high = rng.uniform(90, 1200), rng.uniform(300, 5200)
        rate, phase = rng.uniform(1.2, 6.0), rng.uniform(0, 6.28)
        loudness = rng.uniform(0.05, 0.2)
        envelope = np.clip(np.sin(2 * np.pi * rate * t + phase), 0, None) ** 1.5
        sweep = low * t + (high - low) * t * t / (2 * t[-1])
        samples += loudness * envelope * np.sin(2 * np.pi * sweep + phase)
    samples += rng.uniform(0.003, 0.01) * rng.standard_normal(count)
    start = int(rng.uniform(0.55, 0.7) * count)
    samples[start : start + int(0.08 * count)] = 0.0
    return np.clip(np.round(samples * 32767), -32768, 32767).astype(np.int16)


def write_wav(path: Path, samples: np.ndarray) -> None:
    """16 kHz mono, 16 bits."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(samples.astype("<i2").tobytes())


def draw_cases(seed: int, size: str) -> list[tuple[str, dict, list[float]]]:
    """Cases: name, parameters, seconds of each recording.

    `tiny` keeps the shapes of released models (1500 positions, 80 mels); `small` walks away from
    them; `mini` is as little as proves something, to be committed. The seed picks heads.
    """
    rng = rng_for(seed, size, "config")

    def pick(*choices: int) -> int:
        return choices[int(rng.integers(0, len(choices)))]

    single, half = torch.float32, torch.float16
    base: dict[str, Any] = {"e_ts": (0.4, 0.8), "ts_tokens": True, "nospeech": "nospeech"}
    base |= {"langs": LANGUAGES, "mels": 80, "d": 32, "enc": 2, "dec": 2, "dtype": single}
    multi, en, formats = ({**base, "multi": kind} for kind in (True, False, True))
    formats |= {"heads": 2, "enc": 1, "dec": 1, "msp": 20, "mtp": 32}
    if size == "tiny":
        multi |= {"heads": pick(2, 4), "msp": 1500, "mtp": 448, "max_new": 96, "beam": (5, 1.0)}
        multi |= {"stride": 5, "dtype": half}
        en |= {"heads": pick(2, 4), "dec": 3, "msp": 200, "mtp": 128, "max_new": 60}
        en |= {"beam": (3, 2.0), "shard": "200KB"}
        seconds = [[3.6], [3.3, 9.0], [1.0]]
    elif size == "small":
        for case in (multi, en, formats):
            case |= {"langs": LANGUAGES[:7], "nospeech": "nocaptions"}
        pick(80, 120)  # keeps the draws of the larger script this one was taken from
        multi |= {"ts_tokens": False, "mels": 128, "d": 40, "heads": pick(2, 5), "enc": 3}
        multi |= {"msp": 150, "mtp": 96, "max_new": 44, "beam": (4, 1.5)}
        en |= {"d": 48, "heads": pick(1, 2, 6), "dec": 3, "msp": 250, "mtp": 160, "dtype": half}
        en |= {"max_new": 80, "beam": (2, 1.0), "shard": "200KB"}
        formats |= {"multi": False, "heads": 1, "msp": 30, "mtp": 40}
        seconds = [[2.6, 7.2], [4.3], [1.0]]
    else:
        multi |= {"langs": LANGUAGES[:4], "mels": 24, "d": 24, "heads": pick(2, 3), "dtype": half}
        multi |= {"msp": 110, "mtp": 72, "max_new": 32, "beam": (3, 1.0), "stride": 2}
        multi |= {"ts_tokens": False}
        en |= {"langs": LANGUAGES[:3], "mels": 20, "d": 24, "heads": pick(1, 2), "enc": 1}
        en |= {"msp": 90, "mtp": 80, "max_new": 36, "beam": (2, 2.0), "shard": "60KB"}
        en |= {"nospeech": "nocaptions"}
        formats |= {"langs": LANGUAGES[:2], "mels": 12, "msp": 10, "mtp": 16, "more": True}
        seconds = [[1.5], [1.2, 4.0], [1.0]]
    names = ("whisper_multi", "whisper_en", "whisper_formats")
    return list(zip(names, (multi, en, formats), seconds, strict=True))


def build(case: str, seed: int, size: str, out: Path, p: dict, seconds: list[float]) -> None:
    """Make one case again."""
    folder = out / case
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if case == "whisper_formats":
        mel_rng, weight_rng = rng_for(seed, case, "in"), rng_for(seed, case, "w")
        written = write_tokenizer(folder_of_hf(folder), p, p["msp"] + 1, rng_for(seed, case, "tok"))
        config = model_config(p, written[1])
        model = WhisperForConditionalGeneration(config).eval()
        recipe = {"e_ts": 0.6, "pos": 1.8, "gain": 2.5, "g_fc2": 2.0, "p_eot": 17, "ph": 3}
        recipe |= {"c_eot": 30, "p_ts": 7, "ph_ts": 2, "c_ts": 15}
        ends = {"eot": written[1]["<|endoftext|>"], "ts": written[1]["<|0.00|>"]}
        set_weights(model, weight_rng, recipe | ends)
        arrays, meta = build_formats(folder, p, model, written, mel_rng)
        write_goldens(folder, arrays, {"case": case, "seed": seed, **meta})
        return
    audio = [
        synthetic_audio(rng_for(seed, size, case, f"audio{suffix}"), length)
        for suffix, length in zip(("", "2"), seconds, strict=False)
    ]
    (out / "audio").mkdir(exist_ok=True)
    for suffix, samples in zip(("", "_2"), audio, strict=False):
        write_wav(out / "audio" / f"{case}{suffix}.wav", samples)
    meta = Build(case, seed, folder, audio, p).run()
    print(f"{case}: trial {meta['trial']}", flush=True)


def folder_of_hf(folder: Path) -> Path:
    """Folders of the formats' tokenizer and Hugging Face checkpoint."""
    made = folder / "hf"
    made.mkdir()
    return made


def write_manifest(out: Path, seed: int, size: str) -> None:
    """The contents of the folder and the versions of the programs that wrote it."""
    files = {
        str(path.relative_to(out)): {
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(out.rglob("*"))
        if path.is_file()
        and path.name not in ("manifest.json", "README.md")
        # Speech is made by other versions, which its own manifest names.
        and not any(
            (folder / "manifest.json").exists()
            for folder in path.parents[:-1]
            if folder.is_relative_to(out) and folder != out
        )
    }
    versions = {"numpy": np.__version__, "torch": torch.__version__}
    versions["transformers"] = transformers.__version__
    manifest = {"seed": seed, "size": size, **versions, "files": files}
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1))
    total = sum(file["bytes"] for file in files.values())
    print(f"{total / 1e6:.2f} MB in {len(files)} files")


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
