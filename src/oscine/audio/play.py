"""Plays mono samples while they are produced, through PortAudio (sounddevice)."""

from __future__ import annotations

import logging
from queue import SimpleQueue
from threading import Event, Thread
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.errors import AudioError, UsageError

log = logging.getLogger(__name__)

POLL_S = 0.2  # between checks for Ctrl-C
BLOCK_SAMPLES = 2_400  # samples per write to the device; `abandon` waits for one at most


def load_player() -> ModuleType:
    """Import sounddevice. Raises UsageError if it is missing, AudioError without PortAudio."""
    try:
        import sounddevice
    except ImportError:
        raise UsageError("--play needs: pip install 'sounddevice>=0.4'") from None
    except OSError as error:  # its Linux wheel does not include PortAudio
        remedy = "install PortAudio (on Debian: apt install libportaudio2)"
        raise AudioError("loudspeaker", f"cannot be used ({error})", remedy) from error
    return sounddevice  # type: ignore[no-any-return]


class Player:
    """Plays samples; the interface is AudioWriter's. `write` does not block, `close` does.

    Samples that come too slowly leave gaps. Raises UsageError and AudioError as `load_player`, and
    AudioError if there is no device or it goes away.
    """

    name = "loudspeaker"

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.count = 0  # samples written
        self._player = load_player()
        self._waiting: SimpleQueue[NDArray[np.float32] | None] = SimpleQueue()
        self._stop = Event()
        self._problem: Exception | None = None
        self._gaps = 0
        try:
            self._device: Any = self._player.OutputStream(
                samplerate=rate, channels=1, dtype="float32"
            )
            self._device.start()
        except self._player.PortAudioError as error:
            raise AudioError(self.name, f"cannot be used: {error}") from error
        self._thread = Thread(target=self._play, name="loudspeaker", daemon=True)
        self._thread.start()

    @property
    def open(self) -> bool:
        """Whether it is still playing."""
        return self._thread.is_alive()

    @property
    def duration(self) -> float:
        """Seconds written."""
        return self.count / self.rate

    def write(self, samples: NDArray[np.float32]) -> None:
        """Append samples [n] to the audio to play."""
        self._check()
        self.count += len(samples)
        self._waiting.put(np.clip(samples, -1.0, 1.0).astype(np.float32))

    def close(self) -> None:
        """Wait until everything is played."""
        self._waiting.put(None)
        while self._thread.is_alive():
            self._thread.join(POLL_S)
        self._check()
        if self._gaps:
            log.info("the loudspeaker had to wait %d times", self._gaps)

    def abandon(self) -> None:
        """Stop at once. Never raises."""
        self._stop.set()
        self._waiting.put(None)
        self._thread.join()

    def _check(self) -> None:
        if self._problem is not None:
            raise AudioError(self.name, f"stopped: {self._problem}") from self._problem

    def _play(self) -> None:
        try:
            while (samples := self._waiting.get()) is not None:
                for start in range(0, len(samples), BLOCK_SAMPLES):
                    if self._stop.is_set():
                        break
                    late = self._device.write(samples[start : start + BLOCK_SAMPLES, None])
                    self._gaps += bool(late)
            if self._stop.is_set():
                self._device.abort()
            else:
                self._device.stop()  # after what is buffered
            self._device.close()
        except self._player.PortAudioError as error:
            self._problem = error
