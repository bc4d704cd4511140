"""State rows: the state of each sequence that a plan computes, one row a sequence.

The rows of every family begin with the same header. A plan computes rows [B] in the order of a
batch. What lives as long as a sequence (caches, tokens, parameters) is in slots [S], and `slot`
names the row's slot: so a batch changes by copying rows, and no cache moves.

Each dtype has a WGSL file in kernels/common with the offsets of its fields;
tests/gpu/test_kernels.py compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oscine.ops.types import Tensor

#: Why a sequence stopped: the value of `done`.
STOP_END, STOP_REPEAT, STOP_LENGTH, STOP_NONFINITE = 1, 2, 3, 4

#: The first words of every state row, 4 bytes a field: _header.wgsl.
HEADER: tuple[tuple[str, Any], ...] = (
    ("done", np.uint32),  # 0 while running, else a STOP_* value
    ("position", np.uint32),  # in the cache, of the first row of this pass
    ("length", np.uint32),  # rows of this pass that count: the prompt's length, then 1
    ("token", np.uint32),  # the last token, input of the next step
    ("count", np.uint32),  # tokens so far without end-of-text
    ("limit", np.uint32),  # maximum of count
    ("seed", np.uint32),  # of the counter-based random numbers
    ("slot", np.uint32),  # index of the sequence in buffers that live as long as it does
)

#: A sequence of a text decoder: _text_decoder_state.wgsl.
TEXT_DECODER_STATE = np.dtype(
    [
        *HEADER,
        ("last_timestamp", np.uint32),  # id of the latest timestamp, 0 before the first
        ("after_timestamp", np.uint32),  # 1 if the last token is a timestamp
        ("after_pair", np.uint32),  # 1 if the token before it is a timestamp, or there is none
        ("repeats", np.uint32),  # how many of the latest tokens are equal
        ("sot", np.uint32),  # row of this pass that holds <|startoftranscript|>
        ("temperature", np.float32),  # 0: greedy
        ("sum_logprob", np.float32),  # of the filtered distribution without temperature
        ("no_speech_prob", np.float32),
        ("window", np.uint32),  # index of the sequence's audio in the encoder's output buffers
        ("frames", np.uint32),  # encoder positions with audio, for cross_attention_weights
    ]
)

#: A sequence of a transducer: _transducer_state.wgsl. position is the next frame, which at the end
#: may be past the last one; length is in frames, count and limit are in decisions; token is the
#: last label, and at the start the blank, whose embedding is 0; seed belongs to the host, which
#: counts in it how often decisions were read to free their buffer.
TRANSDUCER_STATE = np.dtype(
    [
        *HEADER,
        ("first", np.uint32),  # row of the encoder's projection that holds frame 0
        ("fresh", np.uint32),  # 1: the prediction network has not run for the token yet
        ("half", np.uint32),  # of LstmState, which holds the state before the token
        ("symbols", np.uint32),  # labels emitted at this frame
        ("node", np.uint32),  # of the context graph
    ]
)

#: A sequence of the talker, whose tokens are codes: _talker_state.wgsl. count and limit are in
#: whole frames; a sequence that stopped with STOP_LENGTH can be continued.
TALKER_STATE = np.dtype(
    [
        *HEADER,
        ("group", np.uint32),  # codes of the present frame that are chosen: 0 to G - 1
        ("texts", np.uint32),  # rows of text; the last one serves all later frames
    ]
)

#: Parameters of sample_token and the logits processors, by slot: _decode_params.wgsl.
DECODE_PARAMS = np.dtype(
    [
        ("vocabulary", np.uint32),  # V
        ("end", np.uint32),  # <|endoftext|>
        ("timestamp_begin", np.uint32),  # <|0.00|>; V without timestamps
        ("no_timestamps", np.uint32),  # <|notimestamps|>
        ("no_speech", np.uint32),  # <|nospeech|>
        ("timestamps", np.uint32),  # 1: the timestamp rules hold
        ("max_initial", np.uint32),  # index of the largest first timestamp
        ("repeat_limit", np.uint32),  # equal tokens in a row that end a pass; 0: never
        ("no_repeat_ngram", np.uint32),  # length of the n-grams of text that may not repeat; 0: off
        ("repetition_penalty", np.float32),  # divides the logits of earlier text tokens; 1: off
        ("mask", np.uint32),  # row of the masks [M, V]
    ]
)

#: A finished beam: _finished_beam.wgsl.
FINISHED_BEAM = np.dtype(
    [
        ("filled", np.uint32),  # 1: there is one
        ("count", np.uint32),  # tokens without end-of-text
        ("sum_logprob", np.float32),  # with end-of-text
        ("unused", np.uint32),
    ]
)

NEG_INF = -1e30  # below every score; WGSL may assume that infinities do not occur

#: Bits of the mask, one word a vocabulary entry.
SUPPRESS, SUPPRESS_FIRST = 1, 2

#: Parameters of sample_code, by slot, for the talker's or the predictor's head:
#: _sampling_params.wgsl.
SAMPLING_PARAMS = np.dtype(
    [
        ("end", np.uint32),  # the id that ends a sequence; V: none
        ("suppress", np.uint32),  # ids from this one on are never chosen, except `end`; V: none
        ("minimum", np.uint32),  # frames before which `end` may not be chosen
        ("top_k", np.uint32),  # the k most likely ids, and ties with the last of them; 0: all
        ("temperature", np.float32),  # 0: greedy, whatever top_k and top_p are
        ("top_p", np.float32),  # the smallest set of most likely ids with a larger sum; 1: all
        ("repetition_penalty", np.float32),  # over first codes of this sequence; 1: off
    ]
)

#: A decision of a transducer at a frame: _transducer_step.wgsl.
TRANSDUCER_STEP = np.dtype(
    [
        ("frame", np.uint32),
        ("token", np.uint32),  # a label, or the blank
        ("duration", np.uint32),  # in frames, as chosen; 0 for models without durations
        ("advanced", np.uint32),  # frames moved on, also by a blank of duration 0 or by force
        ("probability", np.float32),  # softmax over labels and blank, without boosting
    ]
)

#: A node of a context graph of boosted phrases (Aho-Corasick): _context_graph.wgsl.
GRAPH_NODE = np.dtype(
    [
        ("first", np.uint32),  # its first arc
        ("count", np.uint32),  # its arcs
        ("fail", np.uint32),  # node of the longest proper suffix that is a prefix; a root's: itself
        ("back", np.float32),  # added to the score on the way to the fail node
    ]
)

#: An arc of a context graph; the arcs of a node are sorted by token: _context_graph.wgsl.
GRAPH_ARC = np.dtype(
    [
        ("token", np.uint32),
        ("node", np.uint32),  # where it leads
        ("bonus", np.float32),
    ]
)

TRANSDUCER_PARAMS_HEAD = 2  # words before the durations: labels V, maximum of symbols a frame


@dataclass(frozen=True, slots=True)
class SequenceState:
    """The state that ops of any family read: rows [B], which begin with HEADER.

    cache_indirection [N, C] uint32: the slot of the cache that holds the key and value of each
    position. Beams with a common beginning share its cache, and reordering them moves no key. None:
    every slot holds its own. Running rows have different slots, in any order; of B and N either may
    be the larger.
    """

    rows: Tensor
    cache_indirection: Tensor | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class TextDecoderState(SequenceState):
    """The state of a text decoder: rows [B] of TEXT_DECODER_STATE, and its tokens [N, C] uint32."""

    tokens: Tensor


@dataclass(frozen=True, slots=True)
class FinishedBeams:
    """Finished beams, at most P a slot: rows [N, P] of FINISHED_BEAM, tokens [N, P, C] uint32."""

    rows: Tensor
    tokens: Tensor


@dataclass(frozen=True, slots=True)
class TalkerState(SequenceState):
    """The state of the talker: rows [B] of TALKER_STATE; codes [S, F, G] uint32; seen [S, V]
    uint32, 1 for the first codes (codebook 0) that the sequence has had, for the repetition
    penalty."""

    codes: Tensor
    seen: Tensor


@dataclass(frozen=True, slots=True)
class TransducerState(SequenceState):
    """The state of a transducer: rows [B] of TRANSDUCER_STATE, and the decisions [S, D] of
    TRANSDUCER_STEP."""

    decisions: Tensor


@dataclass(frozen=True, slots=True)
class LstmState:
    """The prediction network's state: hidden and cell [S, Y, 2, P], and its projection, joint [S,
    J].

    state.half names the half from before state.token; the network writes the other one. So a label
    is taken back by leaving the halves as they are.
    """

    hidden: Tensor
    cell: Tensor
    joint: Tensor


@dataclass(frozen=True, slots=True)
class ContextGraphTensors:
    """Context graphs of boosted phrases: nodes [N] of GRAPH_NODE, arcs [A] of GRAPH_ARC.

    The bonus of a label at a node is that of its arc. A node without such an arc adds its `back` to
    the bonus at its `fail` node; a root gives 0 and is kept. Arcs and fail links stay within a
    graph, so state.node says which graph a row is in; a row without phrases is at a root without
    arcs, and decides as it does without `boost`.
    """

    nodes: Tensor
    arcs: Tensor
