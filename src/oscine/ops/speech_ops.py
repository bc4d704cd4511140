"""What speaks, of the vocabulary: a language model over codes that the device drives by itself.

The talker gives the first code of every frame, a predictor the others, one after another; no code
goes to the host in between. `Utterances.rows` has the state of each utterance of a batch; `sample`
is the one op that advances it.

Shapes: B utterances of a batch, L rows of each in one pass, S slots, D width, H query heads and K
key heads of W values, P positions of a slot, V ids of a head, G codes a frame, F frames of a slot.
What a pass computes is by the row of the batch, what lives as long as an utterance by its slot.
Source: Qwen3-TTS, qwen_tts/core/models/modeling_qwen3_tts.py; transformers models/qwen3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from oscine.ops.types import Cache, Linear, Norm, RmsNorm, Tensor

#: How `sample` chooses in one slot, for the talker's head or for the predictor's:
#: kernels/_sampling.wgsl.
SAMPLING_FIELDS: tuple[tuple[str, type], ...] = (
    ("end", np.uint32),  # the id that ends an utterance; V where there is none
    ("suppress", np.uint32),  # ids from this one on, but for `end`, are never chosen; V: none
    ("minimum", np.uint32),  # frames before which the end may not come
    ("top_k", np.uint32),  # only so many of the likeliest, ties at the border too; 0: all
    ("temperature", np.float32),  # 0: greedy, whatever top_k and top_p are
    ("top_p", np.float32),  # the least set of the likeliest that holds more than this; 1: all
    ("repetition_penalty", np.float32),  # over first codes of this utterance; 1: none
)
SAMPLING = np.dtype([(name, kind) for name, kind in SAMPLING_FIELDS])


@dataclass(frozen=True, slots=True)
class Utterances:
    """Rows [B] of UTTERANCE; codes [S, F, G] uint32; seen [S, V] uint32: 1 for the first codes
    (codebook 0) that this utterance has had, which the repetition penalty is for."""

    rows: Tensor
    codes: Tensor
    seen: Tensor


@dataclass(frozen=True, slots=True)
class Rotary:
    """Cosines and sines of position p times frequency i, each [P', W / 2] float32, made on the
    host: the angle is the float32 product of the two, as upstream has it."""

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Root-mean-square norms of every query head and every key head: weights [W]."""

    q: Tensor
    k: Tensor
    eps: float = 1e-6


class SpeechOps(Protocol):
    """Shapes: above. Results of utterances that are done are void; their slots do not change."""

    def rms_norm(self, x: Tensor, norm: RmsNorm) -> Tensor:
        """x / √(mean(x²) + eps) · weight: x [R, D] -> [R, D]."""
        ...

    def gated_linear(
        self, x: Tensor, linear: Linear, *, norm: Norm | RmsNorm | None = None
    ) -> Tensor:
        """silu(g) · u, of norm(x) Wᵀ = g‖u: weight [2I, D], x [R, D] -> [R, I]; no bias."""
        ...

    def attend_rotary(
        self,
        qkv: Tensor,
        cache: Cache,
        rotary: Rotary,
        utterances: Utterances,
        heads: int,
        *,
        norms: HeadNorms | None = None,
        window: int | None = None,
        inner: bool = False,
    ) -> Tensor:
        """Turn q and k by their positions, append k and v to the cache, attend causally.

        qkv [B·L, (H + 2K)·W] -> [B·L, H·W]; cache [S, P, K·W], float32 or float16, which rounds k
        and v; head h reads key head h // (H/K).
        With norms q and k are normalised per head first, before they are turned. Scale 1/√W.
        Row l of utterance b is at position[b] + l; rows at or past length[b] are void. inner:
        within a frame instead, where the last row is at group[b], the one before at group[b] - 1,
        and all count. The slot holds the key of position p at p mod P. window: position i sees j
        only where i - j < window; P is then at least window + L - 1, and positions may exceed P.
        """
        ...

    def last_rows(self, x: Tensor, utterances: Utterances) -> Tensor:
        """The last row that counts of each utterance: x [B·L, D] -> [B, D], row length[b] - 1."""
        ...

    def sample(self, logits: Tensor, rules: Tensor, utterances: Utterances) -> None:
        """Choose code `group` of the frame `count` from logits [B·L, V], and move on.

        Of an utterance's L rows (the predictor's first pass has two) the last one counts.
        rules [S] of SAMPLING. In this order, at group 0 only: logits of seen ids are divided by the
        repetition penalty where positive, else multiplied; `end` is out while count < minimum; ids
        from `suppress` on, but for `end`, are out. Then, unless greedy: division by temperature;
        top_k (what is below the k-th largest is out, ties at the border stay); top_p (what is out
        has together with all that is not likelier at most 1 - top_p; the likeliest stays); and the
        largest sum with Gumbel noise from a counter hash of (seed, count · G + group, id), which
        draws from their softmax. Greedy and among equals the lowest id.

        The id goes to codes[slot, count, group], `token` and, at group 0, seen[slot, id]; then
        group + 1. After the last group: count + 1, group 0, position + length, length 1, and
        STOP_LENGTH where count reaches limit or F. At group 0, `end` is not written and stops the
        utterance (STOP_END); a logit that is not finite stops it at any group (STOP_NONFINITE), and
        so does a score above all of float32's, as division by a small temperature may make one.
        Source: transformers generation/logits_process.py; order: MODELS/qwen3_tts.md, 5.
        """
        ...

    def embed_code(
        self,
        table: Tensor,
        utterances: Utterances,
        total: Tensor,
        projected: Tensor | None = None,
        first: bool = False,
        before: Tensor | None = None,
    ) -> Tensor:
        """Add table[token] to total [S, D] (first: put it there); return a row for the token.

        That is projected[token] [B, D'] where given, else table[token] [B, D]. before [B, D']: a
        row that precedes each: [2B, D']. Tables may be float32, float16 or bfloat16.
        """
        ...

    def frame_input(
        self, total: Tensor, table: Tensor, text: Tensor, utterances: Utterances
    ) -> Tensor:
        """The talker's input for the next frame: total + table[token] + text row: [B, D].

        total [S, D] holds the sum of all but the last code's rows; text [S, N, D] has a row for
        each frame, of which row min(count - 1, texts - 1) is taken.
        """
        ...
