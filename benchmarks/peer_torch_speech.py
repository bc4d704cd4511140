#!/usr/bin/env python3
"""Qwen3-TTS in PyTorch on the same card: the official package, or faster-qwen3-tts; bfloat16.

    python benchmarks/peer_torch_speech.py [--package official|faster] [--size 0.6b,1.7b]
        [--seconds 6] [--chunks 8,1] [--runs 3] [--device cuda:0] [--keep DIR]

The official package needs torch, accelerate, transformers==4.57.3 and qwen-tts==0.1.1; the other,
which replays CUDA graphs, faster-qwen3-tts besides. What only their reading of recordings needs is
stood in for. The same random weights and text as speech.py's. The official package does not stream:
its first audio is its last. The other one is timed whole, and streaming in chunks of each number of
frames in --chunks. Prints one JSON line for each.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import json
import statistics
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import speech_checkpoint
import torch
import transformers  # before the stand-ins: it looks for packages

for name in ("librosa", "librosa.filters", "soundfile", "sox", "onnxruntime", "gradio",
             "torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi"):  # fmt: skip
    try:
        __import__(name)
    except ImportError:
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__ = []
        module.mel = None  # type: ignore[attr-defined]
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)

# Newer transformers have no default of it, which the codec's encoder reads.
if not hasattr(transformers.MimiConfig, "rope_theta"):
    transformers.MimiConfig.rope_theta = 10000.0

from speech import FRAMES_PER_SECOND, TEXT  # noqa: E402

Call = Callable[[], Iterator[tuple[np.ndarray, int]]]


def official(folder: Path, frames: int, options: argparse.Namespace) -> dict[str, Call]:
    """The one call of the official package: the whole wave at its end."""
    from qwen_tts import Qwen3TTSModel

    model = Qwen3TTSModel.from_pretrained(
        str(folder), dtype=torch.bfloat16, attn_implementation="sdpa", device_map=options.device
    )

    def whole() -> Iterator[tuple[np.ndarray, int]]:
        waves, rate = model.generate_custom_voice(
            text=TEXT, speaker="ryan", language="english", max_new_tokens=frames + 1
        )
        yield waves[0], rate

    return {"whole": whole}


def faster(folder: Path, frames: int, options: argparse.Namespace) -> dict[str, Call]:
    """The calls of faster-qwen3-tts: whole, and streaming in chunks."""
    from faster_qwen3_tts import FasterQwen3TTS

    model = FasterQwen3TTS.from_pretrained(str(folder), device=options.device.partition(":")[0])
    asked = {
        "text": TEXT, "speaker": "ryan", "language": "english", "max_new_tokens": frames,
        "min_new_tokens": frames,
    }  # fmt: skip

    def whole() -> Iterator[tuple[np.ndarray, int]]:
        waves, rate = model.generate_custom_voice(**asked)
        yield waves[0], rate

    def streaming(chunk: int) -> Iterator[tuple[np.ndarray, int]]:
        for wave, rate, _ in model.generate_custom_voice_streaming(**asked, chunk_size=chunk):
            yield wave, rate

    chunks = [int(word) for word in options.chunks.split(",") if word]
    return {"whole": whole} | {f"chunks of {n}": partial(streaming, n) for n in chunks}


def timed(call: Call) -> tuple[float, float, float]:
    """Seconds to the first audio and to the last, and seconds of audio."""
    started, first, seconds = perf_counter(), 0.0, 0.0
    for wave, rate in call():
        seconds += np.asarray(wave).size / rate
        first = first or perf_counter() - started
    return first, perf_counter() - started, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", choices=("official", "faster"), default="official")
    parser.add_argument("--size", default="0.6b,1.7b")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--chunks", default="8,1", help="frames in a chunk, where it streams")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--keep", type=Path, help="where checkpoints are, or are made and kept")
    options = parser.parse_args()
    frames = round(options.seconds * FRAMES_PER_SECOND)
    load = official if options.package == "official" else faster
    for size in options.size.split(","):
        with speech_checkpoint.checkpoint(size, options.keep) as folder:
            calls = load(folder, frames, options)
        for mode, call in calls.items():
            runs = [timed(call) for _ in range(options.runs + 1)][1:]
            first, wall, seconds = (statistics.median(values) for values in zip(*runs, strict=True))
            record = {
                "case": f"qwen3-tts {size}", "package": options.package, "mode": mode,
                "device": f"PyTorch {torch.__version__}, {options.device}", "dtype": "bfloat16",
                "seconds": seconds, "wall_s": wall, "first_audio_ms": 1000 * first,
                "frame_ms": 1000 * wall / (seconds * FRAMES_PER_SECOND),
                "times_real_time": seconds / wall,
                "spread_s": [min(run[1] for run in runs), max(run[1] for run in runs)],
            }  # fmt: skip
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
