#!/usr/bin/env python3
"""The official Qwen3-TTS in PyTorch on the same card: a call of the public API, bfloat16, CUDA.

    python benchmarks/peer_torch_speech.py [--size 0.6b,1.7b] [--seconds 6] [--runs 3]
        [--device cuda:0] [--keep DIR]

Needs torch, accelerate, transformers==4.57.3 and qwen-tts==0.1.1; what only its reading of
recordings needs is stood in for. The same random weights as speech.py's. It does not stream: its
first audio is its last. Prints one JSON line a size.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import json
import statistics
import sys
import types
from pathlib import Path
from time import perf_counter

import numpy as np
import speech_checkpoint
import torch
import transformers  # noqa: F401 - before the stand-ins: it looks for packages

for name in ("librosa", "librosa.filters", "soundfile", "sox", "onnxruntime", "torchaudio",
             "torchaudio.compliance", "torchaudio.compliance.kaldi"):  # fmt: skip
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

from qwen_tts import Qwen3TTSModel  # noqa: E402
from speech import TEXT  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="0.6b,1.7b")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--keep", type=Path, help="where checkpoints lie, or are made and kept")
    options = parser.parse_args()
    frames = round(options.seconds * 12.5)
    for size in options.size.split(","):
        with speech_checkpoint.checkpoint(size, options.keep) as folder:
            model = Qwen3TTSModel.from_pretrained(
                str(folder),
                dtype=torch.bfloat16,
                attn_implementation="sdpa",
                device_map=options.device,
            )
        spent, counted = [], []
        for _ in range(options.runs + 1):
            started = perf_counter()
            waves, rate = model.generate_custom_voice(
                text=TEXT, speaker="ryan", language="english", max_new_tokens=frames + 1
            )
            spent.append(perf_counter() - started)
            counted.append(len(waves[0]) / rate)
        seconds, wall = counted[-1], statistics.median(spent[1:])
        record = {
            "case": f"qwen3-tts {size}", "device": f"PyTorch {torch.__version__}, {options.device}",
            "dtype": "bfloat16", "seconds": seconds, "wall_s": wall,
            "frame_ms": 1000 * wall / (seconds * 12.5), "times_real_time": seconds / wall,
            "spread_s": [min(spent[1:]), max(spent[1:])],
            "finite": bool(np.isfinite(waves[0]).all()),
        }  # fmt: skip
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
