"""transformers' Parakeet taken apart, and NeMo's greedy loop over its parts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch

MARKS = ("?", "'", "\u00a1", "\u00bf", "-", ":", ",", "%", "/", ".", "!")


def encode(
    encoder: Any, features: torch.Tensor, window: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Subsampled (before scaling), position table, output of every layer; all without a batch.

    `window`: frames further apart do not see each other.
    """
    subsampled = encoder.subsampling(features[None], None)
    rows = subsampled * encoder.input_scale
    positions = encoder.encode_positions(rows)
    mask = None
    if window is not None:
        index = torch.arange(rows.shape[1])
        mask = ((index[:, None] - index[None]).abs() <= window)[None, None]
    layers = []
    for layer in encoder.layers:
        rows = layer(rows, attention_mask=mask, position_embeddings=positions)
        layers.append(rows[0])
    return subsampled[0], positions[0], layers


def first_block(
    encoder: Any, subsampled: torch.Tensor, positions: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The first block's parts one by one."""
    block = encoder.layers[0]
    rows = subsampled[None] * encoder.input_scale
    found = {}
    rows = rows + 0.5 * block.feed_forward1(block.norm_feed_forward1(rows))
    found["blk0_after_ff1"] = rows[0]
    normed = block.norm_self_att(rows)
    rows = rows + block.self_attn(normed, position_embeddings=positions, attention_mask=None)[0]
    found["blk0_after_attn"] = rows[0]
    rows = rows + block.conv(block.norm_conv(rows))
    found["blk0_after_conv"] = rows[0]
    return found


class Predictor:
    """The prediction network one label at a time."""

    def __init__(self, model: Any) -> None:
        self.decoder = model.decoder

    def step(self, token: int, state: Any) -> tuple[torch.Tensor, Any]:
        rows, state = self.decoder.lstm(self.decoder.embedding(torch.tensor([[token]])), state)
        return self.decoder.decoder_projector(rows)[0, 0], state


def greedy(
    model: Any, projected: torch.Tensor, labels: int, durations: list[int] | None, most: int
) -> dict[str, Any] | None:
    """TDT, or RNN-T without durations, as NeMo's label-looping decoder does it; None if endless.

    Trace rows: frame, token, index of the duration (-1 for RNN-T), frames moved.
    """
    blank, frames = labels - 1, projected.shape[0]
    predictor = Predictor(model)
    predicted, state = predictor.step(blank, None)
    t = at_frame = forced = 0
    trace: list[tuple[int, int, int, int]] = []
    margin, logits = 1e9, []
    while t < frames:
        row = model.joint.head(model.joint.activation(projected[t] + predicted))
        logits.append(row)
        margin = min(margin, lead(row[:labels]))
        token = int(torch.argmax(row[:labels]))
        index, moved = -1, 1 if token == blank else 0
        if durations is not None:
            margin = min(margin, lead(row[labels:]))
            index = int(torch.argmax(row[labels:]))
            moved = durations[index]
            if token == blank and moved == 0:
                moved = 1
        if token != blank:
            predicted, state = predictor.step(token, state)
            at_frame += 1
            if moved == 0 and at_frame >= most:
                moved, forced = 1, forced + 1
        trace.append((t, token, index, moved))
        t += moved
        if moved:
            at_frame = 0
        if len(trace) > 40 * frames:
            return None
    tokens = [token for _, token, _, _ in trace if token != blank]
    return {
        "trace": trace,
        "margin": margin,
        "logits": torch.stack(logits),
        "forced": forced,
        "tokens": tokens,
    }


def lead(row: torch.Tensor) -> float:
    """How far the best is from the next."""
    top = torch.topk(row, 2).values
    return float(top[0] - top[1])


def collapse(frames: list[int], blank: int) -> list[tuple[int, int, int]]:
    """CTC: runs of equal labels that are no blank, as (token, first frame, frame after it)."""
    runs: list[tuple[int, int, int]] = []
    for index, token in enumerate(frames):
        if index and token == frames[index - 1]:
            if token != blank:
                runs[-1] = (*runs[-1][:2], index + 1)
        elif token != blank:
            runs.append((token, index, index + 1))
    return runs


def moved_marks(items: list[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Punctuation has no length: it lies at the end of the token before it."""
    found: list[tuple[str, float, float]] = []
    for text, start, end in items:
        if text in MARKS and found:
            start = end = found[-1][2]
        found.append((text, start, end))
    return found


def runs_enough(frames: np.ndarray, blank: int) -> bool:
    """CTC frames that prove something: repeated labels, labels split by a blank, blanks."""
    repeated = any(a == b != blank for a, b in pairwise(frames))
    split = any(
        a == c != blank and b == blank
        for a, b, c in zip(frames, frames[1:], frames[2:], strict=False)
    )
    tokens = [token for token, _, _ in collapse(list(frames), blank)]
    plenty = len(tokens) >= 8 and len(set(tokens)) >= 6 and 0 not in tokens
    return bool(repeated and split and plenty and (frames == blank).mean() >= 0.2)
