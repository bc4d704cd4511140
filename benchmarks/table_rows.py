"""The rows of table.py: which benchmark gives a figure, which peer, and what limits it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Records = list[dict[str, Any]]


@dataclass(frozen=True)
class Job:
    """One process: a script of this folder, its arguments, and the seconds that it may take.

    `packages`: what a peer imports; without them it is left out.
    """

    script: str
    arguments: str
    budget_s: int
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A field of the record of a job that has these values. `divided_by`: another field."""

    job: Job
    field: str
    where: Mapping[str, Any] = field(default_factory=dict)
    divided_by: str = ""
    scale: float = 1.0

    def read(self, records: Records) -> tuple[float, float] | None:
        """The value, and its relative spread over the repeats, 0 where that is not recorded."""
        for record in records:
            if self.field in record and all(record.get(n) == v for n, v in self.where.items()):
                value = record[self.field]
                value = value[1] if isinstance(value, list) else value  # least, median, most
                spread = next((record[n] for n in SPREADS if n in record), (0.0, 0.0))
                middle = sum(spread) / 2 or 1.0
                scale = self.scale / (record[self.divided_by] if self.divided_by else 1.0)
                return scale * value, (spread[1] - spread[0]) / middle
        return None


SPREADS = ("step_spread_ms", "window_spread_ms", "spread_ms", "spread_frame_ms", "spread_s")


@dataclass(frozen=True)
class Case:
    """One line of the table. `unit`: "ms", "s" (lower is better) or "x", "/s" (higher is better).

    `limit`: (record of limits.py, records of our job) -> the best value that the device allows.
    """

    row: str
    name: str
    unit: str
    ours: Figure
    peers: Mapping[str, Figure] = field(default_factory=dict)
    limit: Callable[[dict[str, Any], Records], float | None] = lambda *_: None


def by_products(name: str, **where: Any) -> Callable[[dict[str, Any], Records], float | None]:
    """The milliseconds of the operations in a field, at the rate of a float16 matrix product."""

    def limit(limits: dict[str, Any], records: Records) -> float | None:
        rates = limits["product_tflops"]
        found = Figure(Job("", "", 0), name, where).read(records)
        return found and found[0] / rates.get("f16", rates["f32"]) / 1e9

    return limit


def by_bandwidth(name: str, **where: Any) -> Callable[[dict[str, Any], Records], float | None]:
    """The milliseconds of the bytes in a field, at the bandwidth of a copy."""

    def limit(limits: dict[str, Any], records: Records) -> float | None:
        found = Figure(Job("", "", 0), name, where).read(records)
        return found and found[0] / limits["bandwidth_gbs"] / 1e6

    return limit


TORCH = ("torch", "transformers")
LIMITS = Job("limits.py", "", 30)
GPU = Job("gpu.py", "--size turbo", 40)
ENCODER = Job("encoder.py", "--size turbo --batches 8", 40)
RECORDING = Job("recording.py", "--size turbo --batches 16,32 --runs 3", 70)
STEPS = Job("batch.py", "--size turbo --batches 1,16,32", 40)
LARGE_STEPS = Job("batch.py", "--size large-v3 --batches 1,16", 60)
LARGE_RECORDING = Job("recording.py", "--size large-v3 --batches 16,32 --tokens 17 --runs 2", 90)
PARAKEET = Job("parakeet.py", "--batch 1,16", 50)
LOOP = Job("transducer.py", "--batch 1,16", 60)
WHOLE = Job("parakeet_whole.py", "--batch 16,64,256", 90)
SPEECH = Job("speech.py", "--voices= --runs 3 --keep {keep}", 120)
VOICES = Job("speech.py", "--size 1.7b --voices 16,64 --runs 2 --keep {keep}", 120)
ARRIVALS = Job("speech.py", "--size 1.7b --voices= --runs 2 --arrivals 10,20 --keep {keep}", 90)
LOAD = Job("load.py", "--size turbo --runs 2 --keep {keep}", 60)

TORCH_WHISPER = Job("peer_torch.py", "--size turbo", 90, TORCH)
TORCH_LARGE = Job("peer_torch.py", "--size large-v3 --encoder= --steps 1,16 --generate=", 60, TORCH)
TORCH_SHORT = Job(
    "peer_torch.py", "--size large-v3 --encoder= --steps= --generate 16,32 --tokens 17", 60, TORCH
)
TORCH_PARAKEET = Job("peer_torch_parakeet.py", "", 50, TORCH)
OFFICIAL = Job("peer_torch_speech.py", "--runs 1 --keep {keep}", 90, ("torch", "qwen_tts"))
FASTER = Job(
    "peer_torch_speech.py",
    "--package faster --seconds 15 --runs 2 --keep {keep}",
    120,
    ("torch", "qwen_tts", "faster_qwen3_tts"),
)


def whisper_cases() -> list[Case]:
    """The rows of Whisper."""
    cases = [
        Case(
            "encoder", "turbo encoder, one window", "ms", Figure(GPU, "encoder_ms"),
            {"PyTorch": Figure(TORCH_WHISPER, "encoder_ms", {"part": "encoder", "batch": 1})},
            by_products("encoder_flop"),
        ),
        Case(
            "encoder", "turbo encoder, a window of 8", "ms",
            Figure(ENCODER, "window_ms", {"batch": 8}),
            {"PyTorch": Figure(TORCH_WHISPER, "encoder_ms", {"part": "encoder", "batch": 8})},
            by_products("window_flop", batch=8),
        ),
    ]  # fmt: skip
    for batch in (16, 32):
        name, at = f"recording turbo batch {batch}", {"part": "generate", "batch": batch}
        cases.append(
            Case(
                "recording", f"turbo, 10 minutes, batch {batch}", "x",
                Figure(RECORDING, "times", {"case": name}),
                {"PyTorch": Figure(TORCH_WHISPER, "times", at)},
            )
        )  # fmt: skip
    front = Figure(RECORDING, "front_ms", {"case": "recording turbo batch 16"})
    cases.append(Case("recording", "host front end of it", "ms", front))
    for size, job, peer, batches in (
        ("turbo", STEPS, TORCH_WHISPER, (1, 16, 32)),
        ("large-v3", LARGE_STEPS, TORCH_LARGE, (1, 16)),
    ):
        for batch in batches:
            cases.append(
                Case(
                    "step" if size == "turbo" else "large step", f"{size} step, batch {batch}",
                    "ms", Figure(job, "step_ms", {"batch": batch}),
                    {"PyTorch": Figure(peer, "graph_step_ms", {"part": "step", "batch": batch})},
                    by_bandwidth("bytes", batch=batch),
                )
            )  # fmt: skip
    for batch in (16, 32):
        at = {"part": "generate", "batch": batch}
        cases.append(
            Case(
                "large recording", f"large-v3, 17 tokens, windows, batch {batch}", "/s",
                Figure(
                    LARGE_RECORDING, "windows", {"case": f"recording large-v3 batch {batch}"},
                    "wall_ms", 1000.0,
                ),
                {"PyTorch": Figure(TORCH_SHORT, "windows_a_second", at)},
            )
        )  # fmt: skip
    first = Figure(LOAD, "load_s", {"caches": "full"})
    token = Figure(LOAD, "first_s", {"caches": "full"})
    cases.append(Case("load", "load turbo", "s", first))
    cases.append(Case("load", "its first token after that", "s", token))
    return cases


def parakeet_cases() -> list[Case]:
    """The rows of Parakeet."""
    cases = []
    for batch in (1, 16):
        at = {"batch": batch}
        cases.append(
            Case(
                "parakeet encoder", f"Parakeet 0.6b encoder 30 s, batch {batch}", "ms",
                Figure(PARAKEET, "encoder_ms", at),
                {"PyTorch": Figure(TORCH_PARAKEET, "encoder_ms", at)},
                by_products("flop", batch=batch),
            )
        )  # fmt: skip
    for batch in (1, 16):
        name = f"Parakeet loop 30 s, batch {batch}"
        cases.append(Case("parakeet loop", name, "ms", Figure(LOOP, "ms", {"batch": batch})))
    for batch in (16, 64, 256):
        name = f"Parakeet 0.6b whole, each of {batch} at once"
        figure = Figure(WHOLE, "recording_ms", {"batch": batch})
        cases.append(Case("parakeet whole", name, "ms", figure))
    return cases


def speech_cases() -> list[Case]:
    """The rows of Qwen3-TTS."""
    cases = []
    for size in ("0.6b", "1.7b"):
        at = {"case": f"qwen3-tts {size}"}
        whole, chunks = at | {"mode": "whole"}, at | {"mode": "chunks of 8"}
        cases.append(
            Case(
                "speech", f"Qwen3-TTS {size}, one voice", "x",
                Figure(SPEECH, "times_real_time", at),
                {
                    "qwen-tts": Figure(OFFICIAL, "times_real_time", whole),
                    "faster-qwen3-tts": Figure(FASTER, "times_real_time", whole),
                },
            )
        )  # fmt: skip
        cases.append(
            Case(
                "speech", f"Qwen3-TTS {size}, first audio", "ms",
                Figure(SPEECH, "first_audio_ms", at),
                {
                    "qwen-tts": Figure(OFFICIAL, "first_audio_ms", whole),
                    "faster-qwen3-tts": Figure(FASTER, "first_audio_ms", chunks),
                },
            )
        )  # fmt: skip
    for count in (16, 64):
        at = {"voices": count}
        cases.append(
            Case("voices", f"1.7B, {count} voices, sum", "x", Figure(VOICES, "times_real_time", at))
        )
    for rate in (10, 20):
        name = f"1.7B, {rate} requests a second, first audio, 95 %"
        figure = Figure(ARRIVALS, "first_audio_p95_ms", {"requests_a_second": rate})
        cases.append(Case("arrivals", name, "ms", figure))
    return cases


CASES = [*whisper_cases(), *parakeet_cases(), *speech_cases()]
ROWS = tuple(dict.fromkeys(case.row for case in CASES))
