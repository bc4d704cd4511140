"""A Qwen3-TTS checkpoint as trees of arrays, checked against its configuration first.

Sizes, names and quirks: MODELS/qwen3_tts.md. Source of the network: qwen_tts/core/models/
modeling_qwen3_tts.py. layers.py lists what is folded into the weights. codec_weights.py has the
codec.
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
    load_codec_weights,
)
from oscine.models.qwen3_tts.config import (
    MODEL_SIZES,
    Qwen3TtsConfig,
    SpeakerEncoderConfig,
    read_config,
)
from oscine.models.qwen3_tts.layers import (
    TransformerLayer,
    conv1d,
    pad_channels,
    pointwise_conv,
    transformer_layers,
)
from oscine.models.qwen3_tts.released import CODEC_FOLDER
from oscine.ops import Linear, RmsNorm
from oscine.text.qwen import VOCAB_FILE
from oscine.tree import tree_leaves
from oscine.weights import Checkpoint, LazyTensor, read_checkpoint
from oscine.weights.mapped_file import Array

#: Prefixes of tensor names.
_TALKER, _CODE_PREDICTOR, _SPEAKER_ENCODER = (
    "talker.model",
    "talker.code_predictor",
    "speaker_encoder",
)


@dataclass(frozen=True, slots=True)
class TextWeights:
    """Text embedding and its projection: P(id) = fc2(silu(fc1(embedding[id]))).

    The embedding [text_vocab_size, text_hidden_size] stays on the host as a view of the file; only
    the rows of a prompt are uploaded.
    """

    embedding: Array
    fc1: Linear
    fc2: Linear


@dataclass(frozen=True, slots=True)
class TalkerWeights:
    """The talker: codec_embedding [V, D] of codes and special ids; codec_head [V, D], no bias."""

    layers: tuple[TransformerLayer, ...]
    norm: RmsNorm
    codec_embedding: Array
    codec_head: Linear


@dataclass(frozen=True, slots=True)
class CodePredictorWeights:
    """The code predictor: codec_embeddings, G - 1 tables [C, D] of codes 1 to G - 1; lm_heads [C,
    d].

    small_to_mtp_projection [d, D] with bias, None if both widths are equal.
    """

    layers: tuple[TransformerLayer, ...]
    norm: RmsNorm
    codec_embeddings: tuple[Array, ...]
    lm_heads: tuple[Linear, ...]
    small_to_mtp_projection: Linear | None


@dataclass(frozen=True, slots=True)
class SeRes2NetBlock:
    """A squeeze-excitation Res2Net block.

    tdnn1 [P, C], res2net: a convolution [p, K, p] for each part but the first, tdnn2 [C, P],
    se_conv1 [s, C], se_conv2 [C, s]. P is all parts of p channels, each padded with zeros.
    """

    tdnn1: Linear
    res2net: tuple[Linear, ...]
    tdnn2: Linear
    se_conv1: Linear
    se_conv2: Linear
    dilation: int


@dataclass(frozen=True, slots=True)
class SpeakerEncoderWeights:
    """The ECAPA-TDNN: tdnn.weight [C, K, mels]; mfa [M, M]; attentive statistics pooling with
    asp_tdnn [a, 3M] (of x, mean, deviation) and asp_conv [M, a]; fc [enc_dim, 2M].
    """

    tdnn: Linear
    blocks: tuple[SeRes2NetBlock, ...]
    mfa: Linear
    asp_tdnn: Linear
    asp_conv: Linear
    fc: Linear


@dataclass(frozen=True, slots=True)
class Qwen3TtsWeights:
    """All weights of a model.

    Matrices of talker, code predictor and text projection have the requested dtype, else the stored
    one (bfloat16, float16 or float32); vectors, codec and speaker encoder are float32. Arrays may
    be read-only views of the file.
    """

    config: Qwen3TtsConfig
    text: TextWeights
    talker: TalkerWeights
    code_predictor: CodePredictorWeights
    decoder: CodecDecoderWeights
    encoder: CodecEncoderWeights
    speaker: SpeakerEncoderWeights | None
    path: Path
    folder: Path
    dtype: str  # "bf16", "f16" or "f32": that of most of the talker


def load_weights(path: Checkpoint | Path | str, dtype: str = "auto") -> Qwen3TtsWeights:
    """Read a checkpoint, a folder or the weights in it, and the codec in the folder beside it.

    Args:
        path: A path, or a checkpoint that is already open.
        dtype: "f32", "f16", or "auto" for the stored one: the dtype of the matrices of talker, code
            predictor and text projection. The text embedding, which stays on the host, keeps its
            stored dtype; codec and speaker encoder are float32.

    Raises:
        CheckpointError: damaged files; tensors that are missing, unexpected or of wrong shape; a
            configuration of another model, or one that contradicts the tensors or the codec's.
    """
    checkpoint = path if isinstance(path, Checkpoint) else read_checkpoint(path)
    _refuse_mlx(checkpoint)
    codec = _read_codec(checkpoint)
    config = read_config(checkpoint, codec)
    check_codec(codec, config.codec)  # before the other file's tensors are read
    text, talker, predictor, speaker = load(
        partial(build_networks, config=config),
        checkpoint.path,
        checkpoint.tensors,
        dtype,
        # A model fine-tuned to one voice may still have its base model's encoder, unused.
        ignored=lambda name: (
            config.speaker_encoder is None and name.startswith(f"{_SPEAKER_ENCODER}.")
        ),
        keep_bf16=True,
    )
    decoder, encoder = load_codec_weights(codec, config.codec)
    return Qwen3TtsWeights(
        config=config,
        text=text,
        talker=talker,
        code_predictor=predictor,
        decoder=decoder,
        encoder=encoder,
        speaker=speaker,
        path=checkpoint.path,
        folder=checkpoint.folder,
        dtype=_talker_dtype(checkpoint.tensors),
    )


def _refuse_mlx(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError for MLX's conversions, which have other axes and files.

    The error names the repository that the conversion was made from.
    """
    folder, config = checkpoint.folder, checkpoint.config
    packed = (folder / "tokenizer.json").is_file() and not (folder / VOCAB_FILE).is_file()
    if packed or checkpoint.format == "mlx" or "quantization" in config:
        size = MODEL_SIZES.get(str(config.get("tts_model_size")), "0.6B")
        kind = str(config.get("tts_model_type", "custom_voice")).title().replace("_", "")
        raise CheckpointError(
            folder, "MLX's Qwen3-TTS is not read", f"take Qwen/Qwen3-TTS-12Hz-{size}-{kind[:20]}"
        )


def _read_codec(checkpoint: Checkpoint) -> Checkpoint:
    folder = checkpoint.folder / CODEC_FOLDER
    if not folder.is_dir():
        raise CheckpointError(folder, "no such folder, the model's codec", "fetch it whole")
    return read_checkpoint(folder)


def build_networks(
    t: Loader, config: Qwen3TtsConfig
) -> tuple[TextWeights, TalkerWeights, CodePredictorWeights, SpeakerEncoderWeights | None]:
    """The networks of the model's own file."""
    return (
        _text_weights(t, config),
        _talker_weights(t, config),
        _code_predictor_weights(t, config),
        build_speaker_encoder(t, config.speaker_encoder) if config.speaker_encoder else None,
    )


def _text_weights(t: Loader, config: Qwen3TtsConfig) -> TextWeights:
    width, fc = config.text_hidden_size, "talker.text_projection.linear_fc"
    return TextWeights(
        embedding=t.raw(f"{_TALKER}.text_embedding.weight", config.text_vocab_size, width),
        fc1=t.linear(f"{fc}1", width, width),
        fc2=t.linear(f"{fc}2", config.talker.hidden_size, width),
    )


def _talker_weights(t: Loader, config: Qwen3TtsConfig) -> TalkerWeights:
    stack, rows = config.talker, config.vocab_size
    return TalkerWeights(
        layers=transformer_layers(t, _TALKER, stack),
        norm=t.rms_norm(f"{_TALKER}.norm", stack.hidden_size, stack.norm_eps),
        codec_embedding=t.cast_float(
            t.raw(f"{_TALKER}.codec_embedding.weight", rows, stack.hidden_size)
        ),
        codec_head=t.linear("talker.codec_head", rows, stack.hidden_size, bias=False),
    )


def _code_predictor_weights(t: Loader, config: Qwen3TtsConfig) -> CodePredictorWeights:
    at, groups, codes = (
        f"{_CODE_PREDICTOR}.model",
        range(config.num_code_groups - 1),
        config.codebook_size,
    )
    stack, width = config.code_predictor, config.talker.hidden_size
    small_to_mtp_projection = None
    if width != stack.hidden_size:
        small_to_mtp_projection = t.linear(
            f"{_CODE_PREDICTOR}.small_to_mtp_projection", stack.hidden_size, width
        )
    return CodePredictorWeights(
        layers=transformer_layers(t, at, stack),
        norm=t.rms_norm(f"{at}.norm", stack.hidden_size, stack.norm_eps),
        codec_embeddings=tuple(
            t.cast_float(t.raw(f"{at}.codec_embedding.{g}.weight", codes, width)) for g in groups
        ),
        lm_heads=tuple(
            t.linear(f"{_CODE_PREDICTOR}.lm_head.{g}", codes, stack.hidden_size, bias=False)
            for g in groups
        ),
        small_to_mtp_projection=small_to_mtp_projection,
    )


def build_speaker_encoder(t: Loader, config: SpeakerEncoderConfig) -> SpeakerEncoderWeights:
    """The speaker encoder of a base model."""
    channels, mixed = config.enc_channels, config.enc_channels[-1]
    asp_tdnn = pointwise_conv(
        t, f"{_SPEAKER_ENCODER}.asp.tdnn.conv", config.enc_attention_channels, 3 * mixed
    )
    asp_conv = pointwise_conv(
        t, f"{_SPEAKER_ENCODER}.asp.conv", mixed, config.enc_attention_channels
    )
    return SpeakerEncoderWeights(
        tdnn=conv1d(
            t,
            f"{_SPEAKER_ENCODER}.blocks.0.conv",
            channels[0],
            config.mel_dim,
            config.enc_kernel_sizes[0],
        ),
        blocks=tuple(_se_res2net_block(t, config, index) for index in range(1, len(channels) - 1)),
        mfa=pointwise_conv(t, f"{_SPEAKER_ENCODER}.mfa.conv", mixed, mixed),
        asp_tdnn=pad_channels(t, asp_tdnn, inputs=0),
        asp_conv=pad_channels(t, asp_conv, outputs=0),
        fc=pointwise_conv(t, f"{_SPEAKER_ENCODER}.fc", config.enc_dim, 2 * mixed),
    )


def _se_res2net_block(t: Loader, config: SpeakerEncoderConfig, index: int) -> SeRes2NetBlock:
    """A block whose parts are padded one by one, in tdnn1's output and tdnn2's input."""
    at, width, kernel = (
        f"{_SPEAKER_ENCODER}.blocks.{index}",
        config.enc_channels[index],
        config.enc_kernel_sizes[index],
    )
    count, part = config.enc_res2net_scale, width // config.enc_res2net_scale
    tdnn1 = pointwise_conv(t, f"{at}.tdnn1.conv", width, width)
    tdnn2 = pointwise_conv(t, f"{at}.tdnn2.conv", width, width)
    se_conv1 = pointwise_conv(t, f"{at}.se_block.conv1", config.enc_se_channels, width)
    se_conv2 = pointwise_conv(t, f"{at}.se_block.conv2", width, config.enc_se_channels)
    return SeRes2NetBlock(
        tdnn1=pad_channels(t, tdnn1, inputs=0, outputs=count),
        res2net=tuple(
            pad_channels(t, conv1d(t, f"{at}.res2net_block.blocks.{n}.conv", part, part, kernel))
            for n in range(count - 1)
        ),
        tdnn2=pad_channels(t, tdnn2, outputs=0, inputs=count),
        se_conv1=pad_channels(t, se_conv1, inputs=0),
        se_conv2=pad_channels(t, se_conv2, outputs=0),
        dilation=config.enc_dilations[index],
    )


def _talker_dtype(entries: Mapping[str, LazyTensor]) -> str:
    """The dtype of most numbers in the talker's layers: "bf16", "f16" or "f32"."""
    counts: Counter[str] = Counter()
    for name, entry in entries.items():
        if name.startswith(f"{_TALKER}.layers.") and len(entry.shape) == 2:
            counts[stored_dtype(entry)] += prod(entry.shape)
    return counts.most_common(1)[0][0]


def check_finite(weights: Any, name: str) -> None:
    """Raise NonFiniteError for a tree of float32 arrays with NaN or infinity.

    Results need not show them: the nearest code is always a code, and kernels may return 0 for
    max(0, NaN).
    """
    if not all(np.isfinite(array).all() for array in tree_leaves(weights)):
        raise NonFiniteError(f"{name} has weights that are not finite: they are damaged")
