"""What the ops of codecs mean, in NumPy. Shapes and meaning: oscine.ops.codec_ops."""

from __future__ import annotations


class Coding:
    """Shapes and meaning: oscine.ops.Ops."""
