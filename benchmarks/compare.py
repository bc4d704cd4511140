"""Two versions of oscine on one machine, in the order A B A B, each by its own benchmarks.

Whisper's encoder and decoder step, alone and in a batch of 16, Parakeet's encoder and loop, a frame
of speech and its first audio; or, with --cpu, whole commands with NumPy. A against A, in the same
table, is the noise of the machine. What both versions print under one name is compared.

Usage: compare.py FOLDER_A FOLDER_B [--rounds 2] [--runs 7] [--implementations dawn,wgpu] [--cpu]
           [--logs FOLDER] [--json FILE]

Each folder has src/ and benchmarks/: `git archive COMMIT src benchmarks | tar -x -C FOLDER_A`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

#: Of the figures that the benchmarks print, those that are times of the work itself.
FIGURES = (
    "encoder_ms",
    "step_ms",
    "ms",
    "frame_ms",
    "talker_ms",
    "predictor_ms",
    "codec_1_ms",
    "codec_4_ms",
    "first_audio_ms",
)


def measure(tree: Path, arguments: argparse.Namespace, implementation: str) -> dict[str, float]:
    """One round of one version on the GPU: figures in milliseconds by case."""
    runs = str(arguments.runs)
    found: dict[str, float] = {}
    for script, options in (
        ("gpu", ["--repeat", runs]),
        ("batch", ["--batches", "16", "--repeat", runs]),
        ("parakeet", ["--batch", "1", "--runs", runs]),
        ("transducer", ["--batch", "1", "--runs", runs]),
        (
            "speech",
            ["--size", "0.6b", "--runs", runs, "--keep", str(arguments.logs / "checkpoints")],
        ),
    ):
        command = [sys.executable, str(tree / "benchmarks" / f"{script}.py"), *options]
        ran = subprocess.run(
            command, env=environment(tree, implementation), text=True, capture_output=True
        )
        name = f"{tree.name}-{implementation}-{script}.txt"
        with (arguments.logs / name).open("a", encoding="utf-8") as log:
            log.write(ran.stdout + ran.stderr)
        if ran.returncode:
            print(f"{tree.name}: {script}.py ended with {ran.returncode}; see {name}", flush=True)
        for line in ran.stdout.splitlines():
            found |= dict(figures(line, script))
    return found


def figures(line: str, script: str) -> Iterator[tuple[str, float]]:
    """The times in one line of a benchmark's output, by case."""
    if line.startswith("{"):
        record = json.loads(line)
        for name, value in record.items():
            if name in FIGURES and isinstance(value, int | float):
                yield f"{record.get('case', script)} {name}", float(value)


def environment(tree: Path, implementation: str = "") -> dict[str, str]:
    """This process's environment with the version's source first."""
    paths = [str(tree / "src"), os.environ.get("PYTHONPATH", "")]
    chosen = {"OSCINE_WEBGPU": implementation} if implementation else {}
    return {**os.environ, **chosen, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def commands(tree: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """One round of one version on the CPU: medians of whole commands in milliseconds."""
    sound = Path(__file__).resolve().parent.parent / "examples" / "spoken.wav"
    cases = {
        "--version": ["--version"],
        "transcribe --help": ["transcribe", "--help"],
        "models list": ["models", "list"],
        "transcribe, tiny.en": ["transcribe", str(sound), "--model", "tiny.en", "--device", "cpu"],
        "transcribe, base": ["transcribe", str(sound), "--model", "base", "--device", "cpu"],
    }
    found = {}
    for name, command in cases.items():
        times = []
        for _ in range(arguments.runs):
            began = time.perf_counter()
            program = [sys.executable, "-P", "-m", "oscine", *command]
            subprocess.run(program, env=environment(tree), check=True, capture_output=True)
            times.append(1000 * (time.perf_counter() - began))
        found[f"{name} ms"] = median(times)
    return found


def show(
    implementation: str, rounds: list[tuple[dict[str, float], dict[str, float]]]
) -> list[dict[str, object]]:
    """Print a table of one implementation; the same as records."""
    records: list[dict[str, object]] = []
    print(
        f"\n{implementation:44}"
        + "".join(f"{f'A{i}':>9}{f'B{i}':>9}" for i in range(1, 1 + len(rounds))),
        end="",
    )
    print(f"{'A/A':>8}{'B/A':>8}")
    for case in dict.fromkeys(case for pair in rounds for found in pair for case in found):
        first = [a[case] for a, _ in rounds if case in a]
        second = [b[case] for _, b in rounds if case in b]
        if not (first and second):
            print(f"{case:44} only {'A' if first else 'B'} has it")
            continue
        pairs = "".join(f"{a:9.3f}{b:9.3f}" for a, b in zip(first, second, strict=False))
        ratios = first[-1] / first[0], median(second) / median(first)
        print(f"{case:44}{pairs}{ratios[0]:8.3f}{ratios[1]:8.3f}")
        records.append({"case": case, "implementation": implementation, "a": first, "b": second})
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--runs", type=int, default=7, help="of each figure, which is their median")
    parser.add_argument("--implementations", default="dawn")
    parser.add_argument("--cpu", action="store_true", help="whole commands, in place of a GPU")
    parser.add_argument("--logs", type=Path, default=Path("/tmp/oscine-compare"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.logs.mkdir(parents=True, exist_ok=True)
    trees = arguments.a.resolve(), arguments.b.resolve()
    records, began = [], time.monotonic()
    for implementation in ["cpu"] if arguments.cpu else arguments.implementations.split(","):
        rounds = []
        for _ in range(arguments.rounds):
            a, b = (
                commands(tree, arguments)
                if arguments.cpu
                else measure(tree, arguments, implementation)
                for tree in trees
            )
            rounds.append((a, b))
            print(f"{implementation}: a round done, {time.monotonic() - began:.0f} s", flush=True)
        records += show(implementation, rounds)
    if arguments.json:
        arguments.json.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


if __name__ == "__main__":
    main()
