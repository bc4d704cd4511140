"""What the ops that speak mean, in NumPy. Shapes and meaning: oscine.ops.speech_ops."""

from __future__ import annotations


class Speaking:
    """Shapes and meaning: oscine.ops.Ops."""
