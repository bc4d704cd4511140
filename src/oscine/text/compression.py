"""How much a text repeats itself. Source: openai whisper/utils.py (compression_ratio)."""

from __future__ import annotations

import zlib


def compression_ratio(text: str) -> float:
    """UTF-8 bytes over their zlib size: high where text repeats itself."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))
