"""A decoder that plays back a script, for tests of everything around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oscine.models.whisper.request import Alignment, Decoded, Request

from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.pipeline import Whisper
from oscine.text.whisper import Tokenizer

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


class ScriptedDecoder:
    """Answers each request with the next of its rows; tells what it was asked.

    A row is text with timestamps as numbers, e.g. (0.0, " one", 0.5); or a whole Decoded.
    """

    device = "script"

    def __init__(self, config: WhisperConfig, begin: int, rows: Sequence[Any]) -> None:
        self.config, self.begin, self.rows = config, begin, list(rows)
        self.timings = {"encode": 5.0}
        self.held: object = None
        self.mels: list[Any] = []
        self.reserved: list[tuple[int, int]] = []
        self.requests: list[Request] = []
        self.windows: list[int] = []
        self.aligned: list[tuple[tuple[int, ...], int, int]] = []
        self.language = 1

    def tokens(self, row: Sequence[Any]) -> tuple[int, ...]:
        ids: list[int] = []
        for part in row:
            if isinstance(part, float):
                ids.append(self.begin + round(part * 50))
            else:
                ids += part.encode() if isinstance(part, str) else part
        return tuple(ids)

    def reserve(self, windows: int, lines: int) -> None:
        self.reserved.append((windows, lines))

    def batch_that_fits(self) -> int:
        return 3

    def encode(self, mels: Sequence[Any]) -> None:
        self.timings["encode"] += len(mels)
        self.mels += mels

    def encode_audio(self, mel: Any) -> Any:
        self.mels.append(mel)
        return np.full((50, 8), -1, np.float32)

    def decode(
        self,
        requests: Sequence[Request],
        check: Callable[[int, int], None] | None = None,
        windows: Sequence[int] = (),
    ) -> Any:
        self.windows += windows
        return tuple(self.answer(request, check) for request in requests)

    def answer(self, request: Request, check: Callable[[int, int], None] | None) -> Any:
        self.requests.append(request)
        assert check is not None
        for burst in range(3):
            check(burst, request.limit)
        row = self.rows.pop(0)
        if not isinstance(row, Decoded):
            row = Decoded(self.tokens(row), -0.1 * (len(row) + 1), 0.1, "end")
        return tuple(replace(row, sum_logprob=row.sum_logprob - at) for at in range(request.width))

    def align(self, prompt: Sequence[int], end: int, frames: int, window: int = 0) -> Alignment:
        """Every token looks at its own share of the window."""
        self.aligned.append((tuple(prompt), frames, window))
        weights = np.zeros((1, len(prompt), frames), np.float32)
        for row in range(len(prompt) if frames else 0):
            weights[0, row, row * frames // len(prompt)] = 1
        return Alignment(weights, np.full(len(prompt) - 1, 0.9, np.float32))

    def trace(self) -> dict[str, tuple[int, float]]:
        return {}

    def detect(self, request: Request, ids: Sequence[int], window: int = 0) -> Any:
        self.requests.append(request)
        shares = np.full(len(ids), 0.1, np.float32)
        shares[self.language] = 0.7
        return ids[self.language], shares


class HearsAll(Whisper):
    """Listens to noise as well: what stands for speech in tests is none to a detector."""

    def stream(self, audio: Any, **options: Any) -> Any:
        return super().stream(audio, **({"vad_filter": False} | options))


@pytest.fixture
def scripted() -> Callable[..., Whisper]:
    """scripted(row, row, ..., languages=n): a model whose windows say what the rows say."""

    def build(*rows: Any, languages: int = 0, name: str = "script") -> Whisper:
        pieces = [*BYTES, b""] if languages else BYTES
        size = len(pieces) + 8 + languages + 51
        config = replace(
            CONFIG, n_vocab=size, suppress_tokens=(1, 2), begin_suppress_tokens=(32, len(pieces))
        )
        decoder = ScriptedDecoder(config, size - 51, rows)
        return HearsAll(decoder, Tokenizer(pieces, {}, Path("made up")), name)

    return build
