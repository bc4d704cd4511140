"""A long recording made of short ones: batches against one window after another, and the peer.

    python benchmarks/long_form.py [--peer-python PATH] [--minutes 20] [--models tiny.en base]
    python benchmarks/long_form.py --write FILE --minutes 20

The English recordings whose speaker's own text is known follow each other in a seeded order with
0.5 to 6 s of faint noise between them. Every run is a process of its own, greedy at temperature 0
in float32. Printed as JSON lines, and as tables into benchmarks/long.md: word error rates, seconds,
peak memory on the whole and on a quarter of it, how far the two ways agree word by word, and the
runs of words that one of them has, and the speaker said, and the other lacks.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import wave
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
from recordings import AUDIO, HERE, digits_alike, normalised, read_manifest, run_peer

import oscine
from oscine.audio.io import decode
from oscine.models.whisper.released import MODELS

RATE = 16000
SEED = 3
GAP = (0.5, 6.0)  # seconds
NOISE = 1e-4  # deviation of what is heard between recordings
RUN = 3  # words in a row that are lost text; fewer are misheard

MODES: dict[str, dict[str, Any]] = {
    "one after another": {},
    "batched 8": {"batch_size": 8},
}
PEER_MODES: dict[str, dict[str, Any]] = {
    "one after another": {"vad_filter": True},
    "batched 8": {"batch_size": 8, "without_timestamps": False},
}


def long_recording(folder: Path, minutes: float) -> tuple[np.ndarray, str]:
    """Samples at 16 kHz of at most so many minutes, and what is said in them."""
    chance = np.random.default_rng(SEED)
    clips = [clip for clip in read_manifest(folder) if clip.is_true and clip.language == "en"]
    sounds = {clip.file: decode(folder / clip.file).samples for clip in clips}
    most, parts, said = round(minutes * 60 * RATE), [], []
    length = 0
    while True:
        for at in chance.permutation(len(clips)):
            sound = sounds[clips[at].file]
            gap = np.zeros(round(chance.uniform(*GAP) * RATE), np.float32)
            gap += chance.normal(0, NOISE, len(gap)).astype(np.float32)
            length += len(sound) + len(gap)
            if length > most:
                return np.concatenate(parts), " ".join(said)
            parts += [sound, gap]
            said.append(clips[at].transcript)


def write(target: Path, samples: np.ndarray) -> None:
    with wave.open(str(target), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", "not compressed"))
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def child(arguments: argparse.Namespace) -> None:
    """One run in this process; a JSON line like the peer's."""
    options = json.loads(arguments.options)
    model = oscine.load(arguments.child, arguments.device, "f32")
    started, before = time.perf_counter(), time.process_time()
    made = model.transcribe(arguments.file, language="en", temperature=0.0, **options)
    row = {
        "text": made.text,
        "segments": [[s.start, s.end, s.text] for s in made.segments],
        "seconds": round(time.perf_counter() - started, 2),
        "processor_seconds": round(time.process_time() - before, 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }
    print(json.dumps(row, ensure_ascii=False))


def run_oscine(name: str, device: str, options: dict[str, Any], file: Path) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "long_form.py"), "--child", name, "--device", device]
    command += ["--options", json.dumps(options), "--file", str(file)]
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    row: dict[str, Any] = json.loads(made)
    return row


def comparable(text: str) -> str:
    return digits_alike(normalised(text, "en"))


def matched(expected: str, found: str) -> list[bool]:
    """Of each expected word, whether it is found in its place."""
    marks = [False] * len(expected.split())
    for chunk in jiwer.process_words(expected, found).alignments[0]:
        if chunk.type == "equal":
            for at in range(chunk.ref_start_idx, chunk.ref_end_idx):
                marks[at] = True
    return marks


def agreement(one: str, other: str) -> float:
    """Percent of the words of two texts that are the same, in order."""
    return 200 * sum(matched(one, other)) / (len(one.split()) + len(other.split()))


def lost(expected: str, by: str, kept: str) -> list[str]:
    """Runs of words that were said and `kept` and are not found in `by`."""
    words, runs = expected.split(), []
    run: list[str] = []
    for word, here, there in zip(
        [*words, ""], [*matched(expected, by), True], [*matched(expected, kept), True], strict=True
    ):
        if there and not here:
            run.append(word)
            continue
        if len(run) >= RUN:
            runs.append(" ".join(run))
        run = []
    return runs


def measure(name: str, arguments: argparse.Namespace, files: list[Path], said: str) -> list[str]:
    """Table lines of one model, and its two ways compared."""
    lines, texts = [], {}
    expected = comparable(said)
    for mode, options in MODES.items():
        whole, part = (run_oscine(name, arguments.device, options, file) for file in files)
        texts[mode] = comparable(whole["text"])
        error = 100 * jiwer.wer(expected, texts[mode])
        row = {"model": name, "mode": mode, "wer": round(error, 2), "part_mb": part["peak_mb"]}
        print(json.dumps(row | whole, ensure_ascii=False), flush=True)
        cells = (
            f"{error:.2f}",
            f"{whole['seconds']:.0f} s",
            f"{whole['processor_seconds']:.0f} s",
            f"{part['peak_mb']:.0f} MB",
            f"{whole['peak_mb']:.0f} MB",
        )
        lines.append(f"| {name} | oscine, {mode} | {' | '.join(cells)} |")
    for mode, options in PEER_MODES.items() if arguments.peer_python else ():
        (row,) = run_peer(arguments.peer_python, name, "en", options, files[:1])
        error = 100 * jiwer.wer(expected, comparable(row["text"]))
        print(json.dumps({"model": name, "peer": mode, "wer": round(error, 2)} | row), flush=True)
        cells = (f"{error:.2f}", f"{row['seconds']:.0f} s", "", "", f"{row['peak_mb']:.0f} MB")
        lines.append(f"| {name} | faster-whisper, {mode} | {' | '.join(cells)} |")
    one, other = texts.values()
    missing = lost(expected, other, one), lost(expected, one, other)
    print(json.dumps({"model": name, "lost": missing}), flush=True)
    lines += [
        "",
        f"{name}: both ways of oscine agree on {agreement(one, other):.2f} % of words. Runs of"
        f" {RUN} words and more that were said and that only one has: {len(missing[1])} in"
        f" batches, {len(missing[0])} one after another.",
        "",
    ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer-python", help="a Python that has faster-whisper")
    parser.add_argument("--audio", type=Path, default=AUDIO, help="folder with a manifest.jsonl")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base"], choices=MODELS)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--write", type=Path, help="only write the recording there")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--options", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments)
    samples, said = long_recording(arguments.audio, arguments.minutes)
    if arguments.write:
        write(arguments.write, samples)
        arguments.write.with_suffix(".txt").write_text(said + "\n", "utf-8")
        return None
    header = "| model | program | WER | wall | processor | peak, a quarter | peak, whole |"
    lines = [
        "# Long recordings",
        "",
        f"{len(samples) / RATE / 60:.1f} minutes of short recordings with {GAP[0]} to {GAP[1]} s of"
        " faint noise between them, greedy at temperature 0, float32; oscine on"
        f" {arguments.device}, listening for speech; faster-whisper with vad_filter=True. Words are"
        " normalised, lists of digits written alike. Made by benchmarks/long_form.py.",
    ]
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / "whole.wav", Path(scratch) / "quarter.wav"]
        write(files[0], samples)
        write(files[1], samples[: len(samples) // 4])
        for name in arguments.models:
            lines += ["", header, "|---|---|---|---|---|---|---|"]
            lines += measure(name, arguments, files, said)[:-1]
    print("\n".join(lines))
    (HERE / "long.md").write_text("\n".join(lines) + "\n", "utf-8")
    return None


if __name__ == "__main__":
    main()
