"""Configuration of a Qwen3-TTS: talker, code predictor, codec and speaker encoder.

It is read from the configuration files and checked before anything is built. Fields bear the names
of upstream's keys. Names and released values: MODELS/qwen3_tts.md. Keys and defaults:
qwen_tts/core/models/configuration_qwen3_tts.py; of the codec, core/tokenizer_12hz/
configuration_qwen3_tts_tokenizer_v2.py and transformers models/mimi/configuration_mimi.py. A value
that selects an unsupported variant of the network is an error that names the key. Some keys of the
codec describe no tensor and are ignored: semantic_codebook_size, the decoder's
vector_quantization_hidden_dimension, layer_scale_initial_scale, the encoder's sliding_window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, cast

from oscine.errors import CheckpointError
from oscine.model_files import read_json
from oscine.models.config_reader import ConfigReader
from oscine.models.qwen3_tts.released import CODEC_TYPE, MODEL_TYPE
from oscine.options.speak import MAX_FACTOR, MIN_FACTOR
from oscine.weights import Checkpoint

SAMPLE_RATE = 24000
#: The stride of the encoder's last convolution, from Mimi's 25 frames a second to 12.5.
DOWNSAMPLE_STRIDE = 2

#: Limits against damaged files; released sizes are far below.
MAX_WIDTH, MAX_VOCAB_SIZE, MAX_LAYERS, MAX_CODE_GROUPS = 1 << 16, 1 << 22, 1 << 10, 1 << 7
MAX_POSITIONS = 1 << 22

TtsModelType = Literal["base", "custom_voice", "voice_design"]
TTS_MODEL_TYPES: Final = ("base", "custom_voice", "voice_design")
#: tts_model_size in a configuration, and the size in a model's name.
MODEL_SIZES = {"0b6": "0.6B", "1b7": "1.7B"}


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Sizes of a transformer. head_dim is independent of hidden_size / num_attention_heads."""

    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int  # of the feed-forward
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float  # base of RoPE's frequencies

    @property
    def q_size(self) -> int:
        """Width of all query heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together."""
        return self.num_key_value_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class TextTokenIds:
    """Ids of special tokens of the text vocabulary."""

    im_start: int
    im_end: int
    assistant: int
    pad: int
    bos: int
    eos: int


@dataclass(frozen=True, slots=True)
class CodecTokenIds:
    """Ids of special tokens of the talker's vocabulary, above the codes."""

    pad: int
    bos: int
    eos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int


@dataclass(frozen=True, slots=True)
class CodecDecoderConfig:
    """The codec's decoder: codes to waveform."""

    transformer: TransformerConfig  # before the upsampling; RMSNorm
    sliding_window: int  # positions that a row attends to, its own included
    codebook_dim: int  # of the quantized vector; a codebook's entries have half
    latent_dim: int
    decoder_dim: int  # of the first convolution; halved by every stage
    upsample_rates: tuple[int, ...]  # of the stages
    upsampling_ratios: tuple[int, ...]  # of the upsampling before them


@dataclass(frozen=True, slots=True)
class CodecEncoderConfig:
    """The codec's encoder, Mimi's: waveform to codes."""

    transformer: TransformerConfig  # LayerNorm, GELU without a gate
    num_filters: int  # of the first convolution; doubled by every stage
    strides: tuple[int, ...]  # in the order of the layers: the file's upsampling_ratios reversed
    kernel_size: int
    last_kernel_size: int
    residual_kernel_size: int
    dilation_growth_rate: int
    num_residual_layers: int  # of every stage
    compress: int
    codebook_dim: int  # of a codebook's entries
    num_quantizers: int  # in the file, the semantic one included; the first are used


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """The 12 Hz codec: `num_code_groups` codebooks of `codebook_size` entries, a frame every
    `hop_length` samples.
    """

    decoder: CodecDecoderConfig
    encoder: CodecEncoderConfig
    num_code_groups: int
    codebook_size: int
    hop_length: int
    sample_rate: int = SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """The ECAPA-TDNN that turns a reference into a speaker embedding; one list entry a block."""

    enc_dim: int  # of the speaker embedding: the talker's hidden_size
    mel_dim: int
    enc_channels: tuple[int, ...]
    enc_kernel_sizes: tuple[int, ...]
    enc_dilations: tuple[int, ...]
    enc_attention_channels: int
    enc_res2net_scale: int  # parts of a Res2Net block
    enc_se_channels: int
    sample_rate: int = SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one head samples; the defaults are the released ones. Only the talker has a
    repetition_penalty.
    """

    do_sample: bool = True
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.05


@dataclass(frozen=True, slots=True)
class GenerationConfig:
    """The values of generation_config.json; absent ones are hard-coded upstream."""

    talker: SamplingParams = field(default_factory=SamplingParams)
    subtalker: SamplingParams = field(
        default_factory=lambda: SamplingParams(repetition_penalty=1.0)
    )
    max_new_tokens: int = 2048
    min_new_tokens: int = 2


@dataclass(frozen=True, slots=True)
class Qwen3TtsConfig:
    """The configuration of a model, without its weights."""

    tts_model_type: TtsModelType
    tts_model_size: str  # "0b6" or "1b7"; 0b6 ignores instructions
    talker: TransformerConfig
    code_predictor: TransformerConfig
    vocab_size: int  # V of the talker: codes, then special ids
    text_vocab_size: int
    text_hidden_size: int
    num_code_groups: int  # G, codes a frame
    codebook_size: int  # entries of the code predictor's embeddings and heads
    max_position_embeddings: int  # of the talker
    text_ids: TextTokenIds
    codec_ids: CodecTokenIds
    codec_language_id: dict[str, int]  # lower case; dialects too
    spk_id: dict[str, int]  # lower case; empty but for custom_voice
    spk_is_dialect: dict[str, str]  # speaker -> key of codec_language_id
    codec: CodecConfig
    speaker_encoder: SpeakerEncoderConfig | None  # of base models only
    generation: GenerationConfig

    @property
    def supported_languages(self) -> tuple[str, ...]:
        """Languages that can be requested, sorted; dialects are reached through a speaker only."""
        dialects = set(self.spk_is_dialect.values())
        return tuple(
            name
            for name in sorted(self.codec_language_id)
            if name not in dialects and not name.endswith("_dialect")
        )


# -- the model's own files ------------------------------------------------------------------------


def read_config(checkpoint: Checkpoint, codec: Checkpoint) -> Qwen3TtsConfig:
    """Read config.json, generation_config.json and the codec's config.json.

    Raises:
        CheckpointError: a file is of another model or has an invalid value, or two files contradict
            each other.
    """
    stated = _config_reader(checkpoint)
    stated.require("model_type", (MODEL_TYPE,))
    stated.require("tokenizer_type", (CODEC_TYPE,), f"supported: {CODEC_TYPE}, the codec of 12 Hz")
    kind, size = stated.get("tts_model_type"), stated.get("tts_model_size")
    if kind not in TTS_MODEL_TYPES:
        raise stated.error("tts_model_type", kind, f"supported: {', '.join(TTS_MODEL_TYPES)}")
    if not isinstance(size, str):
        raise stated.error("tts_model_size", size, "0b6 or 1b7 is needed there")
    part = stated.section("talker_config")
    talker, predictor = _read_transformers(part, len(checkpoint.tensors))
    vocabulary = part.integer("vocab_size", MAX_VOCAB_SIZE)
    text_vocabulary = part.integer("text_vocab_size", MAX_VOCAB_SIZE)
    sound = read_codec_config(codec)
    _check_code_sizes(part, sound, vocabulary)
    languages = _read_named_ids(part, "codec_language_id", vocabulary)
    custom = kind == "custom_voice"
    return Qwen3TtsConfig(
        tts_model_type=cast(TtsModelType, kind),
        tts_model_size=size,
        talker=talker,
        code_predictor=predictor,
        vocab_size=vocabulary,
        text_vocab_size=text_vocabulary,
        text_hidden_size=part.integer("text_hidden_size", MAX_WIDTH),
        num_code_groups=sound.num_code_groups,
        codebook_size=sound.codebook_size,
        max_position_embeddings=part.integer("max_position_embeddings", MAX_POSITIONS),
        text_ids=_read_text_ids(stated, text_vocabulary),
        codec_ids=_read_codec_ids(part, vocabulary),
        codec_language_id=languages,
        spk_id=_read_named_ids(part, "spk_id", vocabulary) if custom else {},
        spk_is_dialect=_read_dialects(part, languages) if custom else {},
        codec=sound,
        speaker_encoder=_read_speaker_encoder(stated, talker.hidden_size)
        if kind == "base"
        else None,
        generation=read_generation(checkpoint.folder),
    )


def read_generation(folder: Path) -> GenerationConfig:
    """Read generation_config.json; absent keys, or a missing file, have upstream's defaults."""
    path = folder / "generation_config.json"
    stated = ConfigReader(path, read_json(path))
    return GenerationConfig(
        talker=_read_sampling_params(stated, "do_sample", ""),
        subtalker=_read_sampling_params(stated, "subtalker_dosample", "subtalker_"),
        max_new_tokens=stated.integer(
            "max_new_tokens", MAX_POSITIONS, GenerationConfig().max_new_tokens
        ),
    )


def _read_sampling_params(stated: ConfigReader, do_sample_key: str, prefix: str) -> SamplingParams:
    defaults, top_k = SamplingParams(), f"{prefix}top_k"
    penalty = 1.0  # the code predictor has none
    if not prefix:
        default_penalty = defaults.repetition_penalty
        penalty = stated.number("repetition_penalty", MIN_FACTOR, MAX_FACTOR, default_penalty)
    return SamplingParams(
        do_sample=stated.boolean(do_sample_key, defaults.do_sample),
        temperature=stated.number(
            f"{prefix}temperature", MIN_FACTOR, MAX_FACTOR, defaults.temperature
        ),
        top_k=0
        if stated.get(top_k) == 0
        else stated.integer(top_k, MAX_VOCAB_SIZE, defaults.top_k),
        top_p=stated.number(f"{prefix}top_p", 0, 1, defaults.top_p),
        repetition_penalty=penalty,
    )


def _read_transformers(
    part: ConfigReader, max_layers: int
) -> tuple[TransformerConfig, TransformerConfig]:
    predictor = part.section("code_predictor_config")
    for one in (part, predictor):
        one.require("hidden_act", ("silu",))
        for switch in ("attention_bias", "use_sliding_window", "tie_word_embeddings"):
            one.require(switch, (False,))
        one.require("rope_scaling.rope_type", ("default",))
        one.require("rope_scaling.type", ("default",))
    talker = _read_transformer(part, "rms_norm_eps", max_layers)
    return talker, _read_transformer(predictor, "rms_norm_eps", max_layers)


def _check_code_sizes(part: ConfigReader, codec: CodecConfig, vocabulary: int) -> None:
    """Check that talker, code predictor and codec agree on the number and size of the codebooks."""
    for key in ("num_code_groups", "code_predictor_config.num_code_groups"):
        groups = part.integer(key, MAX_CODE_GROUPS)
        if groups != codec.num_code_groups:
            raise part.error(key, groups, f"its codec has {codec.num_code_groups} codebooks")
    key = "code_predictor_config.vocab_size"
    if part.integer(key, MAX_VOCAB_SIZE) != codec.codebook_size:
        raise part.error(
            key, part.get(key), f"its codec's codebooks have {codec.codebook_size} entries"
        )
    if vocabulary < codec.codebook_size:
        raise part.error("vocab_size", vocabulary, f"its codes alone are {codec.codebook_size}")


def _read_id(stated: ConfigReader, key: str, vocab_size: int) -> int:
    return _check_id(stated, key, stated.get(key), vocab_size)


def _check_id(stated: ConfigReader, key: str, value: object, vocab_size: int) -> int:
    if isinstance(value, list) and len(value) == 1:  # some published copies wrap ids in a list
        value = value[0]
    if type(value) is not int or not 0 <= value < vocab_size:
        raise stated.error(key, value, f"an id from 0 to {vocab_size - 1} is needed there")
    return value


def _read_text_ids(stated: ConfigReader, vocab_size: int) -> TextTokenIds:
    return TextTokenIds(
        im_start=_read_id(stated, "im_start_token_id", vocab_size),
        im_end=_read_id(stated, "im_end_token_id", vocab_size),
        assistant=_read_id(stated, "assistant_token_id", vocab_size),
        pad=_read_id(stated, "tts_pad_token_id", vocab_size),
        bos=_read_id(stated, "tts_bos_token_id", vocab_size),
        eos=_read_id(stated, "tts_eos_token_id", vocab_size),
    )


def _read_codec_ids(part: ConfigReader, vocab_size: int) -> CodecTokenIds:
    return CodecTokenIds(
        pad=_read_id(part, "codec_pad_id", vocab_size),
        bos=_read_id(part, "codec_bos_id", vocab_size),
        eos=_read_id(part, "codec_eos_token_id", vocab_size),
        think=_read_id(part, "codec_think_id", vocab_size),
        nothink=_read_id(part, "codec_nothink_id", vocab_size),
        think_bos=_read_id(part, "codec_think_bos_id", vocab_size),
        think_eos=_read_id(part, "codec_think_eos_id", vocab_size),
    )


def _read_named_ids(part: ConfigReader, key: str, vocab_size: int) -> dict[str, int]:
    if part.get(key) is None:
        return {}
    named = part.section(key)
    ids = {
        name.lower(): _check_id(named, name, value, vocab_size)
        for name, value in named.config.items()
    }
    if len(ids) != len(named.config):
        raise part.error(key, ", ".join(named.config), "two names differ in their case only")
    return ids


def _read_dialects(part: ConfigReader, languages: dict[str, int]) -> dict[str, str]:
    """The dialect of each speaker who has one; false in the file means none."""
    if part.get("spk_is_dialect") is None:
        return {}
    stated = part.section("spk_is_dialect")
    dialects: dict[str, str] = {}
    for name, dialect in stated.config.items():
        if dialect is False or dialect is None:
            continue
        if not isinstance(dialect, str) or dialect.lower() not in languages:
            known = f"false or a key of codec_language_id is needed there: {', '.join(languages)}"
            raise stated.error(name, dialect, known)
        dialects[name.lower()] = dialect.lower()
    return dialects


def _read_speaker_encoder(stated: ConfigReader, talker_hidden_size: int) -> SpeakerEncoderConfig:
    part = stated.section("speaker_encoder_config")
    part.require("sample_rate", (SAMPLE_RATE,))
    channels = part.integers("enc_channels", MAX_WIDTH, (512, 512, 512, 512, 1536))
    config = SpeakerEncoderConfig(
        enc_dim=part.integer("enc_dim", MAX_WIDTH, 1024),
        mel_dim=part.integer("mel_dim", 1 << 12, 128),
        enc_channels=channels,
        enc_kernel_sizes=part.integers("enc_kernel_sizes", 64, (5, 3, 3, 3, 1)),
        enc_dilations=part.integers("enc_dilations", 64, (1, 2, 3, 4, 1)),
        enc_attention_channels=part.integer("enc_attention_channels", MAX_WIDTH, 128),
        enc_res2net_scale=part.integer("enc_res2net_scale", 64, 8),
        enc_se_channels=part.integer("enc_se_channels", MAX_WIDTH, 128),
    )
    if config.enc_dim != talker_hidden_size:
        raise part.error(
            "enc_dim", config.enc_dim, f"its talker has a width of {talker_hidden_size}"
        )
    if not len(channels) == len(config.enc_kernel_sizes) == len(config.enc_dilations) >= 3:
        remedy = "as many as enc_kernel_sizes and enc_dilations are needed, 3 or more"
        raise part.error("enc_channels", channels, remedy)
    if channels[-1] != sum(channels[1:-1]) or len(set(channels[:-1])) != 1:
        raise part.error("enc_channels", channels, "equal ones are needed and then their sum")
    if channels[0] % config.enc_res2net_scale or config.enc_res2net_scale < 2:
        raise part.error(
            "enc_res2net_scale", config.enc_res2net_scale, f"it must divide {channels[0]}"
        )
    if (config.enc_kernel_sizes[-1], config.enc_dilations[-1]) != (1, 1):
        raise part.error("enc_kernel_sizes", config.enc_kernel_sizes, "the last one must be 1")
    return config


def _config_reader(checkpoint: Checkpoint) -> ConfigReader:
    """A reader of the config.json beside the weights. Raises CheckpointError if it is missing or
    empty.
    """
    path = checkpoint.folder / "config.json"
    if not checkpoint.config and path.is_file():
        raise CheckpointError(path, "has no model configuration", "fetch it again")
    if not checkpoint.config:
        raise CheckpointError(path, "no such file", "put it beside the weights")
    return ConfigReader(path, checkpoint.config)


def _read_transformer(stated: ConfigReader, eps_key: str, max_layers: int) -> TransformerConfig:
    """The transformer that a part of a configuration describes; `eps_key`: the key of its epsilon.

    `max_layers`: the file's number of tensors, for instance. Names are generated for every layer,
    so an absurd number must be rejected first.
    """
    hidden_size = stated.integer("hidden_size", MAX_WIDTH)
    num_attention_heads = stated.integer("num_attention_heads", MAX_WIDTH)
    num_key_value_heads = stated.integer("num_key_value_heads", MAX_WIDTH, num_attention_heads)
    head_dim = stated.integer("head_dim", MAX_WIDTH, max(1, hidden_size // num_attention_heads))
    if num_attention_heads % num_key_value_heads:
        raise stated.error(
            "num_key_value_heads",
            num_key_value_heads,
            f"it must divide {num_attention_heads} heads",
        )
    if head_dim % 2:
        raise stated.error("head_dim", head_dim, "rotary positions need an even width")
    return TransformerConfig(
        num_hidden_layers=stated.integer("num_hidden_layers", max(1, min(MAX_LAYERS, max_layers))),
        hidden_size=hidden_size,
        intermediate_size=stated.integer("intermediate_size", MAX_WIDTH),
        num_attention_heads=num_attention_heads,
        num_key_value_heads=num_key_value_heads,
        head_dim=head_dim,
        norm_eps=stated.number(eps_key, 0, 1, 1e-5 if eps_key == "norm_eps" else 1e-6),
        rope_theta=stated.number("rope_theta", 1, 1e12, 1e4),
    )


# -- the codec's file -----------------------------------------------------------------------------

#: The supported values of keys that select variants of the network.
_SUPPORTED_VALUES: dict[str, tuple[object, ...]] = {
    "encoder_config.hidden_act": ("gelu",),
    "encoder_config.attention_bias": (False,),
    "encoder_config.audio_channels": (1,),
    "encoder_config.num_semantic_quantizers": (1,),
    "encoder_config.pad_mode": ("constant",),
    "encoder_config.use_causal_conv": (True,),
    "encoder_config.use_conv_shortcut": (False,),
    "encoder_config.sampling_rate": (SAMPLE_RATE,),
    "decoder_config.hidden_act": ("silu",),
    "decoder_config.attention_bias": (False,),
    "decoder_config.num_semantic_quantizers": (1,),
    "input_sample_rate": (SAMPLE_RATE,),
    "output_sample_rate": (SAMPLE_RATE,),
}


def read_codec_config(checkpoint: Checkpoint) -> CodecConfig:
    """Read the codec's config.json.

    Raises:
        CheckpointError: it is of another codec, has an invalid value or contradicts itself.
    """
    stated = _config_reader(checkpoint)
    stated.require("model_type", (CODEC_TYPE,), f"supported: {CODEC_TYPE}, the codec of 12 Hz")
    for key, allowed in _SUPPORTED_VALUES.items():
        stated.require(key, allowed)
    num_code_groups = stated.integer("encoder_valid_num_quantizers", MAX_CODE_GROUPS, 16)
    decoder, encoder = stated.section("decoder_config"), stated.section("encoder_config")
    if num_code_groups < 2 or decoder.integer("num_quantizers", MAX_CODE_GROUPS) != num_code_groups:
        key = "encoder_valid_num_quantizers"
        raise stated.error(
            key, num_code_groups, "decoder_config.num_quantizers must be the same, above 1"
        )
    codebook_size = decoder.integer("codebook_size", MAX_VOCAB_SIZE)
    if encoder.integer("codebook_size", MAX_VOCAB_SIZE) != codebook_size:
        size = encoder.get("codebook_size")
        raise encoder.error("codebook_size", size, f"its decoder has {codebook_size} codes")
    max_layers = len(checkpoint.tensors)
    config = CodecConfig(
        decoder=_read_decoder(decoder, max_layers),
        encoder=_read_encoder(encoder, max_layers, num_code_groups),
        num_code_groups=num_code_groups,
        codebook_size=codebook_size,
        hop_length=stated.integer("decode_upsample_rate", 1 << 16),
        sample_rate=SAMPLE_RATE,
    )
    _check_hop_length(stated, config)
    return config


def _read_decoder(stated: ConfigReader, max_layers: int) -> CodecDecoderConfig:
    rates = stated.integers("upsample_rates", 64)
    channels, codebook_dim = (
        stated.integer("decoder_dim", MAX_WIDTH),
        stated.integer("codebook_dim", MAX_WIDTH),
    )
    if channels % (1 << len(rates)):
        raise stated.error("decoder_dim", channels, f"{len(rates)} stages must halve it")
    if codebook_dim % 2:
        raise stated.error("codebook_dim", codebook_dim, "it must be even")
    return CodecDecoderConfig(
        transformer=_read_transformer(stated, "rms_norm_eps", max_layers),
        sliding_window=stated.integer("sliding_window", 1 << 16),
        codebook_dim=codebook_dim,
        latent_dim=stated.integer("latent_dim", MAX_WIDTH),
        decoder_dim=channels,
        upsample_rates=rates,
        upsampling_ratios=stated.integers("upsampling_ratios", 64),
    )


def _read_encoder(stated: ConfigReader, max_layers: int, groups: int) -> CodecEncoderConfig:
    filters, compress = stated.integer("num_filters", MAX_WIDTH), stated.integer("compress", 64, 2)
    if filters < compress:
        raise stated.error("num_filters", filters, f"compress = {compress} leaves none of them")
    codebook_dim, num_quantizers = (
        stated.integer("codebook_dim", MAX_WIDTH),
        stated.integer("num_quantizers", 1 << 10),
    )
    if (
        stated.integer("vector_quantization_hidden_dimension", MAX_WIDTH, codebook_dim)
        != codebook_dim
    ):
        raise stated.error(
            "codebook_dim", codebook_dim, "vector_quantization_hidden_dimension differs"
        )
    if num_quantizers < groups:
        raise stated.error("num_quantizers", num_quantizers, f"{groups} of them are used")
    return CodecEncoderConfig(
        transformer=_read_transformer(stated, "norm_eps", max_layers),
        num_filters=filters,
        strides=stated.integers("upsampling_ratios", 64)[::-1],
        kernel_size=stated.integer("kernel_size", 64),
        last_kernel_size=stated.integer("last_kernel_size", 64),
        residual_kernel_size=stated.integer("residual_kernel_size", 64),
        dilation_growth_rate=stated.integer("dilation_growth_rate", 16),
        num_residual_layers=stated.integer("num_residual_layers", 8),
        compress=compress,
        codebook_dim=codebook_dim,
        num_quantizers=num_quantizers,
    )


def _check_hop_length(stated: ConfigReader, config: CodecConfig) -> None:
    """Check that all keys imply the same number of samples a frame."""
    decoder, encoder = config.decoder, config.encoder
    hop_lengths = {
        "encode_downsample_rate": stated.integer(
            "encode_downsample_rate", 1 << 16, config.hop_length
        ),
        "decoder_config.upsample_rates and upsampling_ratios": math.prod(
            decoder.upsample_rates + decoder.upsampling_ratios
        ),
        "encoder_config.upsampling_ratios": math.prod(encoder.strides) * DOWNSAMPLE_STRIDE,
    }
    for key, samples in hop_lengths.items():
        if samples != config.hop_length:
            remedy = f"{key} give {samples} samples a frame"
            raise stated.error("decode_upsample_rate", config.hop_length, remedy)
