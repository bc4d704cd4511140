"""The codec's sizes from its own config.json, each checked before anything is made of it.

Keys: qwen_tts/core/tokenizer_12hz/configuration_qwen3_tts_tokenizer_v2.py and transformers
models/mimi/configuration_mimi.py. Some state what no tensor has, and are not looked at:
semantic_codebook_size, the decoder's vector_quantization_hidden_dimension,
layer_scale_initial_scale, the encoder's sliding_window.
"""

from __future__ import annotations

import math

from oscine.errors import CheckpointError
from oscine.models.qwen3_tts.config import (
    CodecConfig,
    CodecDecoderConfig,
    CodecEncoderConfig,
    Stack,
)
from oscine.models.stated import Stated
from oscine.weights import Checkpoint

CODEC_TYPE, RATE = "qwen3_tts_tokenizer_12hz", 24000
#: Of the convolution that ends the encoder, from Mimi's 25 frames a second to 12.5.
LAST_STRIDE = 2

#: No released size comes near these.
WIDTH, VOCABULARY, LAYERS, GROUPS = 1 << 16, 1 << 22, 1 << 10, 1 << 7

_BUILT: dict[str, tuple[object, ...]] = {
    "encoder_config.hidden_act": ("gelu",),
    "encoder_config.attention_bias": (False,),
    "encoder_config.audio_channels": (1,),
    "encoder_config.num_semantic_quantizers": (1,),
    "encoder_config.pad_mode": ("constant",),
    "encoder_config.use_causal_conv": (True,),
    "encoder_config.use_conv_shortcut": (False,),
    "encoder_config.sampling_rate": (RATE,),
    "decoder_config.hidden_act": ("silu",),
    "decoder_config.attention_bias": (False,),
    "decoder_config.num_semantic_quantizers": (1,),
    "input_sample_rate": (RATE,),
    "output_sample_rate": (RATE,),
}


def configuration(checkpoint: Checkpoint) -> Stated:
    """The config.json beside the weights. Raises CheckpointError where there is none in it."""
    path = checkpoint.folder / "config.json"
    if not checkpoint.config and path.is_file():
        raise CheckpointError(path, "states nothing of a model", "fetch it again")
    if not checkpoint.config:
        raise CheckpointError(path, "no such file", "put it beside the weights")
    return Stated(path, checkpoint.config)


def read_codec_config(checkpoint: Checkpoint) -> CodecConfig:
    """What the codec's config.json states.

    Raises:
        CheckpointError: it is of another codec, says what no network can have, or contradicts
            itself.
    """
    stated = configuration(checkpoint)
    stated.only("model_type", (CODEC_TYPE,), f"supported: {CODEC_TYPE}, the codec of 12 Hz")
    for key, allowed in _BUILT.items():
        stated.only(key, allowed)
    groups = stated.size("encoder_valid_num_quantizers", GROUPS, 16)
    decoder, encoder = stated.part("decoder_config"), stated.part("encoder_config")
    if groups < 2 or decoder.size("num_quantizers", GROUPS) != groups:
        key = "encoder_valid_num_quantizers"
        raise stated.wrong(key, groups, "decoder_config.num_quantizers must be the same, above 1")
    codes = decoder.size("codebook_size", VOCABULARY)
    if encoder.size("codebook_size", VOCABULARY) != codes:
        size = encoder.get("codebook_size")
        raise encoder.wrong("codebook_size", size, f"its decoder has {codes} codes")
    most = len(checkpoint.tensors)
    config = CodecConfig(
        decoder=_decoder(decoder, most),
        encoder=_encoder(encoder, most, groups),
        groups=groups,
        codes=codes,
        hop=stated.size("decode_upsample_rate", 1 << 16),
        rate=RATE,
    )
    _check_hop(stated, config)
    return config


def stack(stated: Stated, eps: str, most_layers: int) -> Stack:
    """The transformer that a part of a configuration describes; `eps`: what it calls that.

    `most_layers`: for instance the number of tensors. Names are made for every layer, so a number
    without reason must not come that far.
    """
    width, heads = stated.size("hidden_size", WIDTH), stated.size("num_attention_heads", WIDTH)
    key_heads = stated.size("num_key_value_heads", WIDTH, heads)
    head_width = stated.size("head_dim", WIDTH, max(1, width // heads))
    if heads % key_heads:
        raise stated.wrong("num_key_value_heads", key_heads, f"it must divide {heads} heads")
    if head_width % 2:
        raise stated.wrong("head_dim", head_width, "rotary positions need an even width")
    return Stack(
        layers=stated.size("num_hidden_layers", max(1, min(LAYERS, most_layers))),
        width=width,
        inner=stated.size("intermediate_size", WIDTH),
        heads=heads,
        key_heads=key_heads,
        head_width=head_width,
        eps=stated.number(eps, 0, 1, 1e-5 if eps == "norm_eps" else 1e-6),
        theta=stated.number("rope_theta", 1, 1e12, 1e4),
    )


def _decoder(stated: Stated, most_layers: int) -> CodecDecoderConfig:
    rates = stated.sizes("upsample_rates", 64)
    channels, width = stated.size("decoder_dim", WIDTH), stated.size("codebook_dim", WIDTH)
    if channels % (1 << len(rates)):
        raise stated.wrong("decoder_dim", channels, f"{len(rates)} stages must halve it")
    if width % 2:
        raise stated.wrong("codebook_dim", width, "it must be even")
    return CodecDecoderConfig(
        stack=stack(stated, "rms_norm_eps", most_layers),
        window=stated.size("sliding_window", 1 << 16),
        codebook_width=width,
        latent=stated.size("latent_dim", WIDTH),
        channels=channels,
        rates=rates,
        ratios=stated.sizes("upsampling_ratios", 64),
    )


def _encoder(stated: Stated, most_layers: int, groups: int) -> CodecEncoderConfig:
    filters, compress = stated.size("num_filters", WIDTH), stated.size("compress", 64, 2)
    if filters < compress:
        raise stated.wrong("num_filters", filters, f"compress = {compress} leaves none of them")
    width, stored = stated.size("codebook_dim", WIDTH), stated.size("num_quantizers", 1 << 10)
    if stated.size("vector_quantization_hidden_dimension", WIDTH, width) != width:
        raise stated.wrong("codebook_dim", width, "vector_quantization_hidden_dimension differs")
    if stored < groups:
        raise stated.wrong("num_quantizers", stored, f"{groups} of them are used")
    return CodecEncoderConfig(
        stack=stack(stated, "norm_eps", most_layers),
        filters=filters,
        ratios=stated.sizes("upsampling_ratios", 64)[::-1],
        kernel=stated.size("kernel_size", 64),
        last_kernel=stated.size("last_kernel_size", 64),
        residual_kernel=stated.size("residual_kernel_size", 64),
        dilation_growth=stated.size("dilation_growth_rate", 16),
        residual_layers=stated.size("num_residual_layers", 8),
        compress=compress,
        codebook_width=width,
        stored_codebooks=stored,
    )


def _check_hop(stated: Stated, config: CodecConfig) -> None:
    """A frame has as many samples everywhere."""
    decoder, encoder = config.decoder, config.encoder
    found = {
        "encode_downsample_rate": stated.size("encode_downsample_rate", 1 << 16, config.hop),
        "decoder_config.upsample_rates and upsampling_ratios": math.prod(
            decoder.rates + decoder.ratios
        ),
        "encoder_config.upsampling_ratios": math.prod(encoder.ratios) * LAST_STRIDE,
    }
    for key, samples in found.items():
        if samples != config.hop:
            remedy = f"{key} give {samples} samples a frame"
            raise stated.wrong("decode_upsample_rate", config.hop, remedy)
