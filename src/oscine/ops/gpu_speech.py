"""The ops that speak, on the GPU. Shapes and meaning: oscine.ops.speech_ops."""

from __future__ import annotations

from oscine.ops.gpu_recorder import Recorder


class GpuSpeech(Recorder):
    """Recording; shapes and meaning: oscine.ops.Ops."""
