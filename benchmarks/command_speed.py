"""Wall time of the whole command, beside faster-whisper's: median of five, taken in turns.

    python benchmarks/command_speed.py [--peer-python PATH] [--audio FILE] [--device cpu]

Each starts a process, loads the same weights and transcribes one recording greedily at temperature
0: oscine on the device, on the CPU with NumPy alone and with weights in 8 bits too, and the peer in
float32 and int8. Prints one JSON line. Where something else uses the cores, the processor seconds
say more than the seconds on the wall. PYTHONDONTWRITEBYTECODE is unset, since wheels bring their
byte code. POSIX only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from oscine import hub

HERE = Path(__file__).resolve().parent
RECORDINGS = (HERE.parent.parent / "shared/audio/jfk.flac", HERE.parent / "examples/spoken.wav")

INT8 = {"compute_type": "int8"}
OPTIONS = ("--language", "en", "--temperature", "0", "--temperature-increment-on-fallback", "None")


def seconds(command: list[str], **variables: str) -> tuple[float, float]:
    """Of a command with further environment variables: on the wall, and of the processor."""
    environment = os.environ | variables
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"the command failed: {' '.join(command)}")
    return wall, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer-python", help="a Python that has faster-whisper")
    parser.add_argument("--audio", default=str(next(p for p in RECORDINGS if p.exists())))
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    folder = str(hub.resolve(arguments.model))
    program = [sys.executable, "-c", "from oscine.cli import main; main()", "transcribe"]
    choice = ["--model", folder, "--device", arguments.device, *OPTIONS]
    oscine = [*program, arguments.audio, *choice]
    commands: dict[str, tuple[list[str], dict[str, str]]] = {"oscine": (oscine, {})}
    if arguments.device == "cpu":
        commands["oscine_numpy"] = oscine, {"OSCINE_CPU": "numpy"}
        commands["oscine_q8"] = [*oscine, "--dtype", "q8"], {}
    if arguments.peer_python:
        peer = [arguments.peer_python, str(HERE / "peer_faster_whisper.py"), folder, "en"]
        for name, options in (("faster_whisper", {}), ("faster_whisper_int8", INT8)):
            commands[name] = [*peer, json.dumps(options), arguments.audio], {}
    times: dict[str, list[float]] = {name: [] for name in commands}
    processor: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(arguments.runs + 1):
        for name, (command, variables) in commands.items():
            wall, used = seconds(command, **variables)
            if number:  # the first of each warms the file cache
                times[name].append(round(wall, 3))
                processor[name].append(round(used, 3))
    medians = {name: statistics.median(values) for name, values in times.items()}
    row = {
        "benchmark": "command_speed",
        "recording": Path(arguments.audio).name,
        "model": arguments.model,
        "device": arguments.device,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "median_seconds": medians,
        "median_processor_seconds": {n: statistics.median(v) for n, v in processor.items()},
        "seconds": times,
    }
    row["ratios"] = {name: round(medians["oscine"] / each, 2) for name, each in medians.items()}
    print(json.dumps(row))


if __name__ == "__main__":
    main()
