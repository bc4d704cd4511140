"""The loudspeaker, by a sounddevice that keeps what it is given."""

from __future__ import annotations

import sys
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oscine.audio.play import BLOCK_SAMPLES, Player
from oscine.errors import AudioError, UsageError


class PortAudioError(Exception):
    pass


class Loudspeaker:
    """sounddevice.OutputStream: `ended` is stop or abort; it breaks after `room` samples."""

    room: float = float("inf")
    go_on = Event()
    made: list[Loudspeaker]

    def __init__(self, **options: Any) -> None:
        self.options, self.heard, self.ended = options, np.zeros(0, np.float32), ""
        self.made.append(self)

    def start(self) -> None:
        pass

    def write(self, samples: Any) -> bool:
        assert self.go_on.wait(20)
        assert samples.shape[1] == 1 and len(samples) <= BLOCK_SAMPLES
        if len(self.heard) + len(samples) > self.room:
            raise PortAudioError("Device unavailable")
        self.heard = np.concatenate([self.heard, samples[:, 0]])
        return True

    def stop(self) -> None:
        self.ended = "stop"

    def abort(self) -> None:
        self.ended = "abort"

    def close(self) -> None:
        self.ended += ", close"


@pytest.fixture
def speaker(monkeypatch: pytest.MonkeyPatch) -> type[Loudspeaker]:
    class Fresh(Loudspeaker):
        made: list[Loudspeaker] = []  # noqa: RUF012
        go_on = Event()

    Fresh.go_on.set()
    module = SimpleNamespace(OutputStream=Fresh, PortAudioError=PortAudioError)
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    return Fresh


def test_all_is_heard_in_order(speaker: type[Loudspeaker]) -> None:
    samples = np.linspace(-2, 2, 7_001, dtype=np.float32)
    player = Player(24_000)
    for start in range(0, len(samples), 3_001):
        player.write(samples[start : start + 3_001])
    player.close()
    (device,) = speaker.made
    np.testing.assert_array_equal(device.heard, np.clip(samples, -1, 1))
    assert device.options == {"samplerate": 24_000, "channels": 1, "dtype": "float32"}
    assert device.ended == "stop, close"
    assert player.duration == len(samples) / 24_000


def test_to_abandon_is_to_fall_silent(speaker: type[Loudspeaker]) -> None:
    speaker.go_on.clear()
    player = Player(24_000)
    player.write(np.zeros(100 * BLOCK_SAMPLES, np.float32))  # returns though nothing is heard yet
    player._stop.set()
    speaker.go_on.set()
    player.abandon()
    (device,) = speaker.made
    assert len(device.heard) <= BLOCK_SAMPLES
    assert device.ended == "abort, close"


def test_a_loudspeaker_that_goes_away(speaker: type[Loudspeaker]) -> None:
    speaker.room = BLOCK_SAMPLES
    player = Player(24_000)
    player.write(np.zeros(3 * BLOCK_SAMPLES, np.float32))
    with pytest.raises(AudioError, match="loudspeaker: stopped: Device unavailable"):
        player.close()
    with pytest.raises(AudioError, match="stopped"):
        player.write(np.zeros(1, np.float32))
    player.abandon()


def test_no_loudspeaker(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: Any) -> Any:
        raise PortAudioError("Error querying device -1")

    module = SimpleNamespace(OutputStream=none, PortAudioError=PortAudioError)
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    with pytest.raises(AudioError, match="loudspeaker: cannot be used: Error querying"):
        Player(24_000)


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(UsageError, match=r"--play needs: pip install 'sounddevice>=0.4'"):
        Player(24_000)
