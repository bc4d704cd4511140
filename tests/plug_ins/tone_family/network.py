"""A checkpoint has one tensor, probes [2T, N]: for each of T tones a cosine and a sine of N samples
at 16 kHz. Its configuration names the tones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from oscine.audio.io import SourceLike, open_source
from oscine.audio.speech import detect_speech
from oscine.errors import CheckpointError
from oscine.family import LoadContext, Network
from oscine.models.transcription import Transcriber, Transcription
from oscine.ops import Backend, Linear
from oscine.options import SupportedOptions
from oscine.options.transcribe import TranscribeOptions
from oscine.types import Segment
from oscine.weights import Checkpoint

SECOND = 16_000
OPTIONS = SupportedOptions(TranscribeOptions, "Tone", {"max_audio_seconds", "split_channels"})
Weights = tuple[list[str], np.ndarray]


def load_weights(checkpoint: Checkpoint, dtype: str) -> Weights:
    names, probes = checkpoint.config.get("tones"), checkpoint.tensors.get("probes")
    if probes is None or not isinstance(names, list) or probes.shape[0] != 2 * len(names):
        raise CheckpointError(checkpoint.path, "does not have two probes for each of its tones")
    return names, probes.read().astype("<f2" if dtype == "f16" else "<f4")


class Runner:
    def __init__(self, weights: Weights, backend: Backend) -> None:
        self.names, probes = weights
        self.backend, self.device, self.timings = backend, backend.name, {"tones": 0.0}
        self.shape = SECOND // probes.shape[1], probes.shape[1]
        self.frames, self.out = (
            backend.zeros(self.shape),
            backend.zeros((self.shape[0], len(probes))),
        )
        layer = Linear(backend.upload(probes), None)
        self.plan = backend.record(
            lambda: backend.store(backend.linear(self.frames, layer), self.out)
        )

    def trace(self) -> dict[str, tuple[int, float]]:
        return {}

    def loudest(self, second: np.ndarray) -> str:
        started = perf_counter()
        self.backend.write(self.frames, second[: self.shape[0] * self.shape[1]].reshape(self.shape))
        self.plan.run()
        power = np.square(self.backend.read(self.out)).sum(0).reshape(-1, 2).sum(1)
        self.timings["tones"] += 1000 * (perf_counter() - started)
        return self.names[int(power.argmax())]


class Tones(Transcription):
    def __init__(self, model: Tone, *more: Any) -> None:
        super().__init__(model, *more)
        self.model = model

    def _transcribe_channel(
        self, source: Any, channel: int | None, count: int
    ) -> Iterator[Segment]:
        speech = detect_speech(source, vad=None, check=self._check_cancelled)
        self._add_speech(speech, channel, perf_counter())
        samples = np.concatenate([*speech.recording.blocks(), np.zeros(0, np.float32)])
        seconds = samples[: len(samples) // SECOND * SECOND].reshape(-1, SECOND)
        for number, second in enumerate(seconds):
            name = self.model.engine.call(partial(Runner.loudest, second=second), self._caller)
            yield Segment(
                0, 100 * number, number, number + 1, f" {name}", (), 0, 0, 1, 0, channel=channel
            )
            self._report_progress((number + 1) / len(seconds))


class Tone(Transcriber[Runner]):
    def stream(
        self, audio: SourceLike, *, progress: Any = None, cancel: Any = None, **options: Any
    ) -> Tones:
        return Tones(self, open_source(audio), OPTIONS.of(**options), progress, cancel)


def model(runner: Runner, weights: Weights, opened: LoadContext[Runner]) -> Tone:
    return Tone(runner, opened.name, opened.rebuild)


NETWORK = Network(load_weights, Runner, model)
