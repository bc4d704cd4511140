"""Speaker weights as its forward and kernels take them: widths filled up with zeros.

To multiples of four, which kernels read at a time. Before the upload; the output is the same.
"""

from __future__ import annotations

from dataclasses import replace

from oscine.models.padding import fill, filled
from oscine.models.qwen3_tts.weights import SpeakerBlock, SpeakerWeights
from oscine.ops import Linear


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
