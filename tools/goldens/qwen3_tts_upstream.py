"""The official Qwen3-TTS classes, imported without what only the 25 Hz codec needs.

Needs transformers==4.57.3 and qwen-tts==0.1.1 (without its dependencies is enough), torch, librosa,
soundfile, einops, accelerate. Every run is on one thread in float32.
"""

# ruff: noqa: E402 - what is missing must be stood in for before qwen_tts is imported

from __future__ import annotations

import importlib.machinery
import os
import sys
import types

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import librosa
import numpy as np
import torch
import transformers

# After the real ones: both look for packages.
for _name in (
    *("sox", "onnxruntime", "torchaudio", "torchaudio.compliance"),
    "torchaudio.compliance.kaldi",
):
    try:
        __import__(_name)
    except Exception:
        _module = types.ModuleType(_name)
        _module.__spec__ = importlib.machinery.ModuleSpec(_name, None)
        _module.__path__ = []
        sys.modules[_name] = _module
        _parent, _, _child = _name.rpartition(".")
        if _parent:
            setattr(sys.modules[_parent], _child, _module)

from qwen_tts import Qwen3TTSModel, Qwen3TTSTokenizer
from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig
from qwen_tts.core.models.modeling_qwen3_tts import (
    Qwen3TTSForConditionalGeneration,
    mel_spectrogram,
)
from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import (
    Qwen3TTSTokenizerV2Config,
)
from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Model

VERSIONS = {
    "torch": torch.__version__,
    "transformers": transformers.__version__,
    "numpy": np.__version__,
    "librosa": librosa.__version__,
    "qwen_tts": "0.1.1",
}

__all__ = [
    "VERSIONS",
    "Qwen3TTSConfig",
    "Qwen3TTSForConditionalGeneration",
    "Qwen3TTSModel",
    "Qwen3TTSTokenizer",
    "Qwen3TTSTokenizerV2Config",
    "Qwen3TTSTokenizerV2Model",
    "array",
    "librosa",
    "mel_spectrogram",
]


def array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as float32."""
    return np.ascontiguousarray(tensor.detach().float().numpy())
