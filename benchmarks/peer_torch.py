#!/usr/bin/env python3
"""The same sizes in PyTorch float16 on CUDA: encoder, decoder step under a CUDA graph, generate().

Usage: peer_torch.py [--size turbo] [--repeat 20]; needs torch and transformers. Random weights.
The graph is the fastest that PyTorch can do for one token: no launch cost, fixed cache of 448.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from time import perf_counter

import torch
from gpu import SIZES
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.set_grad_enabled(False)


def timed(run: Callable[[], object], repeat: int) -> float:
    """Median milliseconds, after three runs of warm-up."""
    values = []
    for index in range(repeat + 3):
        torch.cuda.synchronize()
        started = perf_counter()
        run()
        torch.cuda.synchronize()
        if index >= 3:
            values.append(1000 * (perf_counter() - started))
    return statistics.median(values)


class Step:
    """One decoder step written out, its cache fixed, so that a CUDA graph can hold it."""

    def __init__(self, model: WhisperForConditionalGeneration, audio: torch.Tensor) -> None:
        self.decoder = model.model.decoder
        self.heads = model.config.decoder_attention_heads
        self.layers = list(self.decoder.layers)
        width = model.config.d_model
        shape = (1, self.heads, 448, width // self.heads)
        new = {"dtype": torch.float16, "device": "cuda"}
        self.cache = [(torch.zeros(shape, **new), torch.zeros(shape, **new)) for _ in self.layers]
        self.memory = [
            (
                self.split(layer.encoder_attn.k_proj(audio)),
                self.split(layer.encoder_attn.v_proj(audio)),
            )
            for layer in self.layers
        ]
        self.token = torch.ones((1, 1), dtype=torch.long, device="cuda")
        self.position = torch.full((1,), 100, dtype=torch.long, device="cuda")

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(1, x.shape[1], self.heads, -1).transpose(1, 2)

    def run(self) -> None:
        attend = torch.nn.functional.scaled_dot_product_attention
        d = self.decoder
        x = d.embed_tokens(self.token) + d.embed_positions.weight[self.position][None]
        visible = (torch.arange(448, device="cuda") <= self.position)[None, None, None]
        for layer, (keys, values), memory in zip(self.layers, self.cache, self.memory, strict=True):
            h = layer.self_attn_layer_norm(x)
            a = layer.self_attn
            keys.index_copy_(2, self.position, self.split(a.k_proj(h)))
            values.index_copy_(2, self.position, self.split(a.v_proj(h)))
            y = attend(self.split(a.q_proj(h)), keys, values, attn_mask=visible)
            x = x + a.out_proj(y.transpose(1, 2).flatten(2))
            c = layer.encoder_attn
            y = attend(self.split(c.q_proj(layer.encoder_attn_layer_norm(x))), *memory)
            x = x + c.out_proj(y.transpose(1, 2).flatten(2))
            h = layer.final_layer_norm(x)
            x = x + layer.fc2(torch.nn.functional.gelu(layer.fc1(h)))
        logits = d.layer_norm(x) @ d.embed_tokens.weight.T
        self.token.copy_(logits.argmax(-1))
        self.position.copy_((self.position + 1) % 448)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="turbo")
    parser.add_argument("--repeat", type=int, default=20)
    arguments = parser.parse_args()
    mels, d, heads, encoders, decoders, vocabulary = SIZES[arguments.size]
    config = WhisperConfig(
        vocab_size=vocabulary, num_mel_bins=mels, d_model=d, encoder_layers=encoders,
        decoder_layers=decoders, encoder_attention_heads=heads, decoder_attention_heads=heads,
        encoder_ffn_dim=4 * d, decoder_ffn_dim=4 * d,
    )  # fmt: skip
    with torch.device("cuda"):
        model = WhisperForConditionalGeneration(config).half().eval()
    mel = torch.randn(1, mels, 3000, dtype=torch.float16, device="cuda")
    encoder_ms = timed(lambda: model.model.encoder(mel), arguments.repeat)
    step = Step(model, model.model.encoder(mel).last_hidden_state)
    step.run()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.run()

    def burst() -> None:
        for _ in range(128):
            graph.replay()

    step_ms = timed(burst, arguments.repeat) / 128
    new = 64
    generate_ms = timed(
        lambda: model.generate(mel, max_new_tokens=new, min_new_tokens=new, do_sample=False), 3
    )
    found = {
        "case": f"whisper {arguments.size}",
        "peer": f"torch {torch.__version__} float16",
        "device": torch.cuda.get_device_name(),
        "encoder_ms": encoder_ms,
        "graph_step_ms": step_ms,
        "generate_ms_a_token": (generate_ms - encoder_ms) / new,
    }
    for name, value in found.items():
        print(f"{name:20} {value:.4g}" if isinstance(value, float) else f"{name:20} {value}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
