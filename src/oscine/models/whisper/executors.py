"""Runs the decoder for the engine: prefills, decoding steps, language detection, alignment.

A sequence of several rows (beams, or samples at a temperature) is a group: consecutive rows whose
prompt is computed once, in the slot of the first. S slots, C positions, V vocabulary, G groups.
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
from oscine.models.whisper.memory import MAX_ROWS, DecoderMemory
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

STEPS_PER_POLL = 16
MAX_PREFILL_BATCH = 8  # prompts of one prefill
USUAL_PROMPT_TOKENS = 4  # start of transcript, language, task, no timestamps
MAX_PLANS = 32
NO_TIMESTAMP_LIMIT = 0xFFFFFFFF >> 1
FINISH_REASONS = {ops.STOP_END: "end", ops.STOP_REPEAT: "repeat", ops.STOP_LENGTH: "length"}
SEED_STRIDE = 0x9E3779B9  # of 2**32, the golden ratio: seeds of rows are far apart


@dataclass(frozen=True, slots=True)
class PrefillPlan:
    """A recorded pass over the prompts [G, L] of G groups."""

    prompt: ops.Tensor
    plan: ops.Plan


class DecodingExecutor:
    """Decodes groups of `group_size` rows: samples, or beams if `max_candidates` is above 0.

    `max_candidates`: the number of finished beams that ends a search.
    """

    stage, steps_per_poll, prefill_batch = "decode", STEPS_PER_POLL, MAX_PREFILL_BATCH
    poll_after_prefill = False

    def __init__(
        self, memory: DecoderMemory, weights: DecoderWeights, group_size: int, max_candidates: int
    ) -> None:
        self.memory, self.weights, self.group_size = memory, weights, group_size
        backend = memory.backend
        self.rows = backend.zeros((MAX_ROWS,), ops.TEXT_DECODER_STATE)
        self.prefill_rows = backend.zeros((MAX_PREFILL_BATCH * group_size,), ops.TEXT_DECODER_STATE)
        self.prompt_rows = (
            self.prefill_rows
            if group_size == 1
            else backend.zeros((MAX_PREFILL_BATCH,), ops.TEXT_DECODER_STATE)
        )
        self.steps: PlanCache[ops.Plan] = PlanCache(MAX_PLANS)
        self.prefills: PlanCache[PrefillPlan] = PlanCache(MAX_PLANS, self.release_prefill)
        self.finished_beams: ops.FinishedBeams | None = None
        if max_candidates:
            context = memory.config.n_text_ctx
            self.finished_beams = ops.FinishedBeams(
                backend.zeros((MAX_ROWS, max_candidates), ops.FINISHED_BEAM),
                backend.zeros((MAX_ROWS, max_candidates, context), np.uint32),
            )
        backend.write(self.rows, done_rows(MAX_ROWS))

    # -- plans --------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Record the step of a single group, and the pass over its usual prompt, in advance."""
        self.step_plan(self.group_size, ())
        self.prefill(1, self.memory.backend.bucket_length(USUAL_PROMPT_TOKENS))

    def step_plan(self, rows: int, entries: Sequence[BatchEntry]) -> ops.Plan:
        has_penalties = any(entry.sequence.request.has_penalties for entry in entries)
        return self.steps.get((rows, has_penalties), lambda: self.record_step(rows, has_penalties))

    def record_step(self, rows: int, has_penalties: bool) -> ops.Plan:
        """Record a step of the first `rows` rows: from their last tokens to the next ones."""
        memory = self.memory
        backend, state = memory.backend, self.state(self.rows, rows)

        def trace() -> None:
            logits = model.logits(backend, self.weights, self.hidden(state))
            if has_penalties:
                logits = backend.apply_penalties(logits, memory.params, state)
            self.sample(logits, state, 1)

        return backend.record(trace, state.rows, "step")

    def prefill(self, groups: int, length: int) -> PrefillPlan:
        """The plan for that many prompts of at most this length, recorded on first use."""
        return self.prefills.get((groups, length), lambda: self.record_prefill(groups, length))

    def record_prefill(self, groups: int, length: int) -> PrefillPlan:
        """Record a pass over whole prompts; no_speech_prob is computed at <|startoftranscript|>."""
        memory = self.memory
        backend = memory.backend
        prompt = backend.zeros((groups, length), np.uint32)
        prompt_state = self.state(self.prompt_rows, groups, shared=False)
        prefill_state = self.state(self.prefill_rows, groups * self.group_size)

        def trace() -> None:
            rows = backend.gather_rows(self.hidden(prompt_state, prompt), prompt_state, sot=True)
            logits = model.logits(backend, self.weights, rows)
            backend.no_speech(logits, memory.params, prompt_state)
            self.sample(logits, prefill_state, self.group_size)

        return PrefillPlan(prompt, backend.record(trace, prompt_state.rows, "prompt"))

    def state(self, rows: ops.Tensor, count: int, *, shared: bool = True) -> ops.TextDecoderState:
        """The state of the first rows of a tensor; `shared`: rows of a group share their prompt."""
        memory = self.memory
        cache_indirection = memory.cache_indirection if shared and self.group_size > 1 else None
        view = memory.backend.view(rows, (count,))
        return ops.TextDecoderState(view, memory.tokens, cache_indirection=cache_indirection)

    def hidden(self, state: ops.TextDecoderState, prompt: ops.Tensor | None = None) -> ops.Tensor:
        """The decoder's hidden rows for the prompts, or for the last tokens."""
        m = self.memory
        return model.decode(m.backend, self.weights, m.config, m.caches, m.cross_kv, state, prompt)

    def sample(self, logits: ops.Tensor, state: ops.TextDecoderState, rows_per_logits: int) -> None:
        """Sample the next token of each row; consecutive rows may use the same row of logits."""
        m = self.memory
        if self.finished_beams is None:
            m.backend.sample_token(logits, m.masks, m.params, state, rows_per_logits)
            return
        m.backend.beam_search_step(
            logits, m.masks, m.params, state, self.finished_beams, self.group_size, rows_per_logits
        )

    def release_prefill(self, prefill: PrefillPlan) -> None:
        self.memory.backend.release(prefill.prompt)

    def clear_plans(self) -> None:
        """Drop plans, which are recorded for buffers about to be replaced; row states stay."""
        self.steps.clear()
        self.prefills.clear()

    # -- called by the engine -----------------------------------------------------------------

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
        backend.write(self.prefill_rows, initial_rows(entries, groups, group_size))
        if group_size > 1:
            backend.write(self.prompt_rows, initial_rows(entries, groups, 1))
        prefill.plan.run()
        pairs = [
            (group_size * group + row, entry.row + row)
            for group, entry in enumerate(entries)
            for row in range(group_size)
        ]
        backend.copy(self.prefill_rows, self.rows, pairs)
        if group_size > 1:
            firsts = [(group, entry.slots[0]) for group, entry in enumerate(entries)]
            backend.copy(self.prompt_rows, memory.prompt_states, firsts)

    def write_slots(self, entry: BatchEntry, request: DecodingRequest) -> None:
        """Write the parameters of a sequence's slots, and which slot has the keys of its prompt."""
        memory = self.memory
        mask = memory.mask_row(entry.slots, request)
        params = pack_params(request, memory.config.n_vocab, mask)
        for slot in entry.slots:
            memory.backend.write(memory.params, params, slot)
            if self.group_size > 1:
                cache_indirection = np.full((1, memory.config.n_text_ctx), slot, np.uint32)
                cache_indirection[0, : len(request.prompt)] = entry.slots[0]
                memory.backend.write(memory.cache_indirection, cache_indirection, slot)
        if self.finished_beams is not None:
            empty = np.zeros((1, *self.finished_beams.rows.shape[1:]), ops.FINISHED_BEAM)
            memory.backend.write(self.finished_beams.rows, empty, entry.slots[0])

    def outputs(self, rows: int, entries: Sequence[BatchEntry]) -> tuple[ops.Tensor, ...]:
        m = self.memory
        shape = m.slots, m.config.n_text_ctx
        prompt_states = () if self.group_size == 1 else (m.prompt_states,)
        beams = (
            ()
            if self.finished_beams is None
            else (self.finished_beams.rows, self.finished_beams.tokens)
        )
        state = m.backend.view(self.rows, (rows,))
        return state, m.backend.view(m.tokens, shape), *prompt_states, *beams

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
        other_arrays: Arrays,
    ) -> tuple[Hypothesis, ...]:
        """The hypotheses of a sequence: its rows, or its finished beams."""
        loop_ends, first = decoding_sequence(entry).loop_ends, entry.slots[0]
        no_speech_prob = float(
            (rows[0] if self.group_size == 1 else other_arrays[0][first])["no_speech_prob"]
        )
        unfinished = [
            Hypothesis(
                text[: loop_ends[n]] if loop_ends[n] else text,
                float(row["sum_logprob"]),
                no_speech_prob,
                "repeat" if loop_ends[n] else FINISH_REASONS.get(row["done"], ""),
            )
            for n, (row, text) in enumerate(zip(rows, tokens, strict=True))
            if row["sum_logprob"] > ops.NEG_INF / 2
        ]
        if self.finished_beams is None:
            return tuple(unfinished)
        finished = [
            Hypothesis(
                sampled_tokens(row, beam_tokens), float(row["sum_logprob"]), no_speech_prob, "end"
            )
            for row, beam_tokens in zip(
                other_arrays[-2][first], other_arrays[-1][first], strict=True
            )
            if row["filled"]
        ]
        # As in openai-whisper, the most probable unfinished beams fill up what is missing.
        unfinished.sort(key=lambda row: -row.sum_logprob)
        return (*finished, *unfinished[: max(0, self.group_size - len(finished))])


class LanguageExecutor(SinglePassExecutor):
    """Detects languages: one pass over <|startoftranscript|>, and a softmax over languages."""

    stage, prefill_batch = "decode", MAX_PREFILL_BATCH

    def __init__(self, memory: DecoderMemory, weights: DecoderWeights) -> None:
        self.memory, self.weights, backend = memory, weights, memory.backend
        self.rows = backend.zeros((MAX_PREFILL_BATCH,), ops.TEXT_DECODER_STATE)
        self.prompt = backend.zeros((MAX_PREFILL_BATCH, 1), np.uint32)
        self.logits = backend.zeros((2 * MAX_PREFILL_BATCH, memory.config.n_vocab))
        self.plans: PlanCache[ops.Plan] = PlanCache(MAX_PLANS)

    def start(self, entries: Sequence[BatchEntry]) -> None:
        backend, sequences = self.memory.backend, [language_sequence(entry) for entry in entries]
        rows = done_rows(backend.bucket_rows(len(entries)))
        for row, entry in zip(rows, entries, strict=False):
            row["done"], row["length"] = 0, 1
            row["slot"], row["window"] = entry.slots[0], entry.encoder_slot
        backend.write(self.rows, rows)
        start = [[sequence.sot] for sequence in sequences]
        backend.write(self.prompt, np.array(start, np.uint32))
        self.plans.get(len(rows), lambda: self.record(len(rows))).run()

    def record(self, count: int) -> ops.Plan:
        """Record the pass for that many windows."""
        m = self.memory
        backend, view = m.backend, m.backend.view
        state = ops.TextDecoderState(view(self.rows, (count,)), m.tokens)
        prompt = view(self.prompt, (count, 1))

        def trace() -> None:
            x = model.decode(backend, self.weights, m.config, m.caches, m.cross_kv, state, prompt)
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
                probs = np.exp(scores - scores.max())
                sequence.finish(probs / probs.sum())
            else:
                sequence.fail(NonFiniteError.of_network("logits", self.memory.backend.name))
            yield entry

    def clear_plans(self) -> None:
        self.plans.clear()


@dataclass(frozen=True, slots=True)
class AlignmentPlan:
    """A recorded pass over a prompt [1, L]; results: weights of each layer, then token probs."""

    prompt: ops.Tensor
    results: tuple[ops.Tensor, ...]
    plan: ops.Plan


class AlignmentExecutor(SinglePassExecutor):
    """Aligns tokens: one pass over them that stores the weights of the alignment heads."""

    stage, prefill_batch = "align", 1

    def __init__(self, memory: DecoderMemory, weights: DecoderWeights) -> None:
        self.memory, self.weights = memory, weights
        self.heads = alignment_heads(memory.config)
        self.rows = memory.backend.zeros((1,), ops.TEXT_DECODER_STATE)
        self.plans: PlanCache[AlignmentPlan] = PlanCache(MAX_PLANS, self.release_plan)
        self.length = 0  # of the last prompt, padded

    def start(self, entries: Sequence[BatchEntry]) -> None:
        (entry,), memory = entries, self.memory
        sequence, config, backend = alignment_sequence(entry), memory.config, memory.backend
        slot, count = entry.slots[0], len(sequence.prompt)
        self.length = min(backend.bucket_length(count), config.n_text_ctx)
        plan = self.alignment_plan()
        tokens = np.full((1, self.length), sequence.eot, np.uint32)
        tokens[0, :count] = sequence.prompt
        row, params = done_rows(1), np.zeros(1, ops.DECODE_PARAMS)
        row["done"], row["length"], row["slot"], row["window"] = 0, count, slot, entry.encoder_slot
        row["frames"] = min(sequence.frames, config.n_audio_ctx)
        params["vocabulary"], params["end"] = config.n_vocab, sequence.eot
        backend.write(plan.prompt, tokens)
        backend.write(self.rows, row)
        backend.write(memory.params, params, slot)
        plan.plan.run()

    def alignment_plan(self) -> AlignmentPlan:
        """The plan for prompts of `length`, recorded on first use."""
        return self.plans.get(self.length, lambda: self.record(self.length))

    def record(self, length: int) -> AlignmentPlan:
        """Record the decoder over a prompt, with the cross-attention weights of alignment heads."""
        m = self.memory
        backend, config = m.backend, m.config
        prompt = backend.zeros((1, length), np.uint32)
        weights = {
            layer: backend.zeros((len(heads), length, config.n_audio_ctx))
            for layer, heads in self.heads.items()
        }
        probs = backend.zeros((length,))
        probes = {
            layer: model.AttentionProbe(self.heads[layer], weights[layer]) for layer in weights
        }
        state = ops.TextDecoderState(self.rows, m.tokens)

        def trace() -> None:
            x = model.decode(
                backend, self.weights, config, m.caches, m.cross_kv, state, prompt, probes
            )
            logits = model.logits(backend, self.weights, x)
            backend.store(backend.token_probs(logits, prompt, m.params, state), probs)

        plan = backend.record(trace, name="align")
        return AlignmentPlan(prompt, (*weights.values(), probs), plan)

    def outputs(self, rows: int, entries: Sequence[BatchEntry]) -> tuple[ops.Tensor, ...]:
        return self.alignment_plan().results

    def collect(self, snapshot_rows: Sequence[SnapshotRow], arrays: Arrays) -> Iterator[BatchEntry]:
        for entry, _row in snapshot_rows:
            sequence = alignment_sequence(entry)
            count, (*weights, probs) = len(sequence.prompt), arrays
            layers = [layer[:, :count, : sequence.frames] for layer in weights]
            sequence.finish(Alignment(np.concatenate(layers), probs[: count - 1]))
            yield entry

    def clear_plans(self) -> None:
        self.plans.clear()

    def release_plan(self, plan: AlignmentPlan) -> None:
        self.memory.backend.release(plan.prompt, *plan.results)


def alignment_heads(config: WhisperConfig) -> dict[int, tuple[int, ...]]:
    """The alignment heads of each layer: those of the checkpoint, else all of the upper half.

    Source: openai/whisper whisper/model.py.
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
    """Rows of ops.TEXT_DECODER_STATE that are done, so that steps leave them unchanged."""
    rows = np.zeros(count, ops.TEXT_DECODER_STATE)
    rows["done"] = ops.STOP_END
    return rows


def initial_rows(entries: Sequence[BatchEntry], groups: int, group_size: int) -> NDArray[np.void]:
    """The state of each group's rows before the prompt; groups without a sequence are done.

    [groups · group_size] of ops.TEXT_DECODER_STATE.
    """
    state = done_rows(groups * group_size).reshape(groups, group_size)
    for rows, entry in zip(state, entries, strict=False):
        request = decoding_sequence(entry).request
        rows["done"] = 0
        rows["length"] = len(request.prompt)
        rows["limit"] = request.max_new_tokens
        rows["slot"] = entry.slots[:group_size]
        rows["after_pair"] = 1  # text must follow the first timestamp
        rows["sot"] = request.sot_index
        rows["temperature"] = request.temperature
        # Python integers: NumPy's have 32 bits in a browser, and on Windows before NumPy 2.
        rows["seed"] = [
            (request.seed + row * SEED_STRIDE) & 0xFFFFFFFF for row in range(group_size)
        ]
        rows["window"] = entry.encoder_slot
    return state.reshape(-1)


def pack_params(request: DecodingRequest, n_vocab: int, mask: int) -> NDArray[np.void]:
    """The request as [1] of ops.DECODE_PARAMS; `mask`: the row of its suppression lists."""
    params = np.zeros(1, ops.DECODE_PARAMS)
    initial = request.max_initial_timestamp_index
    params["vocabulary"] = n_vocab
    params["end"] = request.eot
    params["timestamp_begin"] = request.timestamp_begin
    params["no_timestamps"] = request.no_timestamps
    params["no_speech"] = request.no_speech
    params["timestamps"] = request.timestamps
    params["max_initial"] = NO_TIMESTAMP_LIMIT if initial is None else initial
    # A beam that repeats itself loses to the others.
    params["repeat_limit"] = 0 if request.beam_size > 1 else MAX_TOKEN_REPEATS
    params["no_repeat_ngram"] = request.no_repeat_ngram_size
    params["repetition_penalty"] = request.repetition_penalty
    params["mask"] = mask
    return params


def sampled_tokens(row: NDArray[np.void], tokens: NDArray[np.uint32]) -> tuple[int, ...]:
    """The tokens that a row has sampled."""
    return tuple(int(token) for token in tokens[: row["count"]])
