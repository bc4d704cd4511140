"""Rows of text as the engine drives them: prompts, steps of a batch, and what they come to.

A sequence of several rows (beams, or samples at a temperature) is a group: consecutive rows whose
prompt is computed once, in the first one's slot. S slots, C positions, V vocabulary, G groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.engine.plan_cache import PlanCache
from oscine.engine.runner import Arrays, BatchEntry, SinglePassExecutor, SnapshotRow
from oscine.errors import NonFiniteError
from oscine.models.whisper import model
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.memory import MOST_ROWS, DecoderMemory
from oscine.models.whisper.repetition import MAX_TOKEN_REPEATS
from oscine.models.whisper.sequences import (
    Alignment,
    AlignmentSequence,
    DecodingRequest,
    DecodingSequence,
    Hypothesis,
    LanguageSequence,
)
from oscine.models.whisper.weights import DecoderWeights

STEPS_PER_POLL = 16  # steps between two polls
MOST_PROMPTS = 8  # computed side by side
MOST_PLANS = 32
NO_TIMESTAMP_LIMIT = 0xFFFFFFFF >> 1
FINISH_REASONS = {ops.STOP_END: "end", ops.STOP_REPEAT: "repeat", ops.STOP_LENGTH: "length"}
GOLDEN_RATIO = 0x9E3779B9


@dataclass(frozen=True, slots=True)
class Prefill:
    """The recorded pass over the prompts of G groups, and the tokens that go in: [G, L]."""

    prompt: ops.Tensor
    plan: ops.Plan


class DecodingExecutor:
    """Groups of `group_size` rows; `pool`: beams that end a search, 0 where there are no beams."""

    stage, steps_per_poll, prefill_batch = "decode", STEPS_PER_POLL, MOST_PROMPTS
    poll_after_prefill = False

    def __init__(
        self, memory: DecoderMemory, weights: DecoderWeights, group_size: int, pool: int
    ) -> None:
        self.memory, self.weights, self.group_size = memory, weights, group_size
        backend = memory.backend
        self.rows = backend.zeros((MOST_ROWS,), ops.TEXT_DECODER_STATE)
        self.joining = backend.zeros((MOST_PROMPTS * group_size,), ops.TEXT_DECODER_STATE)
        self.lead = (
            self.joining
            if group_size == 1
            else backend.zeros((MOST_PROMPTS,), ops.TEXT_DECODER_STATE)
        )
        self.steps: PlanCache[ops.Plan] = PlanCache(MOST_PLANS)
        self.prefills: PlanCache[Prefill] = PlanCache(MOST_PLANS, self.release_prefill)
        self.pool: ops.FinishedBeams | None = None
        if pool:
            context = memory.config.n_text_ctx
            self.pool = ops.FinishedBeams(
                backend.zeros((MOST_ROWS, pool), ops.FINISHED_BEAM),
                backend.zeros((MOST_ROWS, pool, context), np.uint32),
            )
        backend.write(self.rows, done_rows(MOST_ROWS))

    # -- plans --------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Record the usual step."""
        self.step(self.group_size, ())

    def step(self, rows: int, entries: Sequence[BatchEntry]) -> ops.Plan:
        has_penalties = any(entry.sequence.request.has_penalties for entry in entries)
        return self.steps.get((rows, has_penalties), lambda: self.record_step(rows, has_penalties))

    def record_step(self, rows: int, has_penalties: bool) -> ops.Plan:
        """The token picked last in, the next one out, of the first `rows` rows."""
        memory = self.memory
        backend, state = memory.backend, self.state(self.rows, rows)

        def trace() -> None:
            logits = model.logits(backend, self.weights, self.hidden(state))
            if has_penalties:
                logits = backend.apply_penalties(logits, memory.rules, state)
            self.pick(logits, state, 1)

        return backend.record(trace, state.rows, "step")

    def prefill(self, groups: int, length: int) -> Prefill:
        """The pass over that many prompts of at most this length."""
        return self.prefills.get((groups, length), lambda: self.record_prefill(groups, length))

    def record_prefill(self, groups: int, length: int) -> Prefill:
        """The whole prompt in one pass; silence is judged where the transcript starts."""
        memory = self.memory
        backend = memory.backend
        prompt = backend.zeros((groups, length), np.uint32)
        lead = self.state(self.lead, groups, shared=False)
        joining = self.state(self.joining, groups * self.group_size)

        def trace() -> None:
            rows = backend.gather_rows(self.hidden(lead, prompt), lead, sot=True)
            logits = model.logits(backend, self.weights, rows)
            backend.no_speech(logits, memory.rules, lead)
            self.pick(logits, joining, self.group_size)

        return Prefill(prompt, backend.record(trace, lead.rows, "prompt"))

    def state(self, rows: ops.Tensor, count: int, *, shared: bool = True) -> ops.TextDecoderState:
        """The first rows of a tensor of state; `shared`: a group's rows have a prompt in common."""
        memory = self.memory
        cache_indirection = memory.cache_indirection if shared and self.group_size > 1 else None
        view = memory.backend.view(rows, (count,))
        return ops.TextDecoderState(view, memory.tokens, cache_indirection=cache_indirection)

    def hidden(self, state: ops.TextDecoderState, prompt: ops.Tensor | None = None) -> ops.Tensor:
        """One pass through the decoder's blocks."""
        m = self.memory
        return model.decode(m.backend, self.weights, m.config, m.caches, m.windows, state, prompt)

    def pick(self, logits: ops.Tensor, state: ops.TextDecoderState, share: int) -> None:
        """The next token of every row; `share` rows choose from one row of logits."""
        m = self.memory
        if self.pool is None:
            m.backend.sample_token(logits, m.masks, m.rules, state, share)
            return
        m.backend.beam_search_step(
            logits, m.masks, m.rules, state, self.pool, self.group_size, share
        )

    def release_prefill(self, prefill: Prefill) -> None:
        self.memory.backend.release(prefill.prompt)

    def forget_plans(self) -> None:
        """What is recorded is over memory that is about to be replaced; the state of rows stays."""
        self.steps.clear()
        self.prefills.clear()

    # -- the engine's -------------------------------------------------------------------------

    def start(self, entries: Sequence[BatchEntry]) -> None:
        memory, group_size = self.memory, self.group_size
        backend, config = memory.backend, memory.config
        requests = [decoding_sequence(entry).request for entry in entries]
        for entry, request in zip(entries, requests, strict=True):
            self.write_slots(entry, request)
        groups = backend.bucket_rows(len(entries))
        longest = max(len(request.prompt) for request in requests)
        prefill = self.prefill(groups, min(backend.bucket_length(longest), config.n_text_ctx))
        prompts = np.zeros(prefill.prompt.shape, np.uint32)
        for row, request in zip(prompts, requests, strict=False):
            row[: len(request.prompt)] = request.prompt
        backend.write(prefill.prompt, prompts)
        backend.write(self.joining, initial_rows(entries, groups, group_size))
        if group_size > 1:
            backend.write(self.lead, initial_rows(entries, groups, 1))
        prefill.plan.run()
        pairs = [
            (group_size * group + row, entry.row + row)
            for group, entry in enumerate(entries)
            for row in range(group_size)
        ]
        backend.copy(self.joining, self.rows, pairs)
        if group_size > 1:
            firsts = [(group, entry.slots[0]) for group, entry in enumerate(entries)]
            backend.copy(self.lead, memory.leads, firsts)

    def write_slots(self, entry: BatchEntry, request: DecodingRequest) -> None:
        """The rules of a sequence's slots, and where the keys of its prompt are."""
        memory = self.memory
        mask = memory.mask_row(entry.slots, request)
        rules = pack_params(request, memory.config.n_vocab, mask)
        for slot in entry.slots:
            memory.backend.write(memory.rules, rules, slot)
            if self.group_size > 1:
                cache_indirection = np.full((1, memory.config.n_text_ctx), slot, np.uint32)
                cache_indirection[0, : len(request.prompt)] = entry.slots[0]
                memory.backend.write(memory.cache_indirection, cache_indirection, slot)
        if self.pool is not None:
            empty = np.zeros((1, *self.pool.rows.shape[1:]), ops.FINISHED_BEAM)
            memory.backend.write(self.pool.rows, empty, entry.slots[0])

    def outputs(self, rows: int, entries: Sequence[BatchEntry]) -> tuple[ops.Tensor, ...]:
        m = self.memory
        shape = m.slots, m.config.n_text_ctx
        leads = () if self.group_size == 1 else (m.leads,)
        pool = () if self.pool is None else (self.pool.rows, self.pool.tokens)
        state = m.backend.view(self.rows, (rows,))
        return state, m.backend.view(m.tokens, shape), *leads, *pool

    def move_rows(self, moves: Sequence[tuple[int, int]]) -> None:
        self.memory.backend.copy(self.rows, self.rows, moves)

    def stop_rows(self, rows: Iterable[int]) -> None:
        for row in rows:
            self.memory.backend.write(self.rows, done_rows(1), row)

    def collect(self, snapshot_rows: Sequence[SnapshotRow], arrays: Arrays) -> Iterator[BatchEntry]:
        for entry, row in snapshot_rows:
            sequence, rows = decoding_sequence(entry), arrays[0][row : row + self.group_size]
            if (rows["done"] == ops.STOP_NONFINITE).any():
                sequence.fail(NonFiniteError.of_network("logits", self.memory.backend.name))
            else:
                tokens = [
                    sampled_tokens(one, arrays[1][slot])
                    for one, slot in zip(rows, entry.slots, strict=True)
                ]
                if sequence.request.stop_loops:
                    sequence.check_for_loops(tokens)
                if not all(sequence.loop_ends[n] or one["done"] for n, one in enumerate(rows)):
                    continue
                sequence.finish(self.result(entry, rows, tokens, arrays[2:]))
            if not rows["done"].all():
                self.stop_rows(range(entry.row, entry.row + self.group_size))
            yield entry

    def result(
        self,
        entry: BatchEntry,
        rows: NDArray[np.void],
        tokens: Sequence[tuple[int, ...]],
        others: Arrays,
    ) -> tuple[Hypothesis, ...]:
        """What a sequence has come to: its rows, or its beams that have ended."""
        loops, first = decoding_sequence(entry).loop_ends, entry.slots[0]
        silence = float((rows[0] if self.group_size == 1 else others[0][first])["no_speech_prob"])
        going = [
            Hypothesis(
                text[: loops[n]] if loops[n] else text,
                float(row["sum_logprob"]),
                silence,
                "repeat" if loops[n] else FINISH_REASONS.get(row["done"], ""),
            )
            for n, (row, text) in enumerate(zip(rows, tokens, strict=True))
            if row["sum_logprob"] > ops.NEG_INF / 2
        ]
        if self.pool is None:
            return tuple(going)
        ended = [
            Hypothesis(sampled_tokens(row, line), float(row["sum_logprob"]), silence, "end")
            for row, line in zip(others[-2][first], others[-1][first], strict=True)
            if row["filled"]
        ]
        # As openai-whisper: where too few have ended, the most probable others stand in.
        going.sort(key=lambda row: -row.sum_logprob)
        return (*ended, *going[: max(0, self.group_size - len(ended))])


class LanguageExecutor(SinglePassExecutor):
    """One pass over the start of a transcript: how probable each language is."""

    stage, prefill_batch = "decode", MOST_PROMPTS

    def __init__(self, memory: DecoderMemory, weights: DecoderWeights) -> None:
        self.memory, self.weights, backend = memory, weights, memory.backend
        self.rows = backend.zeros((MOST_PROMPTS,), ops.TEXT_DECODER_STATE)
        self.prompt = backend.zeros((MOST_PROMPTS, 1), np.uint32)
        self.logits = backend.zeros((2 * MOST_PROMPTS, memory.config.n_vocab))
        self.plans: PlanCache[ops.Plan] = PlanCache(MOST_PLANS)

    def start(self, entries: Sequence[BatchEntry]) -> None:
        backend, sequences = self.memory.backend, [language_sequence(entry) for entry in entries]
        rows = done_rows(backend.bucket_rows(len(entries)))
        for row, entry in zip(rows, entries, strict=False):
            row["done"], row["length"] = 0, 1
            row["slot"], row["window"] = entry.slots[0], entry.place
        backend.write(self.rows, rows)
        start = [[sequence.sot] for sequence in sequences]
        backend.write(self.prompt, np.array(start, np.uint32))
        self.plans.get(len(rows), lambda: self.record(len(rows))).run()

    def record(self, count: int) -> ops.Plan:
        """The pass for that many windows."""
        m = self.memory
        backend, view = m.backend, m.backend.view
        state = ops.TextDecoderState(view(self.rows, (count,)), m.tokens)
        prompt = view(self.prompt, (count, 1))

        def trace() -> None:
            x = model.decode(backend, self.weights, m.config, m.caches, m.windows, state, prompt)
            logits = model.logits(backend, self.weights, backend.gather_rows(x, state, sot=True))
            backend.store(logits, view(self.logits, (2 * count, m.config.n_vocab)))

        return backend.record(trace, name="detect")

    def outputs(self, rows: int, entries: Sequence[BatchEntry]) -> tuple[ops.Tensor, ...]:
        return (self.memory.backend.view(self.logits, (rows, self.memory.config.n_vocab)),)

    def collect(self, snapshot_rows: Sequence[SnapshotRow], arrays: Arrays) -> Iterator[BatchEntry]:
        for entry, row in snapshot_rows:
            sequence, logits = language_sequence(entry), arrays[0][row]
            if np.isfinite(logits).all():
                scores = logits[sequence.ids]
                shares = np.exp(scores - scores.max())
                sequence.finish(shares / shares.sum())
            else:
                sequence.fail(NonFiniteError.of_network("logits", self.memory.backend.name))
            yield entry

    def forget_plans(self) -> None:
        self.plans.clear()


@dataclass(frozen=True, slots=True)
class AlignPass:
    """A recorded pass over a prompt [1, L]; results: weights of each layer, then probabilities."""

    prompt: ops.Tensor
    results: tuple[ops.Tensor, ...]
    plan: ops.Plan


class AlignmentExecutor(SinglePassExecutor):
    """One pass over given tokens that keeps where they look: the device's part of word times."""

    stage, prefill_batch = "align", 1

    def __init__(self, memory: DecoderMemory, weights: DecoderWeights) -> None:
        self.memory, self.weights = memory, weights
        self.heads = alignment_heads(memory.config)
        self.rows = memory.backend.zeros((1,), ops.TEXT_DECODER_STATE)
        self.passes: PlanCache[AlignPass] = PlanCache(MOST_PLANS, self.release_pass)
        self.length = 0  # of the prompt that was started last, padded

    def start(self, entries: Sequence[BatchEntry]) -> None:
        (entry,), memory = entries, self.memory
        sequence, config, backend = alignment_sequence(entry), memory.config, memory.backend
        slot, count = entry.slots[0], len(sequence.prompt)
        self.length = min(backend.bucket_length(count), config.n_text_ctx)
        made = self.align_pass()
        tokens = np.full((1, self.length), sequence.eot, np.uint32)
        tokens[0, :count] = sequence.prompt
        row, rules = done_rows(1), np.zeros(1, ops.DECODE_PARAMS)
        row["done"], row["length"], row["slot"], row["window"] = 0, count, slot, entry.place
        row["frames"] = min(sequence.frames, config.n_audio_ctx)
        rules["vocabulary"], rules["end"] = config.n_vocab, sequence.eot
        backend.write(made.prompt, tokens)
        backend.write(self.rows, row)
        backend.write(memory.rules, rules, slot)
        made.plan.run()

    def align_pass(self) -> AlignPass:
        """The pass for prompts of `length`, made on first use."""
        return self.passes.get(self.length, lambda: self.record(self.length))

    def record(self, length: int) -> AlignPass:
        """The decoder over the prompt, its attention to the audio kept."""
        m = self.memory
        backend, config = m.backend, m.config
        prompt = backend.zeros((1, length), np.uint32)
        weights = {
            layer: backend.zeros((len(chosen), length, config.n_audio_ctx))
            for layer, chosen in self.heads.items()
        }
        shares = backend.zeros((length,))
        kept = {layer: model.KeptWeights(self.heads[layer], weights[layer]) for layer in weights}
        state = ops.TextDecoderState(self.rows, m.tokens)

        def trace() -> None:
            x = model.decode(
                backend, self.weights, config, m.caches, m.windows, state, prompt, kept
            )
            logits = model.logits(backend, self.weights, x)
            backend.store(backend.token_probs(logits, prompt, m.rules, state), shares)

        plan = backend.record(trace, name="align")
        return AlignPass(prompt, (*weights.values(), shares), plan)

    def outputs(self, rows: int, entries: Sequence[BatchEntry]) -> tuple[ops.Tensor, ...]:
        return self.align_pass().results

    def collect(self, snapshot_rows: Sequence[SnapshotRow], arrays: Arrays) -> Iterator[BatchEntry]:
        for entry, _row in snapshot_rows:
            sequence = alignment_sequence(entry)
            count, (*weights, shares) = len(sequence.prompt), arrays
            layers = [layer[:, :count, : sequence.frames] for layer in weights]
            sequence.finish(Alignment(np.concatenate(layers), shares[: count - 1]))
            yield entry

    def forget_plans(self) -> None:
        self.passes.clear()

    def release_pass(self, made: AlignPass) -> None:
        self.memory.backend.release(made.prompt, *made.results)


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


def decoding_sequence(entry: BatchEntry) -> DecodingSequence:
    """The sequence of an entry of a DecodingExecutor."""
    sequence: DecodingSequence = entry.sequence
    return sequence


def language_sequence(entry: BatchEntry) -> LanguageSequence:
    """The sequence of an entry of a LanguageExecutor."""
    sequence: LanguageSequence = entry.sequence
    return sequence


def alignment_sequence(entry: BatchEntry) -> AlignmentSequence:
    """The sequence of an entry of an AlignmentExecutor."""
    sequence: AlignmentSequence = entry.sequence
    return sequence


def done_rows(count: int) -> NDArray[np.void]:
    """Rows of ops.TEXT_DECODER_STATE that no step moves on."""
    rows = np.zeros(count, ops.TEXT_DECODER_STATE)
    rows["done"] = ops.STOP_END
    return rows


def initial_rows(entries: Sequence[BatchEntry], groups: int, group_size: int) -> NDArray[np.void]:
    """The state of `group_size` rows a group before the prompt: [groups · group_size] of
    ops.TEXT_DECODER_STATE.

    Groups without a sequence are done.
    """
    state = done_rows(groups * group_size).reshape(groups, group_size)
    for rows, entry in zip(state, entries, strict=False):
        request = decoding_sequence(entry).request
        rows["done"] = 0
        rows["length"] = len(request.prompt)
        rows["limit"] = request.max_new_tokens
        rows["slot"] = entry.slots[:group_size]
        rows["after_pair"] = 1  # the opening timestamp is to be followed by text
        rows["sot"] = request.sot_index
        rows["temperature"] = request.temperature
        # Of Python's integers: NumPy's have 32 bits in a browser, and on Windows before NumPy 2.
        rows["seed"] = [
            (request.seed + row * GOLDEN_RATIO) & 0xFFFFFFFF for row in range(group_size)
        ]
        rows["window"] = entry.place
    return state.reshape(-1)


def pack_params(request: DecodingRequest, vocabulary: int, mask: int) -> NDArray[np.void]:
    """The request's rules: [1] of ops.DECODE_PARAMS; `mask`: the row of its suppression lists."""
    rules = np.zeros(1, ops.DECODE_PARAMS)
    initial = request.max_initial_timestamp_index
    rules["vocabulary"] = vocabulary
    rules["end"] = request.eot
    rules["timestamp_begin"] = request.timestamp_begin
    rules["no_timestamps"] = request.no_timestamps
    rules["no_speech"] = request.no_speech
    rules["timestamps"] = request.timestamps
    rules["max_initial"] = NO_TIMESTAMP_LIMIT if initial is None else initial
    # A beam that repeats itself is left to the others to beat.
    rules["repeat_limit"] = 0 if request.beam_size > 1 else MAX_TOKEN_REPEATS
    rules["no_repeat_ngram"] = request.no_repeat_ngram_size
    rules["repetition_penalty"] = request.repetition_penalty
    rules["mask"] = mask
    return rules


def sampled_tokens(row: NDArray[np.void], tokens: NDArray[np.uint32]) -> tuple[int, ...]:
    """The tokens that a row has picked."""
    return tuple(int(token) for token in tokens[: row["count"]])
