"""The comment in a sound file's metadata, read back by FFmpeg."""

from __future__ import annotations

from pathlib import Path

import av


def comment_of(file: str | Path) -> str:
    """Of the container, or where that keeps it with its stream of that; empty without."""
    with av.open(str(file)) as container:
        tags = {**container.streams.audio[0].metadata, **container.metadata}
    return str({name.lower(): value for name, value in tags.items()}.get("comment", ""))
