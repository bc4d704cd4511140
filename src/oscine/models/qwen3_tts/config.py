"""Sizes and ids of a Qwen3-TTS: talker, code predictor, codec and speaker encoder.

All are read from its configuration files, and each is checked before anything is made of it. Names
in config.json and the released values: MODELS/qwen3_tts.md. Keys and defaults: upstream's
qwen_tts/core/models/configuration_qwen3_tts.py; for the codec, core/tokenizer_12hz/
configuration_qwen3_tts_tokenizer_v2.py and transformers models/mimi/configuration_mimi.py. A value
that would change the network in a way that is not built is refused by name. Some keys of the codec
describe no tensor and are ignored: semantic_codebook_size, the decoder's
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
from oscine.options.speak import LEAST_FACTOR, MOST_FACTOR
from oscine.weights import Checkpoint

SAMPLE_RATE = 24000
#: The stride of the convolution that ends the encoder, from Mimi's 25 frames a second to 12.5.
LAST_STRIDE = 2

#: No released size comes near these.
MAX_WIDTH, MAX_VOCABULARY, MAX_LAYERS, MAX_GROUPS = 1 << 16, 1 << 22, 1 << 10, 1 << 7
MAX_POSITIONS = 1 << 22

Kind = Literal["base", "custom_voice", "voice_design"]
KINDS: Final = ("base", "custom_voice", "voice_design")
#: As a configuration states them, and as names have them.
SIZES = {"0b6": "0.6B", "1b7": "1.7B"}


@dataclass(frozen=True, slots=True)
class Stack:
    """A transformer. Head width is its own number, never width / heads."""

    layers: int
    width: int
    inner: int  # of the feed-forward
    heads: int
    key_heads: int
    head_width: int
    eps: float
    theta: float  # of the rotary positions

    @property
    def query_width(self) -> int:
        """All query heads together."""
        return self.heads * self.head_width

    @property
    def key_width(self) -> int:
        """All key heads together."""
        return self.key_heads * self.head_width


@dataclass(frozen=True, slots=True)
class TextIds:
    """Ids of the text vocabulary that mean something to the model."""

    im_start: int
    im_end: int
    assistant: int
    pad: int
    bos: int
    eos: int


@dataclass(frozen=True, slots=True)
class CodecIds:
    """Ids of the talker's vocabulary above the codes."""

    pad: int
    bos: int
    eos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int


@dataclass(frozen=True, slots=True)
class CodecDecoderConfig:
    """Codes to waveform."""

    stack: Stack  # the transformer before the upsampling; RMS norms
    window: int  # positions that one of it sees, itself included
    codebook_width: int  # of the quantised vector; a table's rows are half of it
    latent: int
    channels: int  # of the first convolution; halved by every stage
    rates: tuple[int, ...]  # of the stages
    ratios: tuple[int, ...]  # of the upsampling before them


@dataclass(frozen=True, slots=True)
class CodecEncoderConfig:
    """Waveform to codes: Mimi's encoder."""

    stack: Stack  # layer norms, GELU, no gate
    filters: int  # of the first convolution; doubled by every stage
    ratios: tuple[int, ...]  # strides in the order in which they come: reversed of the file's
    kernel: int
    last_kernel: int
    residual_kernel: int
    dilation_growth: int
    residual_layers: int  # of every stage
    compress: int
    codebook_width: int  # of a table's rows
    stored_codebooks: int  # in the file, the semantic one too; the first `groups` are used


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """The 12 Hz codec. `groups` codebooks of `codes` entries, a frame every `hop` samples."""

    decoder: CodecDecoderConfig
    encoder: CodecEncoderConfig
    groups: int
    codes: int
    hop: int
    rate: int = SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class SpeakerConfig:
    """The ECAPA-TDNN that turns a reference into a speaker vector; one entry of each a block."""

    width: int  # of the vector: the talker's width
    mels: int
    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    dilations: tuple[int, ...]
    attention: int
    parts: int  # of a Res2Net block
    squeeze: int
    rate: int = SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one head chooses; the released defaults. `repetition_penalty` is the talker's alone."""

    do_sample: bool = True
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.05


@dataclass(frozen=True, slots=True)
class Generation:
    """generation_config.json, or where it says nothing the values hard-coded upstream."""

    talker: Sampling = field(default_factory=Sampling)
    predictor: Sampling = field(default_factory=lambda: Sampling(repetition_penalty=1.0))
    max_new_tokens: int = 2048
    min_new_tokens: int = 2


@dataclass(frozen=True, slots=True)
class Qwen3TtsConfig:
    """Everything but the weights."""

    kind: Kind
    size: str  # "0b6" or "1b7": instructions are dropped where it is 0b6
    talker: Stack
    predictor: Stack
    vocabulary: int  # V of the talker: codes, then special ids
    text_vocabulary: int
    text_width: int
    groups: int  # G, codes a frame
    codes: int  # entries of the predictor's tables and heads
    context: int  # most positions of the talker
    text: TextIds
    codec_ids: CodecIds
    languages: dict[str, int]  # lower case; dialects too
    speakers: dict[str, int]  # lower case; empty but for custom_voice
    dialects: dict[str, str]  # speaker -> key of `languages`, for those who speak one
    codec: CodecConfig
    speaker: SpeakerConfig | None  # of base models
    generation: Generation

    @property
    def spoken(self) -> tuple[str, ...]:
        """What can be asked for, sorted: no dialects, which are reached by a speaker alone."""
        dialects = set(self.dialects.values())
        return tuple(
            name
            for name in sorted(self.languages)
            if name not in dialects and not name.endswith("_dialect")
        )


# -- the model's own files ------------------------------------------------------------------------


def read_config(checkpoint: Checkpoint, codec: Checkpoint) -> Qwen3TtsConfig:
    """What config.json, generation_config.json and the codec's config.json state.

    Raises:
        CheckpointError: one of them is of another model, says what no network can have, or two
            contradict each other.
    """
    stated = _stated(checkpoint)
    stated.require("model_type", (MODEL_TYPE,))
    stated.require("tokenizer_type", (CODEC_TYPE,), f"supported: {CODEC_TYPE}, the codec of 12 Hz")
    kind, size = stated.get("tts_model_type"), stated.get("tts_model_size")
    if kind not in KINDS:
        raise stated.error("tts_model_type", kind, f"supported: {', '.join(KINDS)}")
    if not isinstance(size, str):
        raise stated.error("tts_model_size", size, "0b6 or 1b7 is needed there")
    part = stated.section("talker_config")
    talker, predictor = _stacks(part, len(checkpoint.tensors))
    vocabulary = part.integer("vocab_size", MAX_VOCABULARY)
    text_vocabulary = part.integer("text_vocab_size", MAX_VOCABULARY)
    sound = read_codec_config(codec)
    _check_codes(part, sound, vocabulary)
    languages = _named_ids(part, "codec_language_id", vocabulary)
    custom = kind == "custom_voice"
    return Qwen3TtsConfig(
        kind=cast(Kind, kind),
        size=size,
        talker=talker,
        predictor=predictor,
        vocabulary=vocabulary,
        text_vocabulary=text_vocabulary,
        text_width=part.integer("text_hidden_size", MAX_WIDTH),
        groups=sound.groups,
        codes=sound.codes,
        context=part.integer("max_position_embeddings", MAX_POSITIONS),
        text=_text_ids(stated, text_vocabulary),
        codec_ids=_codec_ids(part, vocabulary),
        languages=languages,
        speakers=_named_ids(part, "spk_id", vocabulary) if custom else {},
        dialects=_dialects(part, languages) if custom else {},
        codec=sound,
        speaker=_speaker(stated, talker.width) if kind == "base" else None,
        generation=read_generation(checkpoint.folder),
    )


def read_generation(folder: Path) -> Generation:
    """generation_config.json; what it does not state, or no such file, is as upstream has it."""
    path = folder / "generation_config.json"
    stated = ConfigReader(path, read_json(path))
    return Generation(
        talker=_sampling(stated, "do_sample", ""),
        predictor=_sampling(stated, "subtalker_dosample", "subtalker_"),
        max_new_tokens=stated.integer("max_new_tokens", MAX_POSITIONS, Generation().max_new_tokens),
    )


def _sampling(stated: ConfigReader, switch: str, prefix: str) -> Sampling:
    usual, top_k = Sampling(), f"{prefix}top_k"
    penalty = 1.0  # the predictor has none
    if not prefix:
        usual_penalty = usual.repetition_penalty
        penalty = stated.number("repetition_penalty", LEAST_FACTOR, MOST_FACTOR, usual_penalty)
    return Sampling(
        do_sample=stated.boolean(switch, usual.do_sample),
        temperature=stated.number(
            f"{prefix}temperature", LEAST_FACTOR, MOST_FACTOR, usual.temperature
        ),
        top_k=0 if stated.get(top_k) == 0 else stated.integer(top_k, MAX_VOCABULARY, usual.top_k),
        top_p=stated.number(f"{prefix}top_p", 0, 1, usual.top_p),
        repetition_penalty=penalty,
    )


def _stacks(part: ConfigReader, most_layers: int) -> tuple[Stack, Stack]:
    predictor = part.section("code_predictor_config")
    for one in (part, predictor):
        one.require("hidden_act", ("silu",))
        for switch in ("attention_bias", "use_sliding_window", "tie_word_embeddings"):
            one.require(switch, (False,))
        one.require("rope_scaling.rope_type", ("default",))
        one.require("rope_scaling.type", ("default",))
    talker = _stack(part, "rms_norm_eps", most_layers)
    return talker, _stack(predictor, "rms_norm_eps", most_layers)


def _check_codes(part: ConfigReader, codec: CodecConfig, vocabulary: int) -> None:
    """The talker, its predictor and the codec must mean the same by a code."""
    for key in ("num_code_groups", "code_predictor_config.num_code_groups"):
        groups = part.integer(key, MAX_GROUPS)
        if groups != codec.groups:
            raise part.error(key, groups, f"its codec has {codec.groups} codebooks")
    key = "code_predictor_config.vocab_size"
    if part.integer(key, MAX_VOCABULARY) != codec.codes:
        raise part.error(key, part.get(key), f"its codec's codebooks have {codec.codes} entries")
    if vocabulary < codec.codes:
        raise part.error("vocab_size", vocabulary, f"its codes alone are {codec.codes}")


def _id(stated: ConfigReader, key: str, below: int) -> int:
    return _checked_id(stated, key, stated.get(key), below)


def _checked_id(stated: ConfigReader, key: str, value: object, below: int) -> int:
    if isinstance(value, list) and len(value) == 1:  # some copies wrap them so
        value = value[0]
    if type(value) is not int or not 0 <= value < below:
        raise stated.error(key, value, f"an id from 0 to {below - 1} is needed there")
    return value


def _text_ids(stated: ConfigReader, below: int) -> TextIds:
    return TextIds(
        im_start=_id(stated, "im_start_token_id", below),
        im_end=_id(stated, "im_end_token_id", below),
        assistant=_id(stated, "assistant_token_id", below),
        pad=_id(stated, "tts_pad_token_id", below),
        bos=_id(stated, "tts_bos_token_id", below),
        eos=_id(stated, "tts_eos_token_id", below),
    )


def _codec_ids(part: ConfigReader, below: int) -> CodecIds:
    return CodecIds(
        pad=_id(part, "codec_pad_id", below),
        bos=_id(part, "codec_bos_id", below),
        eos=_id(part, "codec_eos_token_id", below),
        think=_id(part, "codec_think_id", below),
        nothink=_id(part, "codec_nothink_id", below),
        think_bos=_id(part, "codec_think_bos_id", below),
        think_eos=_id(part, "codec_think_eos_id", below),
    )


def _named_ids(part: ConfigReader, key: str, below: int) -> dict[str, int]:
    if part.get(key) is None:
        return {}
    named = part.section(key)
    found = {
        name.lower(): _checked_id(named, name, value, below) for name, value in named.config.items()
    }
    if len(found) != len(named.config):
        raise part.error(key, ", ".join(named.config), "two names differ in their case only")
    return found


def _dialects(part: ConfigReader, languages: dict[str, int]) -> dict[str, str]:
    """Which speaker speaks which; most speak none, which the file says with false."""
    if part.get("spk_is_dialect") is None:
        return {}
    stated = part.section("spk_is_dialect")
    found: dict[str, str] = {}
    for name, dialect in stated.config.items():
        if dialect is False or dialect is None:
            continue
        if not isinstance(dialect, str) or dialect.lower() not in languages:
            known = f"false or a key of codec_language_id is needed there: {', '.join(languages)}"
            raise stated.error(name, dialect, known)
        found[name.lower()] = dialect.lower()
    return found


def _speaker(stated: ConfigReader, width: int) -> SpeakerConfig:
    part = stated.section("speaker_encoder_config")
    part.require("sample_rate", (SAMPLE_RATE,))
    channels = part.integers("enc_channels", MAX_WIDTH, (512, 512, 512, 512, 1536))
    config = SpeakerConfig(
        width=part.integer("enc_dim", MAX_WIDTH, 1024),
        mels=part.integer("mel_dim", 1 << 12, 128),
        channels=channels,
        kernels=part.integers("enc_kernel_sizes", 64, (5, 3, 3, 3, 1)),
        dilations=part.integers("enc_dilations", 64, (1, 2, 3, 4, 1)),
        attention=part.integer("enc_attention_channels", MAX_WIDTH, 128),
        parts=part.integer("enc_res2net_scale", 64, 8),
        squeeze=part.integer("enc_se_channels", MAX_WIDTH, 128),
    )
    if config.width != width:
        raise part.error("enc_dim", config.width, f"its talker has a width of {width}")
    if not len(channels) == len(config.kernels) == len(config.dilations) >= 3:
        remedy = "as many as enc_kernel_sizes and enc_dilations are needed, 3 or more"
        raise part.error("enc_channels", channels, remedy)
    if channels[-1] != sum(channels[1:-1]) or len(set(channels[:-1])) != 1:
        raise part.error("enc_channels", channels, "equal ones are needed and then their sum")
    if channels[0] % config.parts or config.parts < 2:
        raise part.error("enc_res2net_scale", config.parts, f"it must divide {channels[0]}")
    if (config.kernels[-1], config.dilations[-1]) != (1, 1):
        raise part.error("enc_kernel_sizes", config.kernels, "the last one must be 1")
    return config


def _stated(checkpoint: Checkpoint) -> ConfigReader:
    """The config.json beside the weights. Raises CheckpointError where there is none in it."""
    path = checkpoint.folder / "config.json"
    if not checkpoint.config and path.is_file():
        raise CheckpointError(path, "states nothing of a model", "fetch it again")
    if not checkpoint.config:
        raise CheckpointError(path, "no such file", "put it beside the weights")
    return ConfigReader(path, checkpoint.config)


def _stack(stated: ConfigReader, eps: str, most_layers: int) -> Stack:
    """The transformer that a part of a configuration describes; `eps`: what it calls that.

    `most_layers`: for instance the number of tensors. Names are made for every layer, so a number
    without reason must not come that far.
    """
    width = stated.integer("hidden_size", MAX_WIDTH)
    heads = stated.integer("num_attention_heads", MAX_WIDTH)
    key_heads = stated.integer("num_key_value_heads", MAX_WIDTH, heads)
    head_width = stated.integer("head_dim", MAX_WIDTH, max(1, width // heads))
    if heads % key_heads:
        raise stated.error("num_key_value_heads", key_heads, f"it must divide {heads} heads")
    if head_width % 2:
        raise stated.error("head_dim", head_width, "rotary positions need an even width")
    return Stack(
        layers=stated.integer("num_hidden_layers", max(1, min(MAX_LAYERS, most_layers))),
        width=width,
        inner=stated.integer("intermediate_size", MAX_WIDTH),
        heads=heads,
        key_heads=key_heads,
        head_width=head_width,
        eps=stated.number(eps, 0, 1, 1e-5 if eps == "norm_eps" else 1e-6),
        theta=stated.number("rope_theta", 1, 1e12, 1e4),
    )


# -- the codec's file -----------------------------------------------------------------------------

#: The values that are built, of keys that could have others.
_BUILT: dict[str, tuple[object, ...]] = {
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
    """What the codec's config.json states.

    Raises:
        CheckpointError: it is of another codec, says what no network can have, or contradicts
            itself.
    """
    stated = _stated(checkpoint)
    stated.require("model_type", (CODEC_TYPE,), f"supported: {CODEC_TYPE}, the codec of 12 Hz")
    for key, allowed in _BUILT.items():
        stated.require(key, allowed)
    groups = stated.integer("encoder_valid_num_quantizers", MAX_GROUPS, 16)
    decoder, encoder = stated.section("decoder_config"), stated.section("encoder_config")
    if groups < 2 or decoder.integer("num_quantizers", MAX_GROUPS) != groups:
        key = "encoder_valid_num_quantizers"
        raise stated.error(key, groups, "decoder_config.num_quantizers must be the same, above 1")
    codes = decoder.integer("codebook_size", MAX_VOCABULARY)
    if encoder.integer("codebook_size", MAX_VOCABULARY) != codes:
        size = encoder.get("codebook_size")
        raise encoder.error("codebook_size", size, f"its decoder has {codes} codes")
    most = len(checkpoint.tensors)
    config = CodecConfig(
        decoder=_decoder(decoder, most),
        encoder=_encoder(encoder, most, groups),
        groups=groups,
        codes=codes,
        hop=stated.integer("decode_upsample_rate", 1 << 16),
        rate=SAMPLE_RATE,
    )
    _check_hop(stated, config)
    return config


def _decoder(stated: ConfigReader, most_layers: int) -> CodecDecoderConfig:
    rates = stated.integers("upsample_rates", 64)
    channels, width = (
        stated.integer("decoder_dim", MAX_WIDTH),
        stated.integer("codebook_dim", MAX_WIDTH),
    )
    if channels % (1 << len(rates)):
        raise stated.error("decoder_dim", channels, f"{len(rates)} stages must halve it")
    if width % 2:
        raise stated.error("codebook_dim", width, "it must be even")
    return CodecDecoderConfig(
        stack=_stack(stated, "rms_norm_eps", most_layers),
        window=stated.integer("sliding_window", 1 << 16),
        codebook_width=width,
        latent=stated.integer("latent_dim", MAX_WIDTH),
        channels=channels,
        rates=rates,
        ratios=stated.integers("upsampling_ratios", 64),
    )


def _encoder(stated: ConfigReader, most_layers: int, groups: int) -> CodecEncoderConfig:
    filters, compress = stated.integer("num_filters", MAX_WIDTH), stated.integer("compress", 64, 2)
    if filters < compress:
        raise stated.error("num_filters", filters, f"compress = {compress} leaves none of them")
    width, stored = (
        stated.integer("codebook_dim", MAX_WIDTH),
        stated.integer("num_quantizers", 1 << 10),
    )
    if stated.integer("vector_quantization_hidden_dimension", MAX_WIDTH, width) != width:
        raise stated.error("codebook_dim", width, "vector_quantization_hidden_dimension differs")
    if stored < groups:
        raise stated.error("num_quantizers", stored, f"{groups} of them are used")
    return CodecEncoderConfig(
        stack=_stack(stated, "norm_eps", most_layers),
        filters=filters,
        ratios=stated.integers("upsampling_ratios", 64)[::-1],
        kernel=stated.integer("kernel_size", 64),
        last_kernel=stated.integer("last_kernel_size", 64),
        residual_kernel=stated.integer("residual_kernel_size", 64),
        dilation_growth=stated.integer("dilation_growth_rate", 16),
        residual_layers=stated.integer("num_residual_layers", 8),
        compress=compress,
        codebook_width=width,
        stored_codebooks=stored,
    )


def _check_hop(stated: ConfigReader, config: CodecConfig) -> None:
    """A frame has as many samples everywhere."""
    decoder, encoder = config.decoder, config.encoder
    found = {
        "encode_downsample_rate": stated.integer("encode_downsample_rate", 1 << 16, config.hop),
        "decoder_config.upsample_rates and upsampling_ratios": math.prod(
            decoder.rates + decoder.ratios
        ),
        "encoder_config.upsampling_ratios": math.prod(encoder.ratios) * LAST_STRIDE,
    }
    for key, samples in found.items():
        if samples != config.hop:
            remedy = f"{key} give {samples} samples a frame"
            raise stated.error("decode_upsample_rate", config.hop, remedy)
