"""A Qwen3-TTS checkpoint as trees of arrays, checked against its configuration first.

Sizes, names and quirks: MODELS/qwen3_tts.md. Source of the network: qwen_tts/core/models/
modeling_qwen3_tts.py. What is folded into the weights: layers.py. The codec: codec_weights.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from oscine.errors import CheckpointError, NonFiniteError
from oscine.models.loader import Loader, load, stored_dtype
from oscine.models.qwen3_tts.codec_weights import (
    CodecDecoderWeights,
    CodecEncoderWeights,
    check_codec,
    codec_weights,
)
from oscine.models.qwen3_tts.config import SIZES, Qwen3TtsConfig, SpeakerConfig, read_config
from oscine.models.qwen3_tts.layers import Block, blocks, convolution, padded, pointwise
from oscine.models.qwen3_tts.released import CODEC_FOLDER
from oscine.ops import Linear, RmsNorm
from oscine.text.qwen import VOCABULARY
from oscine.tree import tree_leaves
from oscine.weights import Checkpoint, LazyTensor, read_checkpoint
from oscine.weights.mapped_file import Array

#: What names of tensors begin with.
TALKER, PREDICTOR, SPEAKER = "talker.model", "talker.code_predictor", "speaker_encoder"


@dataclass(frozen=True, slots=True)
class TextWeights:
    """P(id) = fc2(silu(fc1(embedding[id]))). The embedding [text vocabulary, text width] stays on
    the host, a view of the file: only its rows that a prompt has are ever uploaded."""

    embedding: Array
    fc1: Linear
    fc2: Linear


@dataclass(frozen=True, slots=True)
class TalkerWeights:
    """embedding [V, D] of codes and special ids; head [V, D], no bias."""

    blocks: tuple[Block, ...]
    norm: RmsNorm
    embedding: Array
    head: Linear


@dataclass(frozen=True, slots=True)
class PredictorWeights:
    """embeddings: G - 1 tables [C, D] of the talker's width, of codes 1 to G - 1; heads [C, d].

    project [d, D] with bias, None where both widths are the same.
    """

    blocks: tuple[Block, ...]
    norm: RmsNorm
    embeddings: tuple[Array, ...]
    heads: tuple[Linear, ...]
    project: Linear | None


@dataclass(frozen=True, slots=True)
class SpeakerBlock:
    """A squeeze-excite Res2Net block: first [P, C], parts.weight [p, K, p] each, second [C, P],
    squeeze [s, C], excite [C, s]. P is all parts of p channels, each p filled up with zeros."""

    first: Linear
    parts: tuple[Linear, ...]
    second: Linear
    squeeze: Linear
    excite: Linear
    dilation: int


@dataclass(frozen=True, slots=True)
class SpeakerWeights:
    """first.weight [C, K, mels]; mixed [M, M]; attention's input [a, 3M] (x, mean, deviation), its
    scores [M, a]; last [width, 2M]."""

    first: Linear
    blocks: tuple[SpeakerBlock, ...]
    mixed: Linear
    attention: Linear
    scores: Linear
    last: Linear


@dataclass(frozen=True, slots=True)
class Qwen3TtsWeights:
    """Matrices of talker, predictor and text layers in the type that was asked for, else as stored
    (bfloat16, float16 or float32); vectors, codec and speaker encoder float32. Arrays may be
    read-only views of the file."""

    config: Qwen3TtsConfig
    text: TextWeights
    talker: TalkerWeights
    predictor: PredictorWeights
    decoder: CodecDecoderWeights
    encoder: CodecEncoderWeights
    speaker: SpeakerWeights | None
    path: Path
    folder: Path
    stored: str  # "bf16", "f16" or "f32": what most of the talker is


def load_weights(path: Checkpoint | Path | str, dtype: str = "auto") -> Qwen3TtsWeights:
    """Read a checkpoint: a released folder, or the weights in it, its codec in a folder beside.

    Args:
        path: One that is open already is taken as it is.
        dtype: "f32", "f16", or "auto": as stored. The type of the matrices of talker, predictor
            and text layers. The text embedding, which no device holds, stays as it is stored;
            codec and speaker encoder are float32.

    Raises:
        CheckpointError: damaged files; tensors that are missing, unexpected or of wrong shape; a
            configuration of another model, or one that contradicts the tensors or the codec's.
    """
    checkpoint = path if isinstance(path, Checkpoint) else read_checkpoint(path)
    _refuse_mlx(checkpoint)
    codec = _codec_beside(checkpoint)
    config = read_config(checkpoint, codec)
    check_codec(codec, config.codec)  # before the networks of the other file are read
    text, talker, predictor, speaker = load(
        partial(build_networks, config=config),
        checkpoint.path,
        checkpoint.tensors,
        dtype,
        # A model fine-tuned to one voice may still carry the encoder of its base, unused.
        ignored=lambda name: config.speaker is None and name.startswith(f"{SPEAKER}."),
        keep_bf16=True,
    )
    decoder, encoder = codec_weights(codec, config.codec)
    return Qwen3TtsWeights(
        config=config,
        text=text,
        talker=talker,
        predictor=predictor,
        decoder=decoder,
        encoder=encoder,
        speaker=speaker,
        path=checkpoint.path,
        folder=checkpoint.folder,
        stored=_stored(checkpoint.tensors),
    )


def _refuse_mlx(checkpoint: Checkpoint) -> None:
    """MLX's conversions have other axes and files; name the repository that a conversion is of."""
    folder, config = checkpoint.folder, checkpoint.config
    packed = (folder / "tokenizer.json").is_file() and not (folder / VOCABULARY).is_file()
    if packed or checkpoint.format == "mlx" or "quantization" in config:
        size = SIZES.get(str(config.get("tts_model_size")), "0.6B")
        kind = str(config.get("tts_model_type", "custom_voice")).title().replace("_", "")
        raise CheckpointError(
            folder, "MLX's Qwen3-TTS is not read", f"take Qwen/Qwen3-TTS-12Hz-{size}-{kind[:20]}"
        )


def _codec_beside(checkpoint: Checkpoint) -> Checkpoint:
    folder = checkpoint.folder / CODEC_FOLDER
    if not folder.is_dir():
        raise CheckpointError(folder, "no such folder, the model's codec", "fetch it whole")
    return read_checkpoint(folder)


def build_networks(
    t: Loader, config: Qwen3TtsConfig
) -> tuple[TextWeights, TalkerWeights, PredictorWeights, SpeakerWeights | None]:
    """All that the model's own file holds."""
    return (
        _text(t, config),
        _talker(t, config),
        _predictor(t, config),
        build_speaker(t, config.speaker) if config.speaker else None,
    )


def _text(t: Loader, config: Qwen3TtsConfig) -> TextWeights:
    width, fc = config.text_width, "talker.text_projection.linear_fc"
    return TextWeights(
        embedding=t.raw(f"{TALKER}.text_embedding.weight", config.text_vocabulary, width),
        fc1=t.linear(f"{fc}1", width, width),
        fc2=t.linear(f"{fc}2", config.talker.width, width),
    )


def _talker(t: Loader, config: Qwen3TtsConfig) -> TalkerWeights:
    stack, rows = config.talker, config.vocabulary
    return TalkerWeights(
        blocks=blocks(t, TALKER, stack),
        norm=t.rms_norm(f"{TALKER}.norm", stack.width, stack.eps),
        embedding=t.cast(t.raw(f"{TALKER}.codec_embedding.weight", rows, stack.width)),
        head=t.linear("talker.codec_head", rows, stack.width, bias=False),
    )


def _predictor(t: Loader, config: Qwen3TtsConfig) -> PredictorWeights:
    at, groups, codes = f"{PREDICTOR}.model", range(config.groups - 1), config.codes
    stack, width = config.predictor, config.talker.width
    project = None
    if width != stack.width:
        project = t.linear(f"{PREDICTOR}.small_to_mtp_projection", stack.width, width)
    return PredictorWeights(
        blocks=blocks(t, at, stack),
        norm=t.rms_norm(f"{at}.norm", stack.width, stack.eps),
        embeddings=tuple(
            t.cast(t.raw(f"{at}.codec_embedding.{g}.weight", codes, width)) for g in groups
        ),
        heads=tuple(
            t.linear(f"{PREDICTOR}.lm_head.{g}", codes, stack.width, bias=False) for g in groups
        ),
        project=project,
    )


def build_speaker(t: Loader, config: SpeakerConfig) -> SpeakerWeights:
    """The speaker encoder of a base model."""
    channels, mixed = config.channels, config.channels[-1]
    attention = pointwise(t, f"{SPEAKER}.asp.tdnn.conv", config.attention, 3 * mixed)
    scores = pointwise(t, f"{SPEAKER}.asp.conv", mixed, config.attention)
    return SpeakerWeights(
        first=convolution(
            t, f"{SPEAKER}.blocks.0.conv", channels[0], config.mels, config.kernels[0]
        ),
        blocks=tuple(_speaker_block(t, config, index) for index in range(1, len(channels) - 1)),
        mixed=pointwise(t, f"{SPEAKER}.mfa.conv", mixed, mixed),
        attention=padded(t, attention, inputs=0),
        scores=padded(t, scores, outputs=0),
        last=pointwise(t, f"{SPEAKER}.fc", config.width, 2 * mixed),
    )


def _speaker_block(t: Loader, config: SpeakerConfig, index: int) -> SpeakerBlock:
    """Each part is filled up; `first` gives all of them side by side, and `second` takes them."""
    at, width, kernel = f"{SPEAKER}.blocks.{index}", config.channels[index], config.kernels[index]
    count, part = config.parts, width // config.parts
    first = pointwise(t, f"{at}.tdnn1.conv", width, width)
    second = pointwise(t, f"{at}.tdnn2.conv", width, width)
    squeeze = pointwise(t, f"{at}.se_block.conv1", config.squeeze, width)
    excite = pointwise(t, f"{at}.se_block.conv2", width, config.squeeze)
    return SpeakerBlock(
        first=padded(t, first, inputs=0, outputs=count),
        parts=tuple(
            padded(t, convolution(t, f"{at}.res2net_block.blocks.{n}.conv", part, part, kernel))
            for n in range(count - 1)
        ),
        second=padded(t, second, outputs=0, inputs=count),
        squeeze=padded(t, squeeze, inputs=0),
        excite=padded(t, excite, outputs=0),
        dilation=config.dilations[index],
    )


def _stored(entries: Mapping[str, LazyTensor]) -> str:
    """The type of most numbers of the talker's layers: "bf16", "f16" or "f32"."""
    sizes: Counter[str] = Counter()
    for name, entry in entries.items():
        if name.startswith(f"{TALKER}.layers.") and len(entry.shape) == 2:
            sizes[stored_dtype(entry)] += prod(entry.shape)
    return sizes.most_common(1)[0][0]


def check_finite(weights: Any, name: str) -> None:
    """Raise NonFiniteError for a tree of float32 arrays that holds NaN or infinity.

    What is computed with them need not show it: a codebook's nearest entry is always a code, and
    kernels may take the larger of 0 and NaN for 0.
    """
    if not all(np.isfinite(array).all() for array in tree_leaves(weights)):
        raise NonFiniteError(f"{name} has weights that are not finite: they are damaged")
