"""Imports PyAV, and FFmpeg with it, on first use: arrays at 16 kHz need neither."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oscine.errors import needed


class _AtFirstUse:
    """Stands in for the module `av` until an attribute is used."""

    def __getattr__(self, name: str) -> Any:
        with needed("av", "audio of another type or rate", "give samples at 16 kHz as an array"):
            value = getattr(import_module("av"), name)
        self.__dict__[name] = value  # next time it is found without this function
        return value


if TYPE_CHECKING:
    import av as av
else:
    av = _AtFirstUse()
