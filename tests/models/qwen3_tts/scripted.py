"""A network that generates scripted frames, to test everything around it.

The engine, the executor, the guards and the codec batcher are real; talker, code predictor and
codec are fakes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oscine import ops
from oscine.errors import DeviceLostError
from oscine.models.qwen3_tts.codec_batching import CodecBatcher
from oscine.models.qwen3_tts.executors import UtteranceExecutor
from oscine.models.qwen3_tts.pipeline import Qwen3Tts
from oscine.models.qwen3_tts.prompt import Prompt
from oscine.models.qwen3_tts.sequences import Utterance, UtteranceRequest, check_request
from oscine.models.qwen3_tts.talker_runner import finished_rows
from oscine.models.qwen3_tts.voices import VoiceFolder
from oscine.models.qwen3_tts.weights import load_weights
from oscine.ops.reference import Reference
from oscine.text.qwen import QwenTokenizer

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts"
HOP_LENGTH = 1920
LEVELS = 1000.0  # a frame whose first code is c sounds as a square wave of height c / LEVELS
STOPS = {"end": ops.STOP_END, "length": ops.STOP_LENGTH}
MAX_FRAMES = 8192

Script = Callable[[UtteranceRequest, int], tuple[list[int], str]]


class Codec:
    """Decodes frames to square waves; it records the frames of each slot."""

    max_frames = 192

    def __init__(self) -> None:
        self.slots: dict[int, list[int]] = {}
        self.heard: list[int] = []  # frames of the slot acquired last
        self.calls: list[tuple[int, int]] = []  # voices and frames of each

    def acquire_slot(self) -> int:
        slot = next(number for number in range(len(self.slots) + 1) if number not in self.slots)
        self.slots[slot] = self.heard = []
        return slot

    def release_slot(self, slot: int) -> None:
        del self.slots[slot]

    def reserve(self, slots: int) -> None:
        """There is room."""

    def release(self) -> None:
        assert not self.slots

    def copy(self, source: int, target: int) -> None:
        self.slots[target][:] = self.slots[source]

    def warm_up(self, slots: Sequence[int], codes: Sequence[Any]) -> None:
        for slot, own in zip(slots, codes, strict=True):
            self.slots[slot] += own[:, 0].tolist()

    def submit(self, slots: Sequence[int], codes: Sequence[Any]) -> Callable[[], Any]:
        self.calls.append((len(slots), len(codes[0])))
        self.warm_up(slots, codes)
        wave = np.repeat(np.stack(codes)[:, :, 0].astype(np.float32) / LEVELS, HOP_LENGTH, axis=1)
        wave[:, ::2] *= -1
        return lambda: wave


class Run:
    """One utterance by the script: first codes of its frames; then why it ends."""

    def __init__(
        self, utterance: Utterance, voices: dict[Any, Any], firsts: list[int], reason: str
    ) -> None:
        self.utterance, self.request, self.voices = utterance, utterance.request, voices
        most = self.request.max_frames
        self.firsts, self.reason = firsts[:most], "length" if len(firsts) > most else reason
        self.seen_frames = 0

    @property
    def stopped(self) -> bool:
        """Whether it has left the engine, which a caller that gives it up does not wait for."""
        left = time.monotonic() + 20
        while any(entry.sequence is self.utterance for entry in list(self.voices)):
            if time.monotonic() > left:
                return False
            time.sleep(0.001)
        return True


class Step:
    """A plan: a frame more for some rows."""

    def __init__(self, talker: Talker, rows: int) -> None:
        self.talker, self.count = talker, rows

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            for row in range(self.count):
                self.talker.advance(row)


class Talker:
    """Rows whose frames are those of runs, by slot."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.backend = runner, runner.backend
        self.rows = finished_rows(256)
        self.codes = np.zeros((64, MAX_FRAMES, 16), np.uint32)
        self.runs: dict[int, Run] = {}

    def admit(self, voices: Sequence[tuple[int, int, UtteranceRequest, Prompt]]) -> None:
        for row, slot, request, prompt in voices:
            utterance = next(u for u in self.runner.asked if u.request is request)
            known = replace(request, prompt=prompt)
            self.runner.requests.append(known)
            script = self.runner.script(known, len(self.runner.requests))
            self.runs[slot] = Run(utterance, self.runner.utterance_executor.voices, *script)
            self.runner.runs.append(self.runs[slot])
            self.rows[row] = finished_rows(1)[0]
            self.rows[row]["done"], self.rows[row]["slot"] = 0, slot
            self.advance(row)

    def advance(self, row: int) -> None:
        state = self.rows[row]
        if state["done"]:
            return
        run, count = self.runs[int(state["slot"])], int(state["count"])
        lose_at = self.runner.lose_at
        if lose_at is not None and count + 1 > lose_at:
            self.runner.lose_at = None
            raise DeviceLostError("a card", "on purpose")
        if count < len(run.firsts):
            self.codes[state["slot"], count] = run.firsts[count]
            state["count"] = run.seen_frames = count + 1
        if int(state["count"]) == len(run.firsts):
            state["done"] = STOPS[run.reason]

    def step_plan(self, rows: int) -> Step:
        return Step(self, rows)

    def outputs(self, rows: int, slots: int) -> tuple[Any, Any]:
        return self.rows[:rows], self.codes[:slots]

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        for source, target in moves:
            self.rows[target] = self.rows[source]

    def stop(self, rows: Sequence[int]) -> None:
        for row in rows:
            self.rows[row] = finished_rows(1)[0]


class Tables:
    """Rows of zeros."""

    def __init__(self, width: int) -> None:
        self.hidden_size = width

    def embed_text(self, ids: Any) -> Any:
        return np.zeros((len(ids), self.hidden_size), np.float32)

    def embed_code(self, code: int) -> Any:
        return np.zeros(self.hidden_size, np.float32)

    def embed_reference(self, codes: Any) -> Any:
        return np.zeros((len(codes), self.hidden_size), np.float32)

    def build_prompts(self, drafts: Sequence[Any]) -> list[Prompt]:
        return [draft.build(self) for draft in drafts]


class Runner:
    """`script(request, number of the call)` gives first codes of frames, and the reason."""

    encode_batch = 1

    def __init__(self, config: Any, script: Script, device: str = "script") -> None:
        self.config, self.script, self.device = config, script, device
        self.timings: dict[str, float] = {}
        self.backend = Reference()
        self.codec = Codec()
        self.asked: list[Utterance] = []
        self.requests: list[UtteranceRequest] = []
        self.runs: list[Run] = []
        self.lose_at: int | None = None
        batcher: Any = CodecBatcher(self.codec, config.codec, device)  # type: ignore[arg-type]
        self.talker, tables = Talker(self), Tables(config.talker.hidden_size)
        self.utterance_executor = UtteranceExecutor(self.talker, tables, batcher, self.clock)  # type: ignore[arg-type]

    def check(self, sequence: Any) -> None:
        check_request(sequence.request, self.config)

    def executor(self, key: Any) -> UtteranceExecutor:
        return self.utterance_executor

    def reserve(self, slots: int, places: int, sequence: Any) -> None:
        assert slots <= 64
        if sequence not in self.asked:
            self.asked.append(sequence)

    def release(self, slots: int, places: int, *, plans: bool = False) -> None:
        self.utterance_executor.codec.release()

    def clock(self, stage: str, milliseconds: float) -> None:
        self.timings[stage] = self.timings.get(stage, 0.0) + milliseconds

    def trace(self) -> dict[str, tuple[int, float]]:
        return {}


def scripted(
    script: Script, case: str = "custom_voice", folder: Path | None = None
) -> tuple[Qwen3Tts, Runner]:
    """A model with a golden's configuration that generates the script's frames."""
    weights = load_weights(GOLDENS / case / "ckpt")
    config = weights.config  # frames as long as released ones
    codec = replace(config.codec, hop_length=HOP_LENGTH, codebook_size=2048, num_code_groups=16)
    runner = Runner(replace(config, codec=codec, num_code_groups=16), script)
    tokenizer = QwenTokenizer.load(weights.folder)
    saved = None if folder is None else VoiceFolder(folder)

    def rebuild() -> Any:
        """The same runner as if it were new: running utterances are lost."""
        runner.talker.rows[:] = finished_rows(256)
        for voice in runner.utterance_executor.voices.values():
            runner.utterance_executor.codec.free(voice)
        runner.utterance_executor.voices.clear()
        runner.utterance_executor.codec.in_flight.clear()
        return runner

    return Qwen3Tts(runner, tokenizer, case, rebuild, saved), runner  # type: ignore[arg-type]
