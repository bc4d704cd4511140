"""A Qwen3-TTS checkpoint as trees of arrays, checked against its configuration first.

Sizes, names and quirks: MODELS/qwen3_tts.md. Source of the network: qwen_tts/core/models/
modeling_qwen3_tts.py and core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py.
What is folded into the weights here and in codec_weights.py, so that the forward knows nothing of
it: q, k and v in one matrix, gate and up in one; layer scales (into the rows of out and down);
ConvNeXt's gamma (into shrink); transposed convolutions as plain ones with stride times as many
outputs; codebooks divided by their usage; Snake's logarithms.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oscine.bfloat16 import BFLOAT16
from oscine.errors import CheckpointError
from oscine.models.qwen3_tts.codec_weights import CodecDecoderWeights as CodecDecoderWeights
from oscine.models.qwen3_tts.codec_weights import CodecEncoderWeights as CodecEncoderWeights
from oscine.models.qwen3_tts.codec_weights import ConvNext as ConvNext
from oscine.models.qwen3_tts.codec_weights import DecoderStage as DecoderStage
from oscine.models.qwen3_tts.codec_weights import EncoderBlock as EncoderBlock
from oscine.models.qwen3_tts.codec_weights import EncoderStage as EncoderStage
from oscine.models.qwen3_tts.codec_weights import EncoderUnit as EncoderUnit
from oscine.models.qwen3_tts.codec_weights import ResidualUnit as ResidualUnit
from oscine.models.qwen3_tts.codec_weights import Upsample as Upsample
from oscine.models.qwen3_tts.codec_weights import codec_weights
from oscine.models.qwen3_tts.config import SIZES, Qwen3TtsConfig, SpeakerConfig
from oscine.models.qwen3_tts.shapes import PREDICTOR, SPEAKER, TALKER, talker_shapes
from oscine.models.qwen3_tts.sizes import read_config
from oscine.models.qwen3_tts.tensors import Block as Block
from oscine.models.qwen3_tts.tensors import Tensors
from oscine.ops import Linear, RmsNorm
from oscine.text.qwen import VOCABULARY
from oscine.weights import Checkpoint, read_checkpoint
from oscine.weights.source import Array

CODEC_FOLDER = "speech_tokenizer"


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
    """A squeeze-excite Res2Net block: first [C, C], parts.weight [c, K, c] each, second [C, C],
    squeeze [s, C], excite [C, s]."""

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
    """Talker and predictor as stored (bfloat16, float16 or float32 matrices; vectors float32);
    codec and speaker encoder float32. Arrays may be read-only views of the file."""

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


def load_weights(path: Checkpoint | Path | str) -> Qwen3TtsWeights:
    """Read a checkpoint: a released folder, or the weights in it, its codec in a folder beside.

    One that is open already is taken as it is.

    Raises:
        CheckpointError: damaged files; tensors that are missing, unexpected or of wrong shape; a
            configuration of another model, or one that contradicts the tensors or the codec's.
    """
    checkpoint = path if isinstance(path, Checkpoint) else read_checkpoint(path)
    _refuse_mlx(checkpoint)
    codec = _codec_beside(checkpoint)
    config = read_config(checkpoint, codec)
    # A model fine-tuned to one voice may still carry the encoder of its base, unused.
    unused = "" if config.speaker else f"{SPEAKER}."
    tensors = Tensors(checkpoint, talker_shapes(config), {}, ignored=unused)
    decoder, encoder = codec_weights(codec, config.codec)
    talker = _talker(tensors, config)
    return Qwen3TtsWeights(
        config=config,
        text=_text(tensors),
        talker=talker,
        predictor=_predictor(tensors, config),
        decoder=decoder,
        encoder=encoder,
        speaker=_speaker(tensors, config.speaker) if config.speaker else None,
        path=checkpoint.path,
        folder=checkpoint.folder,
        stored=_mostly(talker),
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


def _text(tensors: Tensors) -> TextWeights:
    fc = "talker.text_projection.linear_fc"
    return TextWeights(
        embedding=tensors.stored(f"{TALKER}.text_embedding.weight"),
        fc1=tensors.matrix(f"{fc}1"),
        fc2=tensors.matrix(f"{fc}2"),
    )


def _talker(tensors: Tensors, config: Qwen3TtsConfig) -> TalkerWeights:
    return TalkerWeights(
        blocks=tensors.blocks(TALKER, config.talker),
        norm=tensors.rms(f"{TALKER}.norm", config.talker.eps),
        embedding=tensors.stored(f"{TALKER}.codec_embedding.weight"),
        head=tensors.matrix("talker.codec_head"),
    )


def _predictor(tensors: Tensors, config: Qwen3TtsConfig) -> PredictorWeights:
    at, groups = f"{PREDICTOR}.model", range(config.groups - 1)
    project = None
    if config.talker.width != config.predictor.width:
        project = tensors.matrix(f"{PREDICTOR}.small_to_mtp_projection")
    return PredictorWeights(
        blocks=tensors.blocks(at, config.predictor),
        norm=tensors.rms(f"{at}.norm", config.predictor.eps),
        embeddings=tuple(tensors.stored(f"{at}.codec_embedding.{g}.weight") for g in groups),
        heads=tuple(tensors.matrix(f"{PREDICTOR}.lm_head.{g}") for g in groups),
        project=project,
    )


def _speaker(tensors: Tensors, config: SpeakerConfig) -> SpeakerWeights:
    blocks = tuple(
        SpeakerBlock(
            first=tensors.linear(f"{at}.tdnn1.conv"),
            parts=tuple(
                tensors.convolution(f"{at}.res2net_block.blocks.{number}.conv")
                for number in range(config.parts - 1)
            ),
            second=tensors.linear(f"{at}.tdnn2.conv"),
            squeeze=tensors.linear(f"{at}.se_block.conv1"),
            excite=tensors.linear(f"{at}.se_block.conv2"),
            dilation=config.dilations[index],
        )
        for index in range(1, len(config.channels) - 1)
        if (at := f"{SPEAKER}.blocks.{index}")
    )
    return SpeakerWeights(
        first=tensors.convolution(f"{SPEAKER}.blocks.0.conv"),
        blocks=blocks,
        mixed=tensors.linear(f"{SPEAKER}.mfa.conv"),
        attention=tensors.linear(f"{SPEAKER}.asp.tdnn.conv"),
        scores=tensors.linear(f"{SPEAKER}.asp.conv"),
        last=tensors.linear(f"{SPEAKER}.fc"),
    )


def _mostly(talker: TalkerWeights) -> str:
    """The type of most numbers of the layers: "bf16", "f16" or "f32"."""
    sizes: Counter[str] = Counter()
    names = {BFLOAT16: "bf16", np.dtype(np.float16): "f16"}
    for block in talker.blocks:
        for linear in (block.qkv, block.out, block.gate_up, block.down):
            sizes[names.get(linear.weight.dtype, "f32")] += linear.weight.size
    return sizes.most_common(1)[0][0]
