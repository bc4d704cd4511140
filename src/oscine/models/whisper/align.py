"""One pass over given tokens that keeps where they look: the device's part of word times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from oscine import ops
from oscine.models.whisper import model
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.request import Alignment

if TYPE_CHECKING:
    from oscine.models.whisper.decode import Decoder


def alignment_heads(config: WhisperConfig) -> dict[int, tuple[int, ...]]:
    """The heads of each layer that follow the audio.

    Those that the checkpoint names, else all of the upper half, as openai whisper/model.py.
    """
    pairs = config.alignment_heads
    if not pairs:
        layers = range(config.n_text_layer // 2, config.n_text_layer)
        pairs = tuple((layer, head) for layer in layers for head in range(config.n_text_head))
    return {
        layer: tuple(sorted(head for other, head in pairs if other == layer))
        for layer in sorted({layer for layer, _ in pairs})
    }


class Aligner:
    """The recorded passes of one decoder, by padded length."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        config, backend = decoder.config, decoder.backend
        self.heads = alignment_heads(config)
        self.state = ops.State(
            backend.slot((1,), ops.STATE), backend.slot((1, config.n_text_ctx), np.uint32)
        )
        self.rules = backend.slot((1,), ops.RULES)
        self.plans: dict[int, tuple[ops.Tensor, list[ops.Tensor], ops.Plan]] = {}

    def run(self, prompt: Sequence[int], end: int, frames: int, window: int) -> Alignment:
        """See Decoder.align."""
        config, backend = self.decoder.config, self.decoder.backend
        length = min(backend.padded(len(prompt)), config.n_text_ctx)
        if length not in self.plans:
            self.plans[length] = self.record(length)
        slot, results, plan = self.plans[length]
        tokens = np.full((1, length), end, np.uint32)
        tokens[0, : len(prompt)] = prompt
        state, rules = np.zeros(1, ops.STATE), np.zeros(1, ops.RULES)
        state["length"], state["window"], state["frames"] = len(prompt), window, frames
        rules["vocabulary"], rules["end"] = config.n_vocab, end
        backend.write(slot, tokens)
        backend.write(self.state.rows, state)
        backend.write(self.rules, rules)
        plan.run()
        *weights, shares = backend.snapshot(*results)()
        rows = [layer[:, : len(prompt), :frames] for layer in weights]
        return Alignment(np.concatenate(rows), shares[: len(prompt) - 1])

    def release(self) -> None:
        """Give back what only these passes use."""
        backend = self.decoder.backend
        backend.release(self.state.rows, self.state.tokens, self.rules)
        for slot, results, _ in self.plans.values():
            backend.release(slot, *results)

    def record(self, length: int) -> tuple[ops.Tensor, list[ops.Tensor], ops.Plan]:
        """A plan for prompts of up to so many tokens: its prompt slot, its results."""
        config, backend = self.decoder.config, self.decoder.backend
        slot = backend.slot((1, length), np.uint32)
        weights = {
            layer: backend.slot((len(chosen), length, config.n_audio_ctx))
            for layer, chosen in self.heads.items()
        }
        shares = backend.slot((length,))
        plan = backend.record(lambda: self.trace(slot, weights, shares), name="align")
        return slot, [*weights.values(), shares], plan

    def trace(self, prompt: ops.Tensor, weights: dict[int, ops.Tensor], shares: ops.Tensor) -> None:
        """The decoder over the prompt, its attention to the audio kept."""
        d = self.decoder
        backend, config = d.backend, d.config
        kept = {layer: model.KeptWeights(self.heads[layer], weights[layer]) for layer in weights}
        x = model.decode(backend, d.weights, config, d.caches, d.memory, self.state, prompt, kept)
        logits = model.logits(backend, d.weights, x)
        backend.keep(backend.probability(logits, prompt, self.rules, self.state), shares)
