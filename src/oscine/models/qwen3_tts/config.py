"""Sizes and ids of a Qwen3-TTS: talker, code predictor, codec and speaker encoder.

Names in config.json and the released values: MODELS/qwen3_tts.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["base", "custom_voice", "voice_design"]
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
    rate: int = 24000


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
    rate: int = 24000


#: Above and up to what temperatures and repetition penalties are taken, asked for or stated by a
#: checkpoint: beyond, scores overflow float32 or are all alike.
LEAST_FACTOR, MOST_FACTOR = 1e-3, 1e3


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
