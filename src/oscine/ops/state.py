"""State rows: what a plan knows of each sequence that it computes, one row a sequence.

The rows of every family begin with the same header. A plan computes rows [B] in the order of a
batch; what lives as long as a sequence (caches, tokens, rules) lies in slots [S], and `slot` says
which one is the row's. So a batch changes by copying rows, and no cache moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

STOP_END, STOP_REPEAT, STOP_LENGTH, STOP_NONFINITE = 1, 2, 3, 4

Fields = tuple[tuple[str, Any], ...]

#: The first words of every state row, 4 bytes a field: kernels/_header.wgsl.
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

#: A sequence of a text decoder: kernels/_state.wgsl.
STATE_FIELDS: Fields = (
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
    ("frames", np.uint32),  # encoder positions of it that hold sound: what cross_weights looks at
)
STATE = np.dtype([(name, kind) for name, kind in STATE_FIELDS])

#: A sequence of a transducer: kernels/_track.wgsl. Its position is the next frame to look at, which
#: at the end may be beyond the last; its length is in frames, count and limit are in decisions; its
#: token is the label emitted last, at the start the blank, whose embedding is 0; it has no seed.
TRACK_FIELDS: Fields = (
    *HEADER,
    ("first", np.uint32),  # row of the encoder's projection that holds frame 0
    ("fresh", np.uint32),  # 1: the prediction network has yet to see the token
    ("half", np.uint32),  # of the memory, which holds what was before the token
    ("symbols", np.uint32),  # labels emitted at this frame
    ("node", np.uint32),  # of the tree of the row's phrases
)
TRACK = np.dtype([(name, kind) for name, kind in TRACK_FIELDS])

#: An utterance, whose tokens are codes: `count` and `limit` (STOP_LENGTH, after which it can be
#: continued) are of whole frames. kernels/_utterance.wgsl.
UTTERANCE_FIELDS: Fields = (
    *HEADER,
    ("group", np.uint32),  # codes of the present frame that are chosen: 0 to G - 1
    ("texts", np.uint32),  # rows of text that there are; the last stands for all that follow
)
UTTERANCE = np.dtype([(name, kind) for name, kind in UTTERANCE_FIELDS])
