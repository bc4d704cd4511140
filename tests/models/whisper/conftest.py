"""A Whisper under an engine that takes turns by hand, and a script in place of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.engine.sequence import Caller, EncoderInput
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.pipeline import Whisper
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.sequences import (
    Alignment,
    AlignmentSequence,
    DecodingRequest,
    DecodingSequence,
    Hypothesis,
    LanguageSequence,
)
from oscine.models.whisper.weights import WhisperWeights, load_weights
from oscine.ops.reference import Reference
from oscine.text.whisper import WhisperTokenizer
from tests.engine.by_hand import ByHand

from .golden import GOLDEN, Backends, Decoding, Engines, Halved, Windows, results, time_first

BYTES = [bytes([byte]) for byte in range(256)]
CONFIG = WhisperConfig(
    n_mels=4,
    n_audio_ctx=50,  # windows of one second
    n_audio_state=8,
    n_audio_head=1,
    n_audio_layer=1,
    n_vocab=0,
    n_text_ctx=64,
    n_text_state=8,
    n_text_head=1,
    n_text_layer=1,
)


class Script:
    """An engine and its runner: answers each window with the next of its rows.

    The steps of a stream are answered while it waits, after it was asked whether to stop.
    A row is text with timestamps as numbers, e.g. (0.0, " one", 0.5); or a whole Hypothesis. It
    tells what it was asked; windows are numbered as they come.
    """

    device = "script"

    def __init__(self, config: WhisperConfig, begin: int, rows: Sequence[Any]) -> None:
        self.config, self.begin, self.rows = config, begin, list(rows)
        self.backend = Reference()
        self.timings: dict[str, float] = {}
        self.waiting: list[Any] = []
        self.together: list[int] = []  # sequences that were answered at once
        self.inputs: list[EncoderInput] = []
        self.requests: list[DecodingRequest] = []
        self.windows: list[int] = []  # of requests
        self.detected: list[LanguageSequence] = []
        self.aligned: list[tuple[tuple[int, ...], int, int]] = []
        self.language = 1

    @property
    def runner(self) -> Script:
        return self

    @property
    def mels(self) -> list[Any]:
        """The windows that were encoded."""
        return [audio.features for audio in self.inputs]

    def tokens(self, row: Sequence[Any]) -> tuple[int, ...]:
        ids: list[int] = []
        for part in row:
            if isinstance(part, float):
                ids.append(self.begin + round(part * 50))
            else:
                ids += part.encode() if isinstance(part, str) else part
        return tuple(ids)

    def max_batch_size(self, width: int) -> int:
        return 6 // width

    def call(self, work: Any) -> Any:
        """The encoder alone."""
        self.inputs.append(EncoderInput(work.keywords["mel"]))
        return np.full((50, 8), -1, np.float32)

    def submit(self, sequence: Any, caller: Caller | None = None) -> Any:
        sequence.bind(caller or sequence.caller, lambda: None)
        self.waiting.append(sequence)
        if caller is None:
            self.answer()
        return sequence

    def answer(self) -> None:
        """Compute what waits."""
        waiting, self.waiting = [each for each in self.waiting if not each.done()], []
        self.together += [len(waiting)] if waiting else []
        for sequence in waiting:
            self.compute(sequence)

    def compute(self, sequence: Any) -> None:
        if all(sequence.audio is not known for known in self.inputs):
            self.inputs.append(sequence.audio)
            sequence.caller.add_time("encode", 1.0)
        window = next(at for at, known in enumerate(self.inputs) if known is sequence.audio)
        if isinstance(sequence, DecodingSequence):
            self.windows.append(window)
            sequence.finish(self.decode(sequence.request))
        elif isinstance(sequence, LanguageSequence):
            sequence.finish(self.detect(sequence))
        elif isinstance(sequence, AlignmentSequence):
            frames = sequence.frames
            self.aligned.append((sequence.prompt, frames, window))
            sequence.finish(self.align(sequence.prompt, sequence.eot, frames))

    def decode(self, request: DecodingRequest) -> tuple[Hypothesis, ...]:
        self.requests.append(request)
        row = self.rows.pop(0)
        if not isinstance(row, Hypothesis):
            row = Hypothesis(self.tokens(row), -0.1 * (len(row) + 1), 0.1, "end")
        return tuple(replace(row, sum_logprob=row.sum_logprob - at) for at in range(request.rows))

    def align(self, prompt: Sequence[int], end: int, frames: int) -> Alignment:
        """Every token looks at its own share of the window."""
        weights = np.zeros((1, len(prompt), frames), np.float32)
        for row in range(len(prompt) if frames else 0):
            weights[0, row, row * frames // len(prompt)] = 1
        return Alignment(weights, np.full(len(prompt) - 1, 0.9, np.float32))

    def trace(self) -> dict[str, tuple[int, float]]:
        return {}

    def detect(self, sequence: LanguageSequence) -> Any:
        self.detected.append(sequence)
        shares = np.full(len(sequence.ids), 0.1, np.float32)
        shares[self.language] = 0.7
        return shares


class HearsAll(Whisper):
    """A detector that takes everything for speech, since the tests use noise as speech."""

    def __init__(self, script: Any, tokenizer: WhisperTokenizer | None, name: str) -> None:
        super().__init__(script, tokenizer, name)
        self.engine = script

    def stream(self, audio: Any, **options: Any) -> Any:
        stream = super().stream(audio, **({"vad_filter": False} | options))
        whole = stream._check_cancelled

        def check(*_: int) -> None:
            whole()
            self.engine.answer()

        stream._check_cancelled = check  # type: ignore[method-assign]
        return stream


@pytest.fixture
def scripted() -> Callable[..., Whisper]:
    """scripted(row, row, ..., languages=n): a model whose windows have the texts of the rows."""

    def build(*rows: Any, languages: int = 0, name: str = "script") -> Whisper:
        pieces = [*BYTES, b""] if languages else BYTES
        size = len(pieces) + 8 + languages + 51
        config = replace(
            CONFIG, n_vocab=size, suppress_tokens=(1, 2), begin_suppress_tokens=(32, len(pieces))
        )
        script = Script(config, size - 51, rows)
        return HearsAll(script, WhisperTokenizer(pieces, {}, Path("made up")), name)

    return build


# -- the small multilingual checkpoint of the goldens ---------------------------------------------


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    with np.load(GOLDEN / "golden.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def golden_weights() -> WhisperWeights:
    return load_weights(GOLDEN)


@pytest.fixture(scope="module")
def windows(golden: dict[str, Any]) -> Windows:
    """The golden's window, and three that differ from it."""
    mel = time_first(golden["mel"])
    return [EncoderInput(np.roll(mel, 40 * at, axis=0)) for at in range(4)]


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backends:
    def build(name: str) -> Any:
        made = {"numpy": Reference, "halved": Halved}.get(name)
        return made() if made is not None else request.getfixturevalue(name)

    return build


@pytest.fixture(scope="module")
def made() -> dict[Any, ByHand]:
    return {}


@pytest.fixture
def engine(made: dict[Any, ByHand], golden_weights: WhisperWeights, backend: Backends) -> Engines:
    """engine(name): the golden model on that backend.

    `exact`: keys and values of windows are not rounded to float16.
    """

    def build(name: str, *, exact: bool = True) -> ByHand:
        if (name, exact) not in made:
            made[name, exact] = ByHand(
                WhisperRunner(golden_weights, backend(name), f32_cross_kv=exact)
            )
        return made[name, exact]

    return build


@pytest.fixture
def decode(engine: Engines, windows: Windows) -> Decoding:
    """decode(name, request, ...): the rows of each, of the golden's window, one after another."""

    def run(name: str, *requests: DecodingRequest) -> list[Any]:
        return [results(engine(name), DecodingSequence(windows[0], one))[0] for one in requests]

    return run
