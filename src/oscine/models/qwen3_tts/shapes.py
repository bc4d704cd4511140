"""Which tensors a Qwen3-TTS of given sizes has, and their shapes: of the talker's file and of the
codec's."""

from __future__ import annotations

from collections.abc import Iterator

from oscine.models.qwen3_tts.codec_sizes import LAST_STRIDE
from oscine.models.qwen3_tts.config import (
    CodecConfig,
    CodecDecoderConfig,
    CodecEncoderConfig,
    Qwen3TtsConfig,
    SpeakerConfig,
    Stack,
)

Shapes = dict[str, tuple[int, ...]]

TALKER, PREDICTOR, SPEAKER = "talker.model", "talker.code_predictor", "speaker_encoder"
FIRST_CODES = "decoder.quantizer.rvq_first"
REST_CODES = "decoder.quantizer.rvq_rest"
SEMANTIC = "encoder.quantizer.semantic_residual_vector_quantizer"
ACOUSTIC = "encoder.quantizer.acoustic_residual_vector_quantizer"
DILATIONS = (1, 3, 9)  # of the residual units of a stage of the decoder


def talker_shapes(config: Qwen3TtsConfig) -> Shapes:
    """Names and shapes of all tensors of model.safetensors."""
    width, narrow = config.talker.width, config.predictor.width
    shapes: Shapes = {
        f"{TALKER}.text_embedding.weight": (config.text_vocabulary, config.text_width),
        f"{TALKER}.codec_embedding.weight": (config.vocabulary, width),
        "talker.codec_head.weight": (config.vocabulary, width),
    }
    fc = "talker.text_projection.linear_fc"
    shapes |= _linear(f"{fc}1", config.text_width, config.text_width)
    shapes |= _linear(f"{fc}2", width, config.text_width)
    shapes |= _stack(TALKER, config.talker, head_norms=True)
    shapes |= _stack(f"{PREDICTOR}.model", config.predictor, head_norms=True)
    for group in range(config.groups - 1):
        shapes[f"{PREDICTOR}.model.codec_embedding.{group}.weight"] = (config.codes, width)
        shapes[f"{PREDICTOR}.lm_head.{group}.weight"] = (config.codes, narrow)
    if width != narrow:
        shapes |= _linear(f"{PREDICTOR}.small_to_mtp_projection", narrow, width)
    if config.speaker is not None:
        shapes |= _speaker(config.speaker)
    return shapes


def codec_shapes(config: CodecConfig) -> Shapes:
    """Names and shapes of the tensors of the codec's file that are used."""
    return _codec_decoder(config, config.decoder) | _codec_encoder(config, config.encoder)


def unused_codec_shapes(config: CodecConfig) -> Shapes:
    """What the codec's file has besides, of training or of codebooks beyond the used ones."""
    decoder, encoder = config.decoder, config.encoder
    half, wide, d = decoder.codebook_width // 2, decoder.codebook_width, encoder.codebook_width
    shapes: Shapes = {}
    for at in (FIRST_CODES, REST_CODES):
        shapes |= _linear(f"{at}.input_proj", half, wide, 1, bias=False)
    for at, count in ((SEMANTIC, 1), (ACOUSTIC, encoder.stored_codebooks - 1)):
        shapes |= _linear(f"{at}.output_proj", encoder.stack.width, d, 1, bias=False)
        for index in range(count):
            book = f"{at}.layers.{index}.codebook"
            shapes[f"{book}.initialized"] = (1,)
            if at == ACOUSTIC and index >= config.groups - 1:
                shapes |= _codebook(book, "embed_sum", config.codes, d)
    return shapes


def encoder_layers(config: CodecEncoderConfig) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Of every stage of the encoder: the indices of its residual units in upstream's list, that of
    the convolution that ends it, and its stride. ELUs have places in that list too."""
    index = 1
    for stride in config.ratios:
        units = tuple(range(index, index + config.residual_layers))
        index = units[-1] + 3
        yield units, index - 1, stride


def last_layer(config: CodecEncoderConfig) -> int:
    """The index of the encoder's last convolution in upstream's list."""
    return 2 + len(config.ratios) * (config.residual_layers + 2)


def _linear(name: str, *weight: int, bias: bool = True) -> Shapes:
    return {f"{name}.weight": weight} | ({f"{name}.bias": weight[:1]} if bias else {})


def _stack(at: str, stack: Stack, *, head_norms: bool) -> Shapes:
    """A transformer; where heads have no norms, branches have scales."""
    d, q, k = stack.width, stack.query_width, stack.key_width
    shapes: Shapes = {f"{at}.norm.weight": (d,)}
    for layer in range(stack.layers):
        block = f"{at}.layers.{layer}"
        for name, out, inputs in (
            *(("self_attn.q_proj", q, d), ("self_attn.k_proj", k, d), ("self_attn.v_proj", k, d)),
            *(("self_attn.o_proj", d, q), ("mlp.gate_proj", stack.inner, d)),
            *(("mlp.up_proj", stack.inner, d), ("mlp.down_proj", d, stack.inner)),
        ):
            shapes |= _linear(f"{block}.{name}", out, inputs, bias=False)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{block}.{norm}.weight"] = (d,)
        if head_norms:
            for norm in ("q_norm", "k_norm"):
                shapes[f"{block}.self_attn.{norm}.weight"] = (stack.head_width,)
        else:
            shapes |= _scales(block, d)
    return shapes


def _scales(block: str, d: int) -> Shapes:
    return {f"{block}.{name}_layer_scale.scale": (d,) for name in ("self_attn", "mlp")}


def _speaker(config: SpeakerConfig) -> Shapes:
    channels, kernels = config.channels, config.kernels
    part, mixed = channels[0] // config.parts, channels[-1]
    shapes = _linear(f"{SPEAKER}.blocks.0.conv", channels[0], config.mels, kernels[0])
    for index in range(1, len(channels) - 1):
        block, width = f"{SPEAKER}.blocks.{index}", channels[index]
        for name in ("tdnn1", "tdnn2"):
            shapes |= _linear(f"{block}.{name}.conv", width, width, 1)
        for number in range(config.parts - 1):
            name = f"{block}.res2net_block.blocks.{number}.conv"
            shapes |= _linear(name, part, part, kernels[index])
        shapes |= _linear(f"{block}.se_block.conv1", config.squeeze, width, 1)
        shapes |= _linear(f"{block}.se_block.conv2", width, config.squeeze, 1)
    shapes |= _linear(f"{SPEAKER}.mfa.conv", mixed, mixed, 1)
    shapes |= _linear(f"{SPEAKER}.asp.tdnn.conv", config.attention, 3 * mixed, 1)
    shapes |= _linear(f"{SPEAKER}.asp.conv", mixed, config.attention, 1)
    return shapes | _linear(f"{SPEAKER}.fc", config.width, 2 * mixed, 1)


def _codebook(at: str, name: str, codes: int, width: int) -> Shapes:
    return {f"{at}.{name}": (codes, width), f"{at}.cluster_usage": (codes,)}


def _codec_decoder(config: CodecConfig, decoder: CodecDecoderConfig) -> Shapes:
    half, wide, latent = decoder.codebook_width // 2, decoder.codebook_width, decoder.latent
    shapes: Shapes = {}
    for at, count in ((FIRST_CODES, 1), (REST_CODES, config.groups - 1)):
        shapes |= _linear(f"{at}.output_proj", wide, half, 1, bias=False)
        for index in range(count):
            book = f"{at}.vq.layers.{index}._codebook"
            shapes |= _codebook(book, "embedding_sum", config.codes, half)
    shapes |= _linear("decoder.pre_conv.conv", latent, wide, 3)
    at, d = "decoder.pre_transformer", decoder.stack.width
    shapes |= _linear(f"{at}.input_proj", d, latent) | _linear(f"{at}.output_proj", latent, d)
    shapes |= _stack(at, decoder.stack, head_norms=False)
    for index, ratio in enumerate(decoder.ratios):
        at = f"decoder.upsample.{index}"
        shapes |= {f"{at}.0.conv.weight": (latent, latent, ratio), f"{at}.0.conv.bias": (latent,)}
        shapes |= _linear(f"{at}.1.dwconv.conv", latent, 1, 7)
        shapes |= _linear(f"{at}.1.norm", latent) | {f"{at}.1.gamma": (latent,)}
        shapes |= _linear(f"{at}.1.pwconv1", 4 * latent, latent)
        shapes |= _linear(f"{at}.1.pwconv2", latent, 4 * latent)
    shapes |= _linear("decoder.decoder.0.conv", decoder.channels, latent, 7)
    channels = decoder.channels
    for stage, rate in enumerate(decoder.rates, 1):
        shapes |= _stage(f"decoder.decoder.{stage}.block", channels, rate)
        channels //= 2
    last = len(decoder.rates) + 1
    shapes |= _snake(f"decoder.decoder.{last}", channels)
    return shapes | _linear(f"decoder.decoder.{last + 1}.conv", 1, channels, 7)


def _stage(at: str, channels: int, rate: int) -> Shapes:
    half = channels // 2
    shapes = _snake(f"{at}.0", channels)
    shapes |= {f"{at}.1.conv.weight": (channels, half, 2 * rate), f"{at}.1.conv.bias": (half,)}
    for unit in range(2, 2 + len(DILATIONS)):
        for snake in ("act1", "act2"):
            shapes |= _snake(f"{at}.{unit}.{snake}", half)
        shapes |= _linear(f"{at}.{unit}.conv1.conv", half, half, 7)
        shapes |= _linear(f"{at}.{unit}.conv2.conv", half, half, 1)
    return shapes


def _snake(at: str, channels: int) -> Shapes:
    return {f"{at}.alpha": (channels,), f"{at}.beta": (channels,)}


def _codec_encoder(config: CodecConfig, encoder: CodecEncoderConfig) -> Shapes:
    at, channels = "encoder.encoder.layers", encoder.filters
    shapes = _linear(f"{at}.0.conv", channels, 1, encoder.kernel)
    for units, down, stride in encoder_layers(encoder):
        squeezed = channels // encoder.compress
        for unit in units:
            first = f"{at}.{unit}.block.1.conv"
            shapes |= _linear(first, squeezed, channels, encoder.residual_kernel)
            shapes |= _linear(f"{at}.{unit}.block.3.conv", channels, squeezed, 1)
        shapes |= _linear(f"{at}.{down}.conv", 2 * channels, channels, 2 * stride)
        channels *= 2
    d = encoder.stack.width
    shapes |= _linear(f"{at}.{last_layer(encoder)}.conv", d, channels, encoder.last_kernel)
    shapes |= _encoder_stack(encoder.stack)
    shapes |= _linear("encoder.downsample.conv", d, d, 2 * LAST_STRIDE, bias=False)
    for at, count in ((SEMANTIC, 1), (ACOUSTIC, config.groups - 1)):
        shapes |= _linear(f"{at}.input_proj", encoder.codebook_width, d, 1, bias=False)
        for index in range(count):
            book = f"{at}.layers.{index}.codebook"
            shapes |= _codebook(book, "embed_sum", config.codes, encoder.codebook_width)
    return shapes


def _encoder_stack(stack: Stack) -> Shapes:
    d, q, k = stack.width, stack.query_width, stack.key_width
    shapes: Shapes = {}
    for layer in range(stack.layers):
        block = f"encoder.encoder_transformer.layers.{layer}"
        for name, out, inputs in (
            *(("self_attn.q_proj", q, d), ("self_attn.k_proj", k, d), ("self_attn.v_proj", k, d)),
            *(("self_attn.o_proj", d, q), ("mlp.fc1", stack.inner, d), ("mlp.fc2", d, stack.inner)),
        ):
            shapes |= _linear(f"{block}.{name}", out, inputs, bias=False)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes |= _linear(f"{block}.{norm}", d)
        shapes |= _scales(block, d)
    return shapes
