"""State rows: what a plan knows of each sequence that it computes, one row a sequence.

The rows of every family begin with the same header. A plan computes rows [B] in the order of a
batch; what lives as long as a sequence (caches, tokens, rules) lies in slots [S], and `slot` says
which one is the row's. So a batch changes by copying rows, and no cache moves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oscine.ops.types import Tensor

STOP_END, STOP_REPEAT, STOP_LENGTH, STOP_NONFINITE = 1, 2, 3, 4

Fields = tuple[tuple[str, Any], ...]

#: The first words of every state row, 4 bytes a field: kernels/common/_header.wgsl.
HEADER: Fields = (
    ("done", np.uint32),  # 0 while running, else why it stopped: a STOP_* value
    ("position", np.uint32),  # in the cache, of the first row of this pass
    ("length", np.uint32),  # rows of this pass that count: the prompt's length, then 1
    ("token", np.uint32),  # the token chosen last, input of the next step
    ("count", np.uint32),  # tokens chosen so far, end-of-text not counted
    ("limit", np.uint32),  # most tokens that may be chosen
    ("seed", np.uint32),  # of the counter-based random numbers
    ("slot", np.uint32),  # place of the sequence in buffers that live as long as it does
)

#: A sequence of a text decoder: kernels/common/_text_decoder_state.wgsl.
TEXT_DECODER_STATE_FIELDS: Fields = (
    *HEADER,
    ("last_timestamp", np.uint32),  # id of the latest timestamp picked, 0 if none
    ("after_timestamp", np.uint32),  # 1 if the token picked last is a timestamp
    ("after_pair", np.uint32),  # 1 if the one before it is one too, or there is none before it
    ("repeats", np.uint32),  # how many of the latest tokens are the same
    ("sot", np.uint32),  # row of this pass that holds <|startoftranscript|>
    ("temperature", np.float32),  # 0: greedy
    ("sum_logprob", np.float32),  # of the filtered distribution without temperature
    ("no_speech_prob", np.float32),
    ("window", np.uint32),  # place of the sequence's audio in the encoder's output buffers
    (
        "frames",
        np.uint32,
    ),  # encoder positions of it that hold sound: what cross_attention_weights looks at
)
TEXT_DECODER_STATE = np.dtype([(name, kind) for name, kind in TEXT_DECODER_STATE_FIELDS])

#: A sequence of a transducer: kernels/common/_transducer_state.wgsl. Its position is the next
#: frame to look at, which at the end may be beyond the last; its length is in frames, count and
#: limit are in decisions; its token is the label emitted last, at the start the blank, whose
#: embedding is 0; its seed is a number of the host's, which counts how often decisions were read
#: to make room for others.
TRANSDUCER_STATE_FIELDS: Fields = (
    *HEADER,
    ("first", np.uint32),  # row of the encoder's projection that holds frame 0
    ("fresh", np.uint32),  # 1: the prediction network has yet to see the token
    ("half", np.uint32),  # of the memory, which holds what was before the token
    ("symbols", np.uint32),  # labels emitted at this frame
    ("node", np.uint32),  # of the tree of the row's phrases
)
TRANSDUCER_STATE = np.dtype([(name, kind) for name, kind in TRANSDUCER_STATE_FIELDS])

#: An utterance, whose tokens are codes: `count` and `limit` (STOP_LENGTH, after which it can be
#: continued) are of whole frames. kernels/common/_talker_state.wgsl.
TALKER_STATE_FIELDS: Fields = (
    *HEADER,
    ("group", np.uint32),  # codes of the present frame that are chosen: 0 to G - 1
    ("texts", np.uint32),  # rows of text that there are; the last stands for all that follow
)
TALKER_STATE = np.dtype([(name, kind) for name, kind in TALKER_STATE_FIELDS])

#: What `pick` needs to know of a vocabulary and a task, by slot:
#: kernels/common/_decode_params.wgsl.
DECODE_PARAMS_FIELDS: tuple[tuple[str, type], ...] = (
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
DECODE_PARAMS = np.dtype([(name, kind) for name, kind in DECODE_PARAMS_FIELDS])

#: A finished beam: kernels/common/_finished_beam.wgsl.
FINISHED_BEAM_FIELDS: tuple[tuple[str, type], ...] = (
    ("filled", np.uint32),  # 1: there is one
    ("count", np.uint32),  # its tokens, end-of-text not counted
    ("sum_logprob", np.float32),  # end-of-text counted
    ("unused", np.uint32),
)
FINISHED_BEAM = np.dtype([(name, kind) for name, kind in FINISHED_BEAM_FIELDS])

NEG_INF = -1e30  # a score that nothing reaches: WGSL may assume that there is no infinity

#: Bits of the mask, one word a vocabulary entry.
SUPPRESS, SUPPRESS_FIRST = 1, 2

#: How `sample` chooses in one slot, for the talker's head or for the predictor's:
#: kernels/common/_sampling_params.wgsl.
SAMPLING_PARAMS_FIELDS: tuple[tuple[str, type], ...] = (
    ("end", np.uint32),  # the id that ends an utterance; V where there is none
    ("suppress", np.uint32),  # ids from this one on, but for `end`, are never chosen; V: none
    ("minimum", np.uint32),  # frames before which the end may not come
    ("top_k", np.uint32),  # only so many of the likeliest, ties at the border too; 0: all
    ("temperature", np.float32),  # 0: greedy, whatever top_k and top_p are
    ("top_p", np.float32),  # the least set of the likeliest that holds more than this; 1: all
    ("repetition_penalty", np.float32),  # over first codes of this utterance; 1: none
)
SAMPLING_PARAMS = np.dtype([(name, kind) for name, kind in SAMPLING_PARAMS_FIELDS])

#: One look at one frame: kernels/transducer/transducer_step.wgsl.
TRANSDUCER_STEP_FIELDS: tuple[tuple[str, type], ...] = (
    ("frame", np.uint32),
    ("token", np.uint32),  # a label, or the blank
    ("duration", np.uint32),  # in frames, as chosen; 0 without durations
    ("advanced", np.uint32),  # frames moved on: also by a blank of duration 0, and by force
    ("probability", np.float32),  # softmax over labels and blank, without boosting
)
TRANSDUCER_STEP = np.dtype([(name, kind) for name, kind in TRANSDUCER_STEP_FIELDS])

#: A node of the tree of boosted phrases (Aho-Corasick): kernels/common/_context_graph.wgsl.
GRAPH_NODE_FIELDS: tuple[tuple[str, type], ...] = (
    ("first", np.uint32),  # its arcs
    ("count", np.uint32),
    ("fail", np.uint32),  # the node of the longest other beginning that ends here; a root's: itself
    ("back", np.float32),  # what it costs to fall back there
)
GRAPH_NODE = np.dtype([(name, kind) for name, kind in GRAPH_NODE_FIELDS])

#: Arcs of a node come in the order of their labels.
GRAPH_ARC_FIELDS: tuple[tuple[str, type], ...] = (
    ("token", np.uint32),
    ("node", np.uint32),  # where it leads
    ("bonus", np.float32),
)
GRAPH_ARC = np.dtype([(name, kind) for name, kind in GRAPH_ARC_FIELDS])

TRANSDUCER_PARAMS_HEAD = 2  # words of a transducer's rules before its durations: V, most_symbols


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
    """The state of a text decoder: rows [B] of TEXT_DECODER_STATE, and the tokens picked [N, C]."""

    tokens: Tensor


@dataclass(frozen=True, slots=True)
class FinishedBeams:
    """Beams that have ended, P at most for each slot: rows [N, P] of FINISHED_BEAM, tokens [N, P,
    C]."""

    rows: Tensor
    tokens: Tensor


@dataclass(frozen=True, slots=True)
class TalkerState(SequenceState):
    """Rows [B] of TALKER_STATE; codes [S, F, G] uint32; seen [S, V] uint32: 1 for the first codes
    (codebook 0) that this utterance has had, which the repetition penalty is for."""

    codes: Tensor
    seen: Tensor


@dataclass(frozen=True, slots=True)
class TransducerState(SequenceState):
    """State rows [B] of TRANSDUCER_STATE, and what the sequences decided, [S, room] of
    TRANSDUCER_STEP."""

    decisions: Tensor


@dataclass(frozen=True, slots=True)
class LstmState:
    """The prediction network's: hidden and cell [S, Y, 2, P], and its projection, joint [S, J].

    Of the two halves track.half tells the one from before track.token; the other is the one after
    it, once the network has run. So a label is taken back by not turning the halves over.
    """

    hidden: Tensor
    cell: Tensor
    joint: Tensor


@dataclass(frozen=True, slots=True)
class ContextGraphTensors:
    """Trees of boosted phrases: nodes [N] of GRAPH_NODE, arcs [A] of GRAPH_ARC.

    The bonus of a label at a node is that of its arc; a node without such an arc adds its `back`
    to what its `fail` node gives, a root gives 0 and stays. Arcs and falls lead to nodes of the
    same tree, so track.node says which tree a row walks; a row without phrases is at a root without
    arcs, and decides as it does without `boost`.
    """

    nodes: Tensor
    arcs: Tensor
