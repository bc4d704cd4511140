"""The op vocabulary: what a model's forward may say, and nothing about how it is done.

`ops.reference` gives each op its meaning in NumPy. `ops.gpu` has the same names; there each call
adds dispatches to the plan being recorded. Ops return new tensors; only `State`, `Cache` and the
slots that `keep` fills are written in place, alike on both sides.

Shapes: R rows, D model width, V vocabulary, S encoder positions, C cache length; B lines that are
decoded side by side, of which each has a row of state, L rows of each in one pass, W encoded
windows. N slots: what a line keeps from pass to pass is in the place that its state's `slot` names.
Every activation is float32; weights are float32, float16 or bfloat16 (oscine.bfloat16) and always
summed in float32; so are the keys and values that cross-attention reads, where a slot for them is
float16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from oscine.ops.codec_ops import CodecOps
from oscine.ops.codec_ops import Padding as Padding
from oscine.ops.codec_ops import Snake as Snake
from oscine.ops.codec_ops import Taps as Taps
from oscine.ops.conformer_ops import ConformerOps
from oscine.ops.conformer_ops import Lengths as Lengths
from oscine.ops.speech_ops import SAMPLING as SAMPLING
from oscine.ops.speech_ops import HeadNorms as HeadNorms
from oscine.ops.speech_ops import Rotary as Rotary
from oscine.ops.speech_ops import SpeechOps
from oscine.ops.speech_ops import Utterances as Utterances
from oscine.ops.state import HEADER as HEADER
from oscine.ops.state import STATE as STATE
from oscine.ops.state import STATE_FIELDS as STATE_FIELDS
from oscine.ops.state import STOP_END as STOP_END
from oscine.ops.state import STOP_LENGTH as STOP_LENGTH
from oscine.ops.state import STOP_NONFINITE as STOP_NONFINITE
from oscine.ops.state import STOP_REPEAT as STOP_REPEAT
from oscine.ops.state import TRACK as TRACK
from oscine.ops.state import UTTERANCE as UTTERANCE
from oscine.ops.transducer_ops import ARC as ARC
from oscine.ops.transducer_ops import DECISION as DECISION
from oscine.ops.transducer_ops import NODE as NODE
from oscine.ops.transducer_ops import Boost as Boost
from oscine.ops.transducer_ops import Memory as Memory
from oscine.ops.transducer_ops import Track as Track
from oscine.ops.transducer_ops import TransducerOps
from oscine.ops.types import Activation as Activation
from oscine.ops.types import Cache as Cache
from oscine.ops.types import Linear as Linear
from oscine.ops.types import Norm as Norm
from oscine.ops.types import RmsNorm as RmsNorm
from oscine.ops.types import Tensor as Tensor
from oscine.tree import tree_map

#: What `pick` needs to know of a vocabulary and a task, by slot: kernels/_rules.wgsl.
RULES_FIELDS: tuple[tuple[str, type], ...] = (
    ("vocabulary", np.uint32),  # V
    ("end", np.uint32),  # <|endoftext|>
    ("timestamp_begin", np.uint32),  # <|0.00|>; V where there are no timestamps
    ("no_timestamps", np.uint32),  # <|notimestamps|>
    ("no_speech", np.uint32),  # <|nospeech|>
    ("timestamps", np.uint32),  # 1: the timestamp rules hold
    ("max_initial", np.uint32),  # index of the largest first timestamp
    ("repeat_limit", np.uint32),  # equal tokens in a row that end a pass; 0: never
    ("no_repeat_ngram", np.uint32),  # so many text tokens in a row come only once; 0: no rule
    ("repetition_penalty", np.float32),  # divides the logits of text that came before; 1: none
    ("mask", np.uint32),  # row of the masks [M, V]
)
RULES = np.dtype([(name, kind) for name, kind in RULES_FIELDS])

#: A finished beam: kernels/_pool.wgsl.
POOL_FIELDS: tuple[tuple[str, type], ...] = (
    ("filled", np.uint32),  # 1: there is one
    ("count", np.uint32),  # its tokens, end-of-text not counted
    ("sum_logprob", np.float32),  # end-of-text counted
    ("unused", np.uint32),
)
POOL = np.dtype([(name, kind) for name, kind in POOL_FIELDS])

NEVER = -1e30  # a score that nothing reaches: WGSL may assume that there is no infinity

#: Bits of the mask, one word a vocabulary entry.
SUPPRESS, SUPPRESS_FIRST = 1, 2


@dataclass(frozen=True, slots=True)
class State:
    """What a decoding pass knows of itself: rows [B] of STATE, and the tokens picked [N, C].

    `origins` [N, C]: which slot of the cache holds the key and value of each position. Beams that
    share a beginning share its cache, and to reorder them moves no key; None: each slot its own.
    Running rows have different slots, in any order; of B and N either may be the larger.
    """

    rows: Tensor
    tokens: Tensor
    origins: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """Beams that have ended, P at most for each slot: rows [N, P] of POOL, tokens [N, P, C]."""

    rows: Tensor
    tokens: Tensor


class Ops(ConformerOps, TransducerOps, SpeechOps, CodecOps, Protocol):
    """The vocabulary. `norm=` inputs are fused; their meaning is layer_norm, then the rest."""

    def conv1d(
        self,
        x: Tensor,
        conv: Linear,
        *,
        stride: int = 1,
        activation: Activation = None,
        add: Tensor | None = None,
        batch: int = 1,
    ) -> Tensor:
        """x [T, I] -> [ceil(T / stride), O], time first, "same" padding; weight [O, K, I].

        A batch of N windows: x [N·T, I] -> [N·ceil(T / stride), O]. Each is padded by itself, and
        `add` [ceil(T / stride), O] is added to each. Raises ValueError where `add` has another
        shape, or the rows of x are not N windows.
        """
        ...

    def layer_norm(self, x: Tensor, norm: Norm) -> Tensor:
        """x [R, D] -> [R, D]."""
        ...

    def linear(
        self,
        x: Tensor,
        linear: Linear,
        *,
        norm: Norm | RmsNorm | None = None,
        activation: Activation = None,
        add: Tensor | None = None,
    ) -> Tensor:
        """activation(norm(x) Wᵀ + b) + add: x [R, I] -> [R, O]."""
        ...

    def attention(self, qkv: Tensor, heads: int, batch: int = 1) -> Tensor:
        """Unmasked self-attention: packed q‖k‖v [N·S, 3D] -> [N·S, D].

        Each of the N windows of a batch attends to itself alone. Raises ValueError where the rows
        are not N windows.
        """
        ...

    def attend_self(self, qkv: Tensor, cache: Cache, state: State, heads: int) -> Tensor:
        """Append k‖v of each row to its cache, then attend causally: [B·L, 3D] -> [B·L, D].

        The cache of line b is that of state.slot[b]; its row l has position state.position[b] + l.
        Rows at or past state.length are void.
        """
        ...

    def attend_cross(self, q: Tensor, kv: Tensor, state: State, heads: int) -> Tensor:
        """Each line attends to its window of k‖v [W, S, 2D]: q [B·L, D] -> [B·L, D].

        kv may be a float16 slot here and in cross_weights.
        """
        ...

    def cross_weights(
        self, q: Tensor, kv: Tensor, state: State, heads: int, chosen: tuple[int, ...]
    ) -> Tensor:
        """The weights that attend_cross gives in some heads: [A, B·L, S].

        softmax over the first state.frames positions; 0 beyond them.
        """
        ...

    def embed(
        self, table: Tensor, positions: Tensor, state: State, prompt: Tensor | None = None
    ) -> Tensor:
        """table[token] + positions[p] -> [B·L, D]; tokens from prompt [B, L], else state.token."""
        ...

    def take_rows(self, x: Tensor, state: State) -> Tensor:
        """x [B·L, D] -> [2B, D]: the last row that counts of each line, then each sot row."""
        ...

    def no_speech(self, logits: Tensor, rules: Tensor, state: State) -> None:
        """state.no_speech_prob = softmax(logits [2B, V])[B:, no_speech], before any filter.

        rules [N] here and in all that decides: a line has those of its slot.
        """
        ...

    def penalise(self, logits: Tensor, rules: Tensor, state: State) -> Tensor:
        """Logits [B, V] less likely to repeat text: by repetition_penalty and no_repeat_ngram.

        A row whose rules have neither, a penalty of 1 and 0 tokens, stays as it is.

        Text ids among a line's tokens: positive logits are divided by the penalty, negative ones
        multiplied. A text id that would end a run of no_repeat_ngram tokens that came before gets
        NEVER. Source: transformers generation/logits_process.py; timestamps are left alone.
        """
        ...

    def pick(
        self, logits: Tensor, masks: Tensor, rules: Tensor, state: State, share: int = 1
    ) -> None:
        """Filter logits [.., V] by masks [M, V] and the timestamp rules, choose, advance the state.

        A line has the mask that its rules name, and chooses from row b // share; rows beyond are
        ignored. Greedy takes the lowest id among equals; with a temperature, Gumbel noise from a
        counter hash of (seed, count, id) is added first. Rules: openai whisper/decoding.py.
        """
        ...

    def pick_beams(
        self,
        logits: Tensor,
        masks: Tensor,
        rules: Tensor,
        state: State,
        pool: Pool,
        beams: int,
        share: int = 1,
    ) -> None:
        """A step of beam search: K = `beams` lines after each other are a group.

        Beams of a group have the same rules; its pool is that of its first line's slot.
        share=1: each beam that is not done offers its K + 1 likeliest tokens, from row b of logits.
        share=K, the first step: row g of logits speaks for a whole group. By total log-probability
        the offers that end go to the group's pool while it has room, the others become the K new
        beams: state, tokens and origins of the parent, moved on, each in the slot it has. A full
        pool ends all of the group; a beam that nothing is left for is done. Source:
        BeamSearchDecoder in openai whisper/decoding.py.
        """
        ...

    def probability(self, logits: Tensor, prompt: Tensor, rules: Tensor, state: State) -> Tensor:
        """What logits [B·L, V] give the token that follows in prompt [B, L] among text ids: [B·L].

        softmax over ids below end; 0 for other tokens and for the last row of a line.
        """
        ...

    def keep(self, x: Tensor, slot: Tensor) -> None:
        """Let slot, which outlives the plan, hold x from now on; rounded, if it is float16."""
        ...

    def probe(self, name: str, x: Tensor) -> None:
        """Name x as a stage, for oscine.probe: no dispatch, no buffer and no copy unless a run is
        looked into."""
        ...


class Plan(Protocol):
    """A recorded pass: the same work again and again, on whatever the slots hold by then."""

    def run(self, times: int = 1) -> None:
        """Replay the pass; a plan with a guard stops by itself once every row of it is done."""
        ...


class Backend(Ops, Protocol):
    """Ops, and the memory and time they live in."""

    name: str  # for people and for JSON: "NumPy", or the adapter's name
    good_batch: int  # windows side by side, beyond which more hardly gain
    encode_batch: int  # windows in one pass of an encoder, likewise
    half_memory: bool  # whether float16 slots for attend_cross save time, as they save memory
    runs_ahead: bool  # whether a plan runs while the host does something else

    def upload(self, array: np.ndarray) -> Tensor:
        """A constant: float32, float16 and bfloat16 matrices, float32 vectors."""
        ...

    def slot(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Tensor:
        """Zeroed memory that outlives plans."""
        ...

    def view(self, slot: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The start of a slot under another shape; the same memory."""
        ...

    def copy(self, source: Tensor, target: Tensor, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy item i of source [N, ...] to item j of target [M, ...] for each (i, j), in turn.

        After the work so far, and before the work that follows. Both may be the same slot. Raises
        IndexError for an item that does not exist, ValueError where items differ in size.
        """
        ...

    def release(self, *slots: Tensor) -> None:
        """Give back the memory of slots that no plan will use again."""
        ...

    def room(self) -> tuple[int, int | None]:
        """The most bytes of one slot, and of all together where that can be known."""
        ...

    def write(self, tensor: Tensor, array: np.ndarray, at: int = 0) -> None:
        """Copy the host's array over items at, at + 1, ... of a slot's leading axis.

        After the work so far, and before the work that follows; what lies beside them stays.
        Raises ValueError where item `at` does not begin at a multiple of 4 bytes.
        """
        ...

    def read(self, slot: Tensor) -> np.ndarray:
        """Wait for the work so far; return a copy of a slot."""
        ...

    def wait(self) -> None:
        """Wait for the work so far."""
        ...

    def snapshot(self, *slots: Tensor) -> Callable[[], tuple[np.ndarray, ...]]:
        """Mark this moment; the returned function waits for it and gives the slots as they were."""
        ...

    def record(
        self,
        trace: Callable[[], None],
        guard: Tensor | None = None,
        name: str = "",
    ) -> Plan:
        """Note the ops of the trace; once all rows of the guard are done, a replay is a no-op.

        `guard`: state rows of any family, whose first word is `done`. `name` is the plan's in a
        trace.
        """
        ...

    def padded(self, length: int) -> int:
        """The prompt length to record a plan for: a few lengths where recording costs."""
        ...

    def padded_lines(self, count: int) -> int:
        """The number of lines to record a plan for, likewise."""
        ...

    def padded_frames(self, count: int) -> int:
        """The number of encoder frames to record a plan for, likewise."""
        ...

    def trace(self) -> dict[str, tuple[int, float]]:
        """Under OSCINE_TRACE, compute passes and their milliseconds in all, as the device measures
        them: by plan, or by plan/kernel under OSCINE_TRACE=kernels; empty where it does not.
        """
        ...


def upload(backend: Backend, tree: Any) -> Any:
    """The same tree of dataclasses and tuples with every NumPy array uploaded."""
    return tree_map(backend.upload, tree)
