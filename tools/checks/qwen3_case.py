"""What the checks of Qwen3-TTS are given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oscine.models.qwen3_tts.codec_weights import CodecDecoderWeights, CodecEncoderWeights
from oscine.models.qwen3_tts.config import CodecConfig
from oscine.models.qwen3_tts.weights import Qwen3TtsWeights
from oscine.text.qwen import QwenTokenizer


@dataclass(frozen=True)
class Case:
    """A folder, meta.json, expected.npz, and what of a checkpoint this case has."""

    folder: Path
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]
    weights: Qwen3TtsWeights | None = None  # of a whole model
    tokenizer: QwenTokenizer | None = None
    codec: tuple[CodecConfig, CodecDecoderWeights, CodecEncoderWeights] | None = None  # alone
