#!/usr/bin/env python3
"""Qwen3-TTS: milliseconds from the texts of several voices to the first audio of each, by stage.

    python benchmarks/prompts.py [--size 1.7b] [--counts 1,2,4,8,15,16] [--rows 50]
        [--model FOLDER] [--device gpu] [--dtype auto] [--runs 5] [--keep DIR] [--json FILE]

Random weights made on the spot, or --model. For each number of voices, medians of --runs:
text: the texts' embeddings, projected together and read.
prefill: all prompts of --rows rows and the first frame of each, as the engine admits them.
one by one: the same prompts, a prefill each.
codec: the first frame of each voice to samples on the host.
`equal` is the number of first frames whose codes are the same in both ways, greedily sampled.
Then --counts' largest number of voices start together: when each stage of the device's thread
began and ended in the first half second, in milliseconds.
Prints a table, then one JSON line a number of voices, and one of the stages.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import speech_checkpoint

import oscine
from oscine.bench import time_runs
from oscine.models.qwen3_tts.bench import speak_together, voice_options
from oscine.models.qwen3_tts.config import SamplingParams
from oscine.models.qwen3_tts.prompt import Prompt
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner
from oscine.models.qwen3_tts.sequences import UtteranceRequest

TEXT = "A short sentence, spoken by a machine."
STAGES_MS = 500  # of the stages that are shown


def made_requests(runner: Qwen3TtsRunner, count: int, rows: int) -> list[UtteranceRequest]:
    """Greedy utterances with random prompts of so many rows."""
    rng, width = np.random.default_rng(0), runner.config.talker.hidden_size
    greedy, text = SamplingParams(do_sample=False), np.zeros((1, width), np.float32)
    return [
        UtteranceRequest(
            Prompt(0.05 * rng.standard_normal((rows, width), np.float32), text),
            greedy, greedy, number, 50,
        )
        for number in range(count)
    ]  # fmt: skip


def measure(runner: Qwen3TtsRunner, count: int, rows: int, runs: int) -> dict[str, Any]:
    """Each stage for that many voices; none may be running."""
    talker, backend, codec = runner.talker, runner.backend, runner.codec
    requests = made_requests(runner, count, rows)
    talker.reserve(count, max(rows, backend.bucket_rows(rows)) + 50, 1)
    codec.reserve(count)
    voices: list[Any] = [
        (number, number, request, request.prompt) for number, request in enumerate(requests)
    ]

    def admit(together: list[list[Any]]) -> None:
        for part in together:
            talker.admit(part)
        backend.wait()

    def first_frames() -> np.ndarray:
        codes: np.ndarray = backend.read(talker.rows(count).state.codes)[:count, 0]
        return codes

    def median(work: Callable[[], object]) -> float:
        return statistics.median(time_runs(work, runs))

    ids = [runner.config.text_ids.pad] * (count * rows)
    found: dict[str, Any] = {"voices": count, "rows": rows}
    found["text_ms"] = median(lambda: runner.tables.embed_text(ids))
    found["prefill_ms"] = median(lambda: admit([voices]))
    codes = first_frames()
    found["one_by_one_ms"] = median(lambda: admit([[voice] for voice in voices]))
    found["equal"] = int((first_frames() == codes).all(axis=1).sum())
    slots = [codec.acquire_slot() for _ in range(count)]
    frames = [each[None] for each in codes % runner.config.codebook_size]
    found["codec_ms"] = median(lambda: codec.submit(slots, frames)())
    for slot in slots:
        codec.release_slot(slot)
    talker.stop(list(range(count)))
    return found


def measure_stages(model: Any, count: int) -> dict[str, Any]:
    """What the device's thread does while that many voices start together."""
    executor, found = model.runner.utterance_executor, list[tuple[str, int, float, float]]()
    started = 0.0

    def timed(owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def watched(*given: Any) -> Any:
            begun = perf_counter()
            result = work(*given)
            size = len(given[0]) if given and hasattr(given[0], "__len__") else 0
            found.append((name, size, 1000 * (begun - started), 1000 * (perf_counter() - started)))
            return result

        setattr(owner, name, watched)

    options = {"max_frames": 12, "guard": False, **voice_options(model)}
    for _ in range(2):  # growing memory drops the plans that were recorded before
        speak_together(model, count, TEXT, **options)
    for owner, name in (
        (executor, "start"), (executor.tables, "build_prompts"), (executor.talker, "admit"),
        (executor.talker, "record_prompt"), (executor.talker, "record_step"),
        (executor.codec, "decode"), (executor.codec, "submit"), (executor.codec, "deliver_wave"),
        (executor, "read_frames"),
    ):  # fmt: skip
        timed(owner, name)
    started = perf_counter()
    _, heard = speak_together(model, count, TEXT, **options)
    firsts = sorted(1000 * each.first_audio_s for each in heard)
    return {
        "voices": count,
        "first_audio_ms": [firsts[0], statistics.median(firsts), firsts[-1]],
        "stages": [stage for stage in found if stage[2] < STAGES_MS],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="1.7b", choices=speech_checkpoint.SIZES)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--counts", default="1,2,4,8,15,16")
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="where checkpoints are, or are made and kept")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts = [int(word) for word in options.counts.split(",")]
    records: list[dict[str, Any]] = []
    given = nullcontext(options.model)
    made = given if options.model else speech_checkpoint.checkpoint(options.size, options.keep)
    with made as folder:
        model: Any = oscine.load(folder, device=options.device, dtype=options.dtype)
        print(f"{model.device}\nvoices    text  prefill  one by one   codec  equal")
        for count in counts:
            row = measure(model.runner, count, options.rows, options.runs)
            records.append(row)
            print(
                f"{count:6} {row['text_ms']:7.2f} {row['prefill_ms']:8.2f} "
                f"{row['one_by_one_ms']:11.2f} {row['codec_ms']:7.2f} {row['equal']:6}",
                flush=True,
            )
        records.append(measure_stages(model, max(counts)))
    for record in records:
        line = json.dumps(record)
        print(line)
        if options.json:
            with options.json.open("a", encoding="utf-8") as out:
                out.write(line + "\n")


if __name__ == "__main__":
    main()
