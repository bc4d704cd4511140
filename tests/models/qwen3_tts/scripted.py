"""An engine that says what a script says, so that everything around it can be tested at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from oscine.errors import DeviceLostError
from oscine.models.qwen3_tts.pipeline import Qwen3Tts
from oscine.models.qwen3_tts.request import Request, check_request
from oscine.models.qwen3_tts.voices import VoiceFolder
from oscine.models.qwen3_tts.weights import load_weights
from oscine.text.qwen import QwenTokenizer

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts"
HOP = 1920
LEVELS = 1000.0  # a frame whose first code is c sounds as a square wave of height c / LEVELS


class Codec:
    """Frames to square waves; it knows what it has heard since it began anew."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def reset(self) -> None:
        self.heard = []

    def prime(self, codes: Any) -> None:
        self.heard += codes[:, 0].tolist()

    def saved(self) -> Any:
        return list(self.heard)

    def restore(self, saved: Any) -> None:
        self.heard = list(saved)

    def forget(self, saved: Any) -> None:
        saved.clear()

    def begin(self, codes: Any) -> Callable[[], Any]:
        self.prime(codes)
        wave = np.repeat(codes[:, 0].astype(np.float32) / LEVELS, HOP)
        wave[::2] *= -1
        return lambda: wave


class Run:
    """Frames of a script: codes by their first; then why it ends."""

    def __init__(self, engine: Engine, request: Request, firsts: list[int], reason: str) -> None:
        self.engine, self.firsts, self.reason = engine, firsts[: request.max_frames], reason
        if len(firsts) > request.max_frames:
            self.reason = "length"
        self.finish_reason: str | None = None
        self.seen_frames = 0
        self.stopped = False

    def __iter__(self) -> Iterator[Any]:
        while self.seen_frames < len(self.firsts) and not self.stopped:
            count = 1 if not self.seen_frames else 4
            part = self.firsts[self.seen_frames : self.seen_frames + count]
            self.seen_frames += len(part)
            if self.engine.lose_at is not None and self.seen_frames > self.engine.lose_at:
                self.engine.lose_at = None
                raise DeviceLostError("a card", "on purpose")
            if self.seen_frames == len(self.firsts):
                self.finish_reason = self.reason
            yield np.repeat(np.array(part, np.uint32)[:, None], 16, axis=1)

    def go_on(self) -> None:
        """A script has its frames already."""

    def stop(self) -> None:
        self.stopped = True


Script = Callable[[Request, int], tuple[list[int], str]]


class Engine:
    """`script(request, number of the call)` gives first codes of frames, and the reason."""

    device = "script"

    def __init__(self, config: Any, script: Script) -> None:
        self.config, self.script = config, script
        self.timings: dict[str, float] = {}
        self.backend = SimpleNamespace(runs_ahead=False)
        self.codec = Codec()
        self.primed: Any = None
        self.requests: list[Request] = []
        self.runs: list[Run] = []
        self.lose_at: int | None = None

    def embed_text(self, ids: Any) -> Any:
        return np.zeros((len(ids), self.config.talker.width), np.float32)

    def code_row(self, code: int) -> Any:
        return np.zeros(self.config.talker.width, np.float32)

    def reference_rows(self, codes: Any) -> Any:
        return np.zeros((len(codes), self.config.talker.width), np.float32)

    def begin(self, request: Request) -> Run:
        check_request(request, self.config)
        self.requests.append(request)
        self.runs.append(Run(self, request, *self.script(request, len(self.requests))))
        return self.runs[-1]

    def clock(self, stage: str, milliseconds: float) -> None:
        self.timings[stage] = self.timings.get(stage, 0.0) + milliseconds

    def trace(self) -> dict[str, tuple[int, float]]:
        return {}


def scripted(
    script: Script, case: str = "custom_voice", folder: Path | None = None
) -> tuple[Qwen3Tts, Engine]:
    """A model of a golden's configuration that says what the script says."""
    weights = load_weights(GOLDENS / case / "ckpt")
    config = weights.config  # frames as long as released ones
    codec = replace(config.codec, hop=HOP, codes=2048, groups=16)
    engine = Engine(replace(config, codec=codec, groups=16), script)
    tokenizer = QwenTokenizer.load(weights.folder)
    saved = None if folder is None else VoiceFolder(folder)
    model = Qwen3Tts(engine, tokenizer, case, lambda: engine, saved)  # type: ignore[arg-type]
    return model, engine
