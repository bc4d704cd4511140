"""The compression ratio of a text. Source: openai whisper/utils.py (compression_ratio)."""

from __future__ import annotations

import zlib


def compression_ratio(text: str) -> float:
    """UTF-8 bytes divided by their zlib size; it is high for repetitive text."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))
