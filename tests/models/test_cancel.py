"""Every model accepts the same `cancel` arguments, and refuses others at the call."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.errors import UsageError
from oscine.models.cancel import as_should_stop

GOLDENS = Path(__file__).resolve().parent.parent / "goldens"
SOUND = np.zeros(16_000, np.float32)
LISTENERS = ("whisper_multi", "parakeet_tdt")
CALLS = [
    *((folder, call, SOUND) for folder in LISTENERS for call in ("transcribe", "stream")),
    *((folder, "listen", [SOUND]) for folder in LISTENERS),
    *(("qwen3_tts/custom_voice/ckpt", call, "Hello.") for call in ("speak", "stream")),
]


@pytest.mark.parametrize(("folder", "call", "given"), CALLS)
@pytest.mark.parametrize("cancel", [3, "no", True])
def test_what_cannot_be_asked(folder: str, call: str, given: Any, cancel: Any) -> None:
    model = oscine.load(GOLDENS / folder, "cpu")
    with pytest.raises(UsageError, match=r"cancel must be a threading.Event, or a function .* not"):
        getattr(model, call)(given, cancel=cancel)


def test_what_can_be_asked() -> None:
    event = Event()
    for cancel in (event, event.is_set):
        asked = as_should_stop(cancel)
        assert asked is not None and not asked()
    event.set()
    assert asked is not None and asked()
    assert as_should_stop(None) is None
