"""Codec and speaker weights as forwards and kernels take them: widths filled up with zeros.

To multiples of four, which kernels read at a time; layers over many rows become convolutions.
Before the upload; the output is the same. What a norm goes over, or heads are cut from, is left as
it is: zeros would change it. Released sizes only have the encoder's one input channel to fill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from oscine.errors import NonFiniteError
from oscine.models.padding import fill, filled
from oscine.models.qwen3_tts.weights import (
    CodecDecoderWeights,
    CodecEncoderWeights,
    DecoderStage,
    EncoderStage,
    EncoderUnit,
    ResidualUnit,
    SpeakerBlock,
    SpeakerWeights,
)
from oscine.ops import Linear, Snake


def pointwise(linear: Linear) -> Linear:
    """A layer [O, I] as the convolution [O, 1, I] that codec.pointwise takes."""
    return Linear(linear.weight[:, None], linear.bias)


def fill_snake(snake: Snake) -> Snake:
    """Channels of zeros stay zeros."""
    return Snake(filled(snake.scale, 0), filled(snake.gain, 0))


def fit_decoder(w: CodecDecoderWeights, rates: Sequence[int]) -> CodecDecoderWeights:
    """From the first convolution of the waveform on; the one output stays one."""
    stages = tuple(fit_stage(stage, rate) for stage, rate in zip(w.stages, rates, strict=True))
    return replace(
        w,
        first=fill(w.first, inputs=False),
        stages=stages,
        snake=fill_snake(w.snake),
        last=fill(w.last, outputs=False),
    )


def fit_stage(stage: DecoderStage, rate: int) -> DecoderStage:
    """Its upsampling and its units."""
    units = tuple(
        ResidualUnit(
            fill_snake(unit.before),
            fill(unit.first),
            fill_snake(unit.between),
            pointwise(fill(unit.second)),
            unit.dilation,
        )
        for unit in stage.units
    )
    return DecoderStage(fill_snake(stage.snake), fill(stage.up, rate=rate), units)


def check_finite(weights: Any, name: str) -> None:
    """Raise NonFiniteError for weights of which any are no numbers.

    What comes of them need not show it: a codebook's nearest entry is always a code, and kernels
    may take the larger of 0 and NaN for 0.
    """
    if isinstance(weights, np.ndarray):
        if not np.isfinite(weights).all():
            raise NonFiniteError(f"{name} has weights that are not finite: they are damaged")
    elif isinstance(weights, tuple):
        for part in weights:
            check_finite(part, name)
    elif is_dataclass(weights):
        for field in fields(weights):
            check_finite(getattr(weights, field.name), name)


def fit_encoder(w: CodecEncoderWeights) -> CodecEncoderWeights:
    """All convolutions up to the last, whose outputs go through norms."""
    stages = tuple(
        EncoderStage(
            tuple(
                EncoderUnit(fill(u.first), pointwise(fill(u.second)), u.dilation)
                for u in stage.units
            ),
            fill(stage.down),
            stage.stride,
        )
        for stage in w.stages
    )
    return replace(w, first=fill(w.first), stages=stages, last=fill(w.last, outputs=False))


def fit_speaker(w: SpeakerWeights) -> SpeakerWeights:
    """The parts of Res2Net blocks, so that they are read one by one, and the narrow layers."""
    return replace(
        w,
        blocks=tuple(fit_speaker_block(block) for block in w.blocks),
        attention=fill(w.attention, inputs=False),
        scores=fill(w.scores, outputs=False),
    )


def fit_speaker_block(block: SpeakerBlock) -> SpeakerBlock:
    """Every part filled: `first` gives all of them side by side, `second` takes them so."""
    count = len(block.parts) + 1
    first = Linear(filled(block.first.weight, 0, count), block.first.bias)
    if first.bias is not None:
        first = Linear(first.weight, filled(first.bias, 0, count))
    second = Linear(filled(block.second.weight, 1, count), block.second.bias)
    return SpeakerBlock(
        first,
        tuple(fill(part) for part in block.parts),
        second,
        fill(block.squeeze, inputs=False),
        fill(block.excite, outputs=False),
        block.dilation,
    )
