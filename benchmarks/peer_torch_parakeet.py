#!/usr/bin/env python3
"""The same encoder in PyTorch: transformers' ParakeetEncoder, float16, on CUDA, random weights.

    python benchmarks/peer_torch_parakeet.py [--seconds 30] [--batch 1,16] [--runs 9]

Needs torch and transformers. Prints one JSON line a batch.
"""

from __future__ import annotations

import argparse
import json
import statistics
from time import perf_counter

import torch
from transformers import ParakeetEncoderConfig
from transformers.models.parakeet.modeling_parakeet import ParakeetEncoder

torch.set_grad_enabled(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--batch", default="1,16")
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    config = ParakeetEncoderConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=8, intermediate_size=4096,
        num_mel_bins=128, attention_bias=False, convolution_bias=False, scale_input=False,
    )  # fmt: skip
    model = ParakeetEncoder(config).to("cuda", torch.float16).eval()
    for batch in map(int, arguments.batch.split(",")):
        shape = (batch, round(arguments.seconds * 100), config.num_mel_bins)
        mel = torch.randn(shape, device="cuda", dtype=torch.float16)
        values = []
        for index in range(arguments.runs + 5):
            torch.cuda.synchronize()
            started = perf_counter()
            model(mel)
            torch.cuda.synchronize()
            if index >= 5:
                values.append(1000 * (perf_counter() - started))
        spent = statistics.median(values)
        record = {
            "case": "parakeet 0.6b encoder", "device": f"PyTorch {torch.__version__} float16",
            "batch": batch, "seconds": arguments.seconds, "encoder_ms": spent,
            "spread_ms": [min(values), max(values)],
        }  # fmt: skip
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
