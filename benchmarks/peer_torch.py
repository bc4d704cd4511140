#!/usr/bin/env python3
"""The same sizes in PyTorch float16 on CUDA: encoder, decoder step under a CUDA graph, generate().

Usage: peer_torch.py [--size turbo] [--encoder 1,8] [--steps 1,16,32] [--generate 16,32]
           [--tokens 90] [--repeat 20] [--device cuda]
Needs torch and transformers. Random weights. The graph is the fastest that PyTorch can do for one
token: no launch cost, fixed cache of 448. generate() decodes a batch of windows whose features are
on the device, to exactly --tokens tokens each. An empty list leaves a part out; a device without
CUDA has no graph. Prints one JSON line for each batch of each part.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import torch
from gpu import SIZES
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.set_grad_enabled(False)

WINDOW_S = 30.0


def timed(run: Callable[[], object], repeat: int) -> float:
    """Median milliseconds, after three runs of warm-up."""
    values = []
    for index in range(repeat + 3):
        wait()
        started = perf_counter()
        run()
        wait()
        if index >= 3:
            values.append(1000 * (perf_counter() - started))
    return statistics.median(values)


def wait() -> None:
    """Wait for CUDA, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Step:
    """One decoder step written out, its cache fixed, so that a CUDA graph can hold it."""

    def __init__(self, model: WhisperForConditionalGeneration, audio: torch.Tensor) -> None:
        self.decoder = model.model.decoder
        self.heads = model.config.decoder_attention_heads
        self.layers = list(self.decoder.layers)
        width = model.config.d_model
        batch = audio.shape[0]
        shape = (batch, self.heads, 448, width // self.heads)
        new = {"dtype": audio.dtype, "device": audio.device}
        self.cache = [(torch.zeros(shape, **new), torch.zeros(shape, **new)) for _ in self.layers]
        self.memory = [
            (
                self.split(layer.encoder_attn.k_proj(audio)),
                self.split(layer.encoder_attn.v_proj(audio)),
            )
            for layer in self.layers
        ]
        self.token = torch.ones((batch, 1), dtype=torch.long, device=audio.device)
        self.position = torch.full((1,), 100, dtype=torch.long, device=audio.device)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def run(self) -> None:
        attend = torch.nn.functional.scaled_dot_product_attention
        d = self.decoder
        x = d.embed_tokens(self.token) + d.embed_positions.weight[self.position][None]
        visible = (torch.arange(448, device=x.device) <= self.position)[None, None, None]
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


def random_model(size: str, device: str) -> WhisperForConditionalGeneration:
    """A released size with random weights, float16."""
    mels, d, heads, encoders, decoders, vocabulary = SIZES[size]
    config = WhisperConfig(
        vocab_size=vocabulary, num_mel_bins=mels, d_model=d, encoder_layers=encoders,
        decoder_layers=decoders, encoder_attention_heads=heads, decoder_attention_heads=heads,
        encoder_ffn_dim=4 * d, decoder_ffn_dim=4 * d,
    )  # fmt: skip
    with torch.device(device):
        return WhisperForConditionalGeneration(config).half().eval()


def graph_step_ms(
    model: WhisperForConditionalGeneration, audio: torch.Tensor, repeat: int
) -> float:
    """Milliseconds a step of a batch, replayed from a CUDA graph."""
    step = Step(model, audio)
    step.run()
    with torch.cuda.stream(torch.cuda.Stream()):
        step.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.run()

    def burst() -> None:
        for _ in range(128):
            graph.replay()

    return timed(burst, repeat) / 128


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The parts that are asked for, batch by batch."""
    model = random_model(arguments.size, arguments.device)
    mels = model.config.num_mel_bins

    def windows(count: int) -> torch.Tensor:
        return torch.randn(count, mels, 3000, dtype=torch.float16, device=arguments.device)

    for batch in numbers(arguments.encoder):
        mel = windows(batch)
        spent = timed(lambda mel=mel: model.model.encoder(mel), arguments.repeat) / batch
        yield {"part": "encoder", "batch": batch, "encoder_ms": spent}
    for batch in numbers(arguments.steps):
        audio = model.model.encoder(windows(batch)).last_hidden_state
        spent = graph_step_ms(model, audio, arguments.repeat)
        yield {"part": "step", "batch": batch, "graph_step_ms": spent}
    for batch in numbers(arguments.generate):
        mel, new = windows(batch), arguments.tokens
        asked = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
        spent = timed(lambda mel=mel, asked=asked: model.generate(mel, **asked), 3)
        times = 1000 * WINDOW_S * batch / spent
        yield {
            "part": "generate", "batch": batch, "tokens": new, "generate_ms": spent,
            "times": times, "windows_a_second": times / WINDOW_S,
        }  # fmt: skip


def numbers(text: str) -> list[int]:
    """The numbers of a list such as "1,16"."""
    return [int(word) for word in text.split(",") if word]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="turbo")
    parser.add_argument("--encoder", default="1,8", help="windows in a batch")
    parser.add_argument("--steps", default="1,16,32", help="rows in a batch")
    parser.add_argument("--generate", default="16,32", help="windows in a batch")
    parser.add_argument("--tokens", type=int, default=90)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    named = {"case": f"whisper {arguments.size}", "peer": f"torch {torch.__version__} float16"}
    for found in measure(arguments):
        print(json.dumps(named | found), flush=True)


if __name__ == "__main__":
    main()
