"""A Qwen3-TTS's sizes from its configuration files, each checked before anything is made of it.

Keys and defaults: qwen_tts/core/models/configuration_qwen3_tts.py. What would change the network
and is not built is refused by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

from oscine.model_files import read_json
from oscine.models.qwen3_tts.codec_sizes import (
    CODEC_TYPE,
    GROUPS,
    RATE,
    VOCABULARY,
    WIDTH,
    configuration,
    read_codec_config,
    stack,
)
from oscine.models.qwen3_tts.config import (
    LEAST_FACTOR,
    MOST_FACTOR,
    CodecConfig,
    CodecIds,
    Generation,
    Kind,
    Qwen3TtsConfig,
    Sampling,
    SpeakerConfig,
    Stack,
    TextIds,
)
from oscine.models.stated import Stated
from oscine.weights import Checkpoint

MODEL_TYPE = "qwen3_tts"
KINDS: Final = ("base", "custom_voice", "voice_design")
POSITIONS = 1 << 22


def read_config(checkpoint: Checkpoint, codec: Checkpoint) -> Qwen3TtsConfig:
    """What config.json, generation_config.json and the codec's config.json state.

    Raises:
        CheckpointError: one of them is of another model, says what no network can have, or two
            contradict each other.
    """
    stated = configuration(checkpoint)
    stated.only("model_type", (MODEL_TYPE,))
    stated.only("tokenizer_type", (CODEC_TYPE,), f"supported: {CODEC_TYPE}, the codec of 12 Hz")
    kind, size = stated.get("tts_model_type"), stated.get("tts_model_size")
    if kind not in KINDS:
        raise stated.wrong("tts_model_type", kind, f"supported: {', '.join(KINDS)}")
    if not isinstance(size, str):
        raise stated.wrong("tts_model_size", size, "0b6 or 1b7 is needed there")
    part = stated.part("talker_config")
    talker, predictor = _stacks(part, len(checkpoint.tensors))
    vocabulary = part.size("vocab_size", VOCABULARY)
    text_vocabulary = part.size("text_vocab_size", VOCABULARY)
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
        text_width=part.size("text_hidden_size", WIDTH),
        groups=sound.groups,
        codes=sound.codes,
        context=part.size("max_position_embeddings", POSITIONS),
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
    stated = Stated(path, read_json(path))
    return Generation(
        talker=_sampling(stated, "do_sample", ""),
        predictor=_sampling(stated, "subtalker_dosample", "subtalker_"),
        max_new_tokens=stated.size("max_new_tokens", POSITIONS, Generation().max_new_tokens),
    )


def _sampling(stated: Stated, switch: str, prefix: str) -> Sampling:
    usual, top_k = Sampling(), f"{prefix}top_k"
    penalty = 1.0  # the predictor has none
    if not prefix:
        usual_penalty = usual.repetition_penalty
        penalty = stated.number("repetition_penalty", LEAST_FACTOR, MOST_FACTOR, usual_penalty)
    return Sampling(
        do_sample=stated.flag(switch, usual.do_sample),
        temperature=stated.number(
            f"{prefix}temperature", LEAST_FACTOR, MOST_FACTOR, usual.temperature
        ),
        top_k=0 if stated.get(top_k) == 0 else stated.size(top_k, VOCABULARY, usual.top_k),
        top_p=stated.number(f"{prefix}top_p", 0, 1, usual.top_p),
        repetition_penalty=penalty,
    )


def _stacks(part: Stated, most_layers: int) -> tuple[Stack, Stack]:
    predictor = part.part("code_predictor_config")
    for one in (part, predictor):
        one.only("hidden_act", ("silu",))
        for switch in ("attention_bias", "use_sliding_window", "tie_word_embeddings"):
            one.only(switch, (False,))
        one.only("rope_scaling.rope_type", ("default",))
        one.only("rope_scaling.type", ("default",))
    talker = stack(part, "rms_norm_eps", most_layers)
    return talker, stack(predictor, "rms_norm_eps", most_layers)


def _check_codes(part: Stated, codec: CodecConfig, vocabulary: int) -> None:
    """The talker, its predictor and the codec must mean the same by a code."""
    for key in ("num_code_groups", "code_predictor_config.num_code_groups"):
        groups = part.size(key, GROUPS)
        if groups != codec.groups:
            raise part.wrong(key, groups, f"its codec has {codec.groups} codebooks")
    key = "code_predictor_config.vocab_size"
    if part.size(key, VOCABULARY) != codec.codes:
        raise part.wrong(key, part.get(key), f"its codec's codebooks have {codec.codes} entries")
    if vocabulary < codec.codes:
        raise part.wrong("vocab_size", vocabulary, f"its codes alone are {codec.codes}")


def _id(stated: Stated, key: str, below: int) -> int:
    return _checked_id(stated, key, stated.get(key), below)


def _checked_id(stated: Stated, key: str, value: object, below: int) -> int:
    if isinstance(value, list) and len(value) == 1:  # some copies wrap them so
        value = value[0]
    if type(value) is not int or not 0 <= value < below:
        raise stated.wrong(key, value, f"an id from 0 to {below - 1} is needed there")
    return value


def _text_ids(stated: Stated, below: int) -> TextIds:
    return TextIds(
        im_start=_id(stated, "im_start_token_id", below),
        im_end=_id(stated, "im_end_token_id", below),
        assistant=_id(stated, "assistant_token_id", below),
        pad=_id(stated, "tts_pad_token_id", below),
        bos=_id(stated, "tts_bos_token_id", below),
        eos=_id(stated, "tts_eos_token_id", below),
    )


def _codec_ids(part: Stated, below: int) -> CodecIds:
    return CodecIds(
        pad=_id(part, "codec_pad_id", below),
        bos=_id(part, "codec_bos_id", below),
        eos=_id(part, "codec_eos_token_id", below),
        think=_id(part, "codec_think_id", below),
        nothink=_id(part, "codec_nothink_id", below),
        think_bos=_id(part, "codec_think_bos_id", below),
        think_eos=_id(part, "codec_think_eos_id", below),
    )


def _named_ids(part: Stated, key: str, below: int) -> dict[str, int]:
    if part.get(key) is None:
        return {}
    named = part.part(key)
    found = {
        name.lower(): _checked_id(named, name, value, below) for name, value in named.config.items()
    }
    if len(found) != len(named.config):
        raise part.wrong(key, ", ".join(named.config), "two names differ in their case only")
    return found


def _dialects(part: Stated, languages: dict[str, int]) -> dict[str, str]:
    """Which speaker speaks which; most speak none, which the file says with false."""
    if part.get("spk_is_dialect") is None:
        return {}
    stated = part.part("spk_is_dialect")
    found: dict[str, str] = {}
    for name, dialect in stated.config.items():
        if dialect is False or dialect is None:
            continue
        if not isinstance(dialect, str) or dialect.lower() not in languages:
            known = f"false or a key of codec_language_id is needed there: {', '.join(languages)}"
            raise stated.wrong(name, dialect, known)
        found[name.lower()] = dialect.lower()
    return found


def _speaker(stated: Stated, width: int) -> SpeakerConfig:
    part = stated.part("speaker_encoder_config")
    part.only("sample_rate", (RATE,))
    channels = part.sizes("enc_channels", WIDTH, (512, 512, 512, 512, 1536))
    config = SpeakerConfig(
        width=part.size("enc_dim", WIDTH, 1024),
        mels=part.size("mel_dim", 1 << 12, 128),
        channels=channels,
        kernels=part.sizes("enc_kernel_sizes", 64, (5, 3, 3, 3, 1)),
        dilations=part.sizes("enc_dilations", 64, (1, 2, 3, 4, 1)),
        attention=part.size("enc_attention_channels", WIDTH, 128),
        parts=part.size("enc_res2net_scale", 64, 8),
        squeeze=part.size("enc_se_channels", WIDTH, 128),
    )
    if config.width != width:
        raise part.wrong("enc_dim", config.width, f"its talker has a width of {width}")
    if not len(channels) == len(config.kernels) == len(config.dilations) >= 3:
        remedy = "as many as enc_kernel_sizes and enc_dilations are needed, 3 or more"
        raise part.wrong("enc_channels", channels, remedy)
    if channels[-1] != sum(channels[1:-1]) or len(set(channels[:-1])) != 1:
        raise part.wrong("enc_channels", channels, "equal ones are needed and then their sum")
    if channels[0] % config.parts or config.parts < 2:
        raise part.wrong("enc_res2net_scale", config.parts, f"it must divide {channels[0]}")
    if (config.kernels[-1], config.dilations[-1]) != (1, 1):
        raise part.wrong("enc_kernel_sizes", config.kernels, "the last one must be 1")
    return config
