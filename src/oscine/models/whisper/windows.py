"""Windows of a recording on the engine: room for a batch of them, and which ones are encoded."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from oscine.audio.windows import Features
from oscine.errors import DeviceMemoryError
from oscine.models.whisper.request import Engine

log = logging.getLogger(__name__)


def reserve(wanted: int | str | None, width: int, engine: Engine) -> int:
    """Make room for a batch of windows with `width` lines each; how many there is room for.

    `wanted` may be "auto". Where the device has not enough for a number, a warning says that the
    batch is smaller. Raises DeviceMemoryError if not even one window fits.
    """
    count = engine.batch_that_fits() if wanted == "auto" else int(wanted or 1)
    while True:
        try:
            engine.reserve(count, count * width)
        except DeviceMemoryError as problem:
            if count == 1:
                raise
            count //= 2
            log.warning("%s; going on with batches of %d", problem, count)
        else:
            return count


def ensure_encoded(
    engine: Engine,
    features: Features,
    windows: Sequence[tuple[int, int]],
    *,
    silence: bool = False,
) -> None:
    """Encode windows of (seek, size) frames, unless they are the ones that the engine holds.

    `silence`: a window that ends before the recording does is followed by silence.
    """
    wanted = (features, silence, tuple(windows))
    if engine.held != wanted:
        engine.held = None
        engine.encode([features.window(seek, size, silence=silence) for seek, size in windows])
        engine.held = wanted
