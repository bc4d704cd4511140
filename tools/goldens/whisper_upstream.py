"""The upstream program's answers: transformers' Whisper, stage by stage, and openai's loops on it.

Names that begin with `own_` in the goldens come from the loops here, where transformers has no such
mode; where both have it, they are asserted to agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows
from transformers import WhisperForConditionalGeneration
from transformers.generation.logits_process import (
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

NEVER = -math.inf


class Upstream:
    """transformers' modules, with the outputs of every layer."""

    def __init__(self, model: WhisperForConditionalGeneration) -> None:
        self.model, self.config = model, model.config

    def encode(self, mel: np.ndarray) -> dict[str, Any]:
        """mel [n_mels, frames] -> stem [S, d], layers (each [S, d]), out [S, d]."""
        encoder = self.model.model.encoder
        caught: dict[Any, torch.Tensor] = {}

        def keep(index: int) -> Callable[..., None]:
            def hook(_module: Any, _inputs: Any, output: Any) -> None:
                caught[index] = output[0] if isinstance(output, tuple) else output

            return hook

        def keep_input(_module: Any, inputs: Any, keywords: Any) -> None:
            caught["stem"] = inputs[0] if inputs else keywords["hidden_states"]

        hooks = [layer.register_forward_hook(keep(i)) for i, layer in enumerate(encoder.layers)]
        hooks.append(encoder.layers[0].register_forward_pre_hook(keep_input, with_kwargs=True))
        features = torch.from_numpy(np.ascontiguousarray(mel, np.float32))[None]
        out = encoder(features).last_hidden_state
        for hook in hooks:
            hook.remove()
        layers = [caught[i][0] for i in range(len(encoder.layers))]
        return {"stem": caught["stem"][0], "layers": layers, "out": out[0]}

    def logits(self, encoded: torch.Tensor, ids: list[int]) -> torch.Tensor:
        """[L, V]."""
        tokens = torch.tensor([ids])
        return self.model(encoder_outputs=(encoded[None],), decoder_input_ids=tokens).logits[0]

    def last_logits(self, encoded: torch.Tensor, rows: list[list[int]]) -> torch.Tensor:
        """The next-token logits [B, V] of sequences of one length."""
        states = (encoded[None].expand(len(rows), -1, -1),)
        output = self.model(encoder_outputs=states, decoder_input_ids=torch.tensor(rows))
        return output.logits[:, -1]

    def cross(self, encoded: torch.Tensor, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits [L, V] and cross-attention probabilities [layers, heads, L, S]."""
        output = self.model(
            encoder_outputs=(encoded[None],),
            decoder_input_ids=torch.tensor([ids]),
            output_attentions=True,
        )
        return output.logits[0], torch.stack([layer[0] for layer in output.cross_attentions])

    def hidden(self, encoded: torch.Tensor, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Embedding and every layer [layers + 1, L, d] (the last normed), and the output [L, d]."""
        output = self.model.model.decoder(
            input_ids=torch.tensor([ids]),
            encoder_hidden_states=encoded[None],
            output_hidden_states=True,
        )
        return torch.stack([rows[0] for rows in output.hidden_states]), output.last_hidden_state[0]


@dataclass
class Task:
    """The parameters of decoding besides the encoded audio."""

    upstream: Upstream
    ids: dict[str, int]
    generation: Any
    new: int  # most tokens, end-of-text counted

    def __post_init__(self) -> None:
        self.end, self.zero = self.ids["<|endoftext|>"], self.ids["<|0.00|>"]
        self.no_timestamps = self.ids["<|notimestamps|>"]

    def filtered(
        self, logits: torch.Tensor, picked: list[int], timestamps: bool
    ) -> tuple[torch.Tensor, float]:
        """openai's filters on one row; also by how much the timestamp rule was decided."""
        own = logits.clone()
        if not picked:
            own[self.generation.begin_suppress_tokens] = NEVER
        own[self.generation.suppress_tokens] = NEVER
        return self.timestamp_rules(own, picked) if timestamps else (own, math.inf)

    def timestamp_rules(self, row: torch.Tensor, picked: list[int]) -> tuple[torch.Tensor, float]:
        """whisper/decoding.py: ApplyTimestampRules."""
        row, zero = row.clone().double(), self.zero
        row[self.no_timestamps] = NEVER
        last = bool(picked) and picked[-1] >= zero
        before = len(picked) < 2 or picked[-2] >= zero
        if last:
            row[slice(zero, None) if before else slice(0, self.end)] = NEVER
        stamps = [token for token in picked if token >= zero]
        if stamps:
            row[zero : stamps[-1] + (0 if last and not before else 1)] = NEVER
        if not picked:
            row[:zero] = NEVER
            row[zero + self.generation.max_initial_timestamp_index + 1 :] = NEVER
        shares = torch.log_softmax(row, -1)
        stamp, text = torch.logsumexp(shares[zero:], -1).item(), shares[:zero].max().item()
        if stamp > text:
            row[:zero] = NEVER
        decided = math.isfinite(stamp) and math.isfinite(text)
        return row, abs(stamp - text) if decided else math.inf


def greedy(task: Task, encoded: torch.Tensor, prompt: list[int], timestamps: bool) -> dict:
    """transformers' processors, held against openai's rules at every step."""
    begin, generation = len(prompt), task.generation
    processors: list[Any] = [
        SuppressTokensAtBeginLogitsProcessor(generation.begin_suppress_tokens, begin_index=begin),
        SuppressTokensLogitsProcessor(generation.suppress_tokens),
    ]
    if timestamps:
        processors.append(WhisperTimeStampLogitsProcessor(generation, begin_index=begin))
    sequence, margins, logprobs, raw = list(prompt), [math.inf], [], []
    while len(sequence) - begin < task.new:
        logits = task.upstream.logits(encoded, sequence)[-1]
        raw.append(logits)
        scores = logits[None].clone()
        for process in processors:
            scores = process(torch.tensor([sequence]), scores)
        scores = scores[0]
        own, margin = task.filtered(logits, sequence[begin:], timestamps)
        assert torch.equal(torch.isinf(own), torch.isinf(scores)), "filters disagree"
        top = torch.topk(scores, 2).values
        margins += [margin, *([(top[0] - top[1]).item()] if math.isfinite(top[1].item()) else [])]
        token = int(torch.argmax(scores))
        logprobs.append(torch.log_softmax(scores.float(), -1)[token].item())
        sequence.append(token)
        if token == task.end:
            break
    done = sequence[-1] == task.end
    tokens = sequence[begin:-1] if done else sequence[begin:]
    return {
        "tokens": tokens,
        "done": done,
        "margin": min(margins),
        "sum_logprob": float(sum(logprobs)),
        "avg_logprob": float(sum(logprobs)) / (len(tokens) + 1),
        "raw": torch.stack(raw),
    }


def expand(
    task: Task, encoded: torch.Tensor, rows: list[list[int]], sums: list[float], begin: int
) -> dict[tuple[int, ...], float]:
    """The most likely continuations of each row, one more than there are rows."""
    candidates = {}
    logits = task.upstream.last_logits(encoded, rows)
    for row, total, scores in zip(rows, sums, logits, strict=True):
        own, _ = task.filtered(scores, row[begin:], timestamps=False)
        values, ids = torch.topk(torch.log_softmax(own.float(), -1), len(rows) + 1)
        for value, id in zip(values.tolist(), ids.tolist(), strict=True):
            candidates[(*row, id)] = total + value
    return candidates


def beam_search(
    task: Task, encoded: torch.Tensor, prompt: list[int], beam: int, patience: float
) -> tuple[list[int], float, float]:
    """whisper/decoding.py: BeamSearchDecoder; tokens, their log-probability, lead in rank."""
    begin, pool, room = len(prompt), {}, round(beam * patience)
    rows, sums = [list(prompt)] * beam, [0.0] * beam
    for _ in range(task.new):
        candidates = expand(task, encoded, rows, sums, begin)
        finished, rows, sums = {}, [], []
        for sequence in sorted(candidates, key=candidates.__getitem__, reverse=True):
            if sequence[-1] == task.end:
                finished[sequence] = candidates[sequence]
                continue
            rows.append(list(sequence))
            sums.append(candidates[sequence])
            if len(rows) == beam:
                break
        for sequence in sorted(finished, key=finished.__getitem__, reverse=True):
            if len(pool) < room:
                pool[sequence] = finished[sequence]
        if len(pool) >= room:
            break
    for index in np.argsort(sums)[::-1]:
        if len(pool) >= beam:
            break
        pool[(*rows[index], task.end)] = sums[index]
    return best_of_pool(pool, begin, task.end)


def best_of_pool(
    pool: dict[tuple[int, ...], float], begin: int, end: int
) -> tuple[list[int], float, float]:
    """The sequence of highest log-probability a token."""
    ended = [(list(s)[begin : list(s).index(end, begin)], total) for s, total in pool.items()]
    ranks = [total / max(len(tokens), 1) for tokens, total in ended]
    order = np.argsort(ranks)[::-1]
    lead = float(ranks[order[0]] - ranks[order[1]]) if len(order) > 1 else math.inf
    return *ended[int(order[0])], lead


def time_warp(cost: np.ndarray) -> np.ndarray:
    """whisper/timing.py: dtw_cpu; the path as [2, steps]."""
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    trace = np.full((rows + 1, columns + 1), -1, np.int8)
    total[0, 0] = 0
    for j in range(1, columns + 1):
        for i in range(1, rows + 1):
            diagonal, up, left = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
            if diagonal < up and diagonal < left:
                best, trace[i, j] = diagonal, 0
            elif up < diagonal and up < left:
                best, trace[i, j] = up, 1
            else:
                best, trace[i, j] = left, 2
            total[i, j] = np.float32(cost[i - 1, j - 1]) + best
    trace[0, :], trace[:, 0] = 2, 1
    i, j, path = rows, columns, []
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        i, j = ((i - 1, j - 1), (i - 1, j), (i, j - 1))[trace[i, j]]
    return np.array(path[::-1]).T


def align(
    task: Task, encoded: torch.Tensor, start: list[int], text: list[int], frames: int
) -> dict[str, np.ndarray]:
    """whisper/timing.py: find_alignment up to the path."""
    sequence = [*start, task.no_timestamps, *text, task.end]
    logits, attention = task.upstream.cross(encoded, sequence)
    heads = task.generation.alignment_heads
    weights = torch.stack([attention[layer, head] for layer, head in heads])[:, :, : frames // 2]
    weights = weights / weights.sum(-1, keepdim=True)  # as a softmax over the cropped logits
    deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    weights, half = (weights - mean) / deviation, 3
    padded = F.pad(weights, (half, half, 0, 0), mode="reflect")
    weights = padded.unfold(-1, 2 * half + 1, 1).sort()[0][..., half]
    matrix = weights.mean(0)[len(start) : -1]
    text_index, time_index = time_warp((-matrix).double().numpy())
    jumps = np.pad(np.diff(text_index), (1, 0), constant_values=1).astype(bool)
    shares = logits[len(start) :, : task.end].softmax(-1)
    return {
        "matrix": matrix.numpy().astype(np.float32),
        "text_idx": text_index.astype(np.int32),
        "time_idx": time_index.astype(np.int32),
        "jump_frame": time_index[jumps].astype(np.int32),
        "prob": shares[np.arange(len(text)), text].numpy().astype(np.float32),
    }


def cuts(tokens: list[int], zero: int) -> tuple[list[int], bool]:
    """Where openai cuts a window's tokens, and whether it ends in a single timestamp."""
    stamps = [token >= zero for token in tokens]
    places = [i for i in range(1, len(tokens)) if stamps[i] and stamps[i - 1]]
    single = stamps[-2:] == [False, True]
    return places + ([len(tokens)] if places and single else []), single


def long_form(
    task: Task, mel: np.ndarray, start: list[int], context: int, condition: bool
) -> dict | None:
    """openai's seek loop at temperature 0, no window judged; None where it does not end."""
    frames, zero = 2 * task.upstream.config.max_source_positions, task.zero
    seek, segments, history, windows, margin = 0, [], [], [], math.inf
    while seek < mel.shape[1]:
        size = min(frames, mel.shape[1] - seek)
        chunk = np.zeros((mel.shape[0], frames), np.float32)
        chunk[:, :size] = mel[:, seek : seek + size]
        before = history[-(context // 2 - 1) :] if condition else []
        prompt = ([task.ids["<|startofprev|>"], *before] if before else []) + start
        result = greedy(task, task.upstream.encode(chunk)["out"], prompt, timestamps=True)
        margin, tokens, offset = min(margin, result["margin"]), result["tokens"], seek * 0.01
        windows.append((seek, prompt, tokens))
        places, single = cuts(tokens, zero)
        pieces, first = [], 0
        for place in places:
            part = tokens[first:place]
            times = [offset + (token - zero) * 0.02 for token in (part[0], part[-1])]
            pieces.append((*times, part))
            first = place
        if not places:
            stamps = [token for token in tokens if token >= zero]
            last = (stamps[-1] - zero) * 0.02 if stamps and stamps[-1] != zero else size * 0.01
            pieces = [(offset, offset + last, tokens)]
        seek += (tokens[first - 1] - zero) * 2 if places and not single else size
        for begin, end, part in pieces:
            if begin != end and any(token < task.end for token in part):
                history.extend(part)
                segments.append((begin, end, part))
        if len(windows) > 40:
            return None
    return {"segments": segments, "windows": windows, "margin": margin}
