"""Damage checkpoints and recordings at random, and see that oscine reads or refuses each.

    python tools/fuzz.py --seconds 60             # what CI does; the seed is printed
    python tools/fuzz.py --seconds 3600 --only recordings --seed 7
    python tools/fuzz.py --again tests/fuzz_corpus/NAME

A crash, an answer that takes longer than 30 s, memory beyond 3 GiB, an error that is none of
oscine's, or one of several lines is a finding: it is kept in a folder of its own under `--keep`,
once for each cause, and the exit code is 1. A decoder that crashes in a process of its own is told
and kept too, and is none, as it costs one recording. What is mended moves to tests/fuzz_corpus,
which tests/test_fuzz.py reads. A number of an input and the seed make the same input again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fuzzing.mutations import damaged
from fuzzing.processes import Answer, Reader
from fuzzing.seeds import Seed, checkpoints, recordings

ROOT = Path(__file__).resolve().parent.parent


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", default=time.strftime("%Y-%m-%d"))
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", choices=("checkpoints", "recordings"))
    parser.add_argument("--keep", type=Path, default=ROOT / ".cache" / "fuzz")
    parser.add_argument("--again", type=Path, help="a folder of a finding to read once more")
    return parser.parse_args()


def made(seeds: list[Seed], random: Random, folder: Path) -> tuple[Seed, str, Path]:
    """A seed with one file damaged, in a folder: seed, name of the file, what oscine is given."""
    seed = random.choice(seeds)
    name = random.choice(list(seed.files))
    peers = [other for other in seeds if other.kind == seed.kind]
    other = random.choice(list(random.choice(peers).files.values()))
    shutil.rmtree(folder, ignore_errors=True)
    for file, content in seed.files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        changed = damaged(content, other, random) if file == name else content
        (folder / file).write_bytes(changed)
    return seed, name, folder / seed.main


def keep(place: Path, seed: Seed, name: str, folder: Path, answer: Answer, label: str) -> None:
    """The damaged file, and what it is part of."""
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / name, place / "input")
    about = {
        "base": seed.name, "file": name, "kind": seed.kind, "from": label, "what": answer.what,
    }  # fmt: skip
    (place / "about.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    (place / "trace.txt").write_text(answer.trace, "utf-8")


def again(place: Path, folder: Path, reader: Reader) -> Answer:
    """Read a finding that was kept."""
    about = json.loads((place / "about.json").read_text("utf-8"))
    if about["kind"] == "recording":
        shutil.copy(place / "input", folder / about["file"])
        return reader.read("recording", folder / about["file"])
    (seed,) = (seed for seed in checkpoints() if seed.name == about["base"])
    for file, content in seed.files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    shutil.copy(place / "input", folder / about["file"])
    return reader.read(seed.kind, folder / seed.main)


def hunt(asked: argparse.Namespace, folder: Path, reader: Reader) -> tuple[Counter[str], int]:
    """Damage and read until the time is over: how many had which outcome, and the findings."""
    seeds = [] if asked.only == "recordings" else checkpoints()
    seeds += [] if asked.only == "checkpoints" else recordings()
    outcomes: Counter[str] = Counter()
    seen: set[str] = set()
    findings = 0
    largest, number = 0, asked.first
    end = time.monotonic() + asked.seconds
    while time.monotonic() < end:
        label = f"{asked.seed}/{number}"
        seed, name, given = made(seeds, Random(label), folder)
        answer = reader.read(seed.kind, given)
        number += 1
        outcomes[f"{seed.kind} {answer.outcome}"] += 1
        largest = max(largest, answer.mebibytes)
        told = answer.outcome in ("finding", "contained") and answer.signature not in seen
        seen |= {answer.signature} if told else set()
        if told:
            findings += answer.outcome == "finding"
            place = asked.keep / f"{asked.seed}-{number - 1}"
            keep(place, seed, name, folder, answer, label)
            print(f"{label}: {seed.name}, {name}: {answer.what}\n  kept in {place}", flush=True)
    print(f"largest process {largest} MiB")
    return outcomes, findings


def main() -> int:
    asked = arguments()
    reader = Reader()
    with TemporaryDirectory(prefix="oscine-fuzz-") as temporary:
        folder = Path(temporary) / "input"
        try:
            if asked.again:
                folder.mkdir()
                answer = again(asked.again, folder, reader)
                print(f"{answer.outcome}: {answer.what}\n{answer.trace}")
                return int(answer.outcome == "finding")
            print(f"seed {asked.seed}", flush=True)
            outcomes, findings = hunt(asked, folder, reader)
        finally:
            reader.close()
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:8} {outcome}")
    print(f"{sum(outcomes.values())} inputs, {findings} findings")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
