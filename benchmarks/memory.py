"""Peak memory of the whole command on one minute and on ten minutes of speech.

    python benchmarks/memory.py [--audio FILE...] [--model tiny.en] [--device cpu]

The recordings are repeated in turn until the time is filled. What grows with the length of a file
shows as the difference. Prints one JSON line; POSIX only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import wave
from itertools import cycle
from pathlib import Path

import av

from oscine import hub

HERE = Path(__file__).resolve().parent
SHARED = HERE.parent.parent / "shared/audio"
RATE = 16000
OPTIONS = ("--language", "en", "--temperature", "0", "--temperature-increment-on-fallback", "None")


def samples(file: Path) -> bytes:
    """A recording as 16 kHz mono, 16 bit."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    with av.open(str(file)) as source:
        frames = [*source.decode(audio=0), None]  # None flushes the resampler
        pieces = [piece for frame in frames for piece in resampler.resample(frame)]
    return b"".join(piece.to_ndarray().tobytes() for piece in pieces)


def write_minutes(target: Path, recordings: list[Path], minutes: int) -> None:
    left = minutes * 60 * RATE * 2
    with wave.open(str(target), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", "not compressed"))
        for block in cycle([samples(path) for path in recordings]):
            file.writeframes(block[:left])
            left -= len(block)
            if left <= 0:
                return


def peak_megabytes(command: list[str]) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"the command failed: {' '.join(command)}")
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kibibytes elsewhere
    return round(usage.ru_maxrss * unit / 1e6, 1)


def default_recordings() -> list[Path]:
    names = ("jfk.flac", "lhotse_libri-1088-134315-0000.wav", "libri_3436-172162-0000.ogg")
    found = [SHARED / name for name in names if (SHARED / name).exists()]
    return found or [HERE.parent / "examples/spoken.wav"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audio", type=Path, nargs="+", default=default_recordings())
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    folder = str(hub.resolve(arguments.model))
    program = [sys.executable, "-c", "from oscine.cli import main; main()", "transcribe"]
    choice = ["--model", folder, "--device", arguments.device, *OPTIONS]
    peaks = {}
    with tempfile.TemporaryDirectory() as scratch:
        for minutes in (1, 10):
            file = Path(scratch) / f"{minutes}.wav"
            write_minutes(file, arguments.audio, minutes)
            peaks[f"{minutes}_min"] = peak_megabytes([*program, str(file), *choice])
    row = {
        "benchmark": "memory",
        "model": arguments.model,
        "device": arguments.device,
        "peak_mb": peaks,
        "growth_mb": round(peaks["10_min"] - peaks["1_min"], 1),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
