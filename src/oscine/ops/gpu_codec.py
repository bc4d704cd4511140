"""The ops of codecs, on the GPU. Shapes and meaning: oscine.ops.codec_ops."""

from __future__ import annotations

from oscine.ops.gpu_recorder import Recorder


class GpuCodec(Recorder):
    """Recording; shapes and meaning: oscine.ops.Ops."""
