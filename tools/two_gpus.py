"""Which physical card computes for gpu:0, gpu:1, … under each implementation; what all do together.

    .venv/bin/python tools/two_gpus.py
    .venv/bin/python tools/two_gpus.py --model MODEL [--audio FILE] [--files N] [--at-once N]

For a machine with several cards, equal ones above all. Each choice is opened in a process of its
own, is checked against NumPy, and takes memory; the card on which that much memory appears is the
one. The drivers are asked for it: nvidia-smi, or Linux's sysfs for AMD. Exit code 1 if two choices
of one implementation are one card, if the implementations number the cards differently, if a card
computes wrong, or if nothing shows which card it is.

With a model, by name or path, it is loaded by `--device all` on the first card and then on every
card, and transcribes a recording again and again: files a second on one and on all. Exit code 1 if
a card did none of them, or a transcript differs from the first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from oscine.backends import choose_backend, close, list_gpus
from oscine.errors import DeviceError
from oscine.fleet.model import open_fleet
from oscine.gpu.device import PACKAGES, Adapter, adapters

PIECE = 64 << 20
SPOKEN = Path(__file__).resolve().parents[1] / "examples" / "spoken.wav"
Readings = Callable[[], dict[str, int]]


def memory_in_use() -> dict[str, int]:
    """Bytes in use on each physical card, by a name that people know it by."""
    asked = ["nvidia-smi", "--query-gpu=index,uuid,memory.used", "--format=csv,noheader,nounits"]
    used = {}
    try:
        told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        for line in told.splitlines():
            index, uuid, mebibytes = (part.strip() for part in line.split(","))
            used[f"nvidia {index} {uuid}"] = int(mebibytes) << 20
    except (OSError, ValueError, subprocess.SubprocessError):
        pass  # no such card
    for path in sorted(Path("/sys/class/drm").glob("card*/device/mem_info_vram_used")):
        used[f"amd {path.parents[1].name} {path.parent.resolve().name}"] = int(path.read_text())
    return used


def which_card(choice: str, size: int, readings: Readings) -> dict[str, Any]:
    """Open a choice, compute on it, and see on which physical card its memory is."""
    before = readings()
    gpu: Any = choose_backend(choice)  # which checks it against NumPy
    adapter: Adapter = gpu.device.adapter
    right = True
    for number in range(max(size // PIECE, 1)):
        piece = gpu.zeros((PIECE // 4,))
        gpu.write(piece, np.full(PIECE // 4, number, np.float32))
        right = right and bool((gpu.read(piece) == number).all())
    after = readings()
    close(gpu)
    grown = {card: after[card] - before.get(card, 0) for card in after}
    most = max(grown, key=lambda card: grown[card], default="")
    return {
        "adapter": adapter.full_name,
        "identity": adapter.identity,
        "card": most if most and grown[most] >= size // 2 else "",
        "right": right,
    }


def faults(rows: list[dict[str, Any]]) -> list[str]:
    """What is wrong with a table of choices."""
    told, numbered = [], {}
    for row in rows:
        named = f"{row['implementation']} {row['choice']}"
        if problem := row.get("problem"):
            told.append(f"{named}: {problem}")
            continue
        if not row["right"]:
            told.append(f"{named} computes wrong")
        if not row["card"]:
            told.append(f"{named}: nothing shows which card it is")
            continue
        same = [r for r in rows if r is not row and r.get("card") == row["card"]]
        if any(other["implementation"] == row["implementation"] for other in same):
            told.append(f"{named} is a card that another number stands for too")
        if numbered.setdefault(row["choice"], row["card"]) != row["card"]:
            told.append(f"{row['choice']} is another card under {row['implementation']}")
    return told


def cards(implementation: str) -> int:
    """How many hardware adapters it lists."""
    try:
        return sum(not adapter.software for adapter in adapters(implementation))
    except DeviceError:
        return 0


def in_a_process(implementation: str, choice: str, size: int) -> dict[str, Any]:
    """A row of the table, from a process that has this implementation alone."""
    call = [sys.executable, __file__, "--one", choice, "--bytes", str(size)]
    environment = {**os.environ, "OSCINE_WEBGPU": implementation}
    done = subprocess.run(call, capture_output=True, text=True, env=environment)
    row = {"implementation": implementation, "choice": choice}
    try:
        return row | json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        return row | {"problem": last}


def files_a_second(devices: list[str], asked: argparse.Namespace, readings: Readings) -> float:
    """Transcribe the recording on these devices, and print how that went.

    Raises ValueError where a device did nothing, or a transcript differs.
    """
    before, started = readings(), perf_counter()
    with open_fleet(devices, asked.model, "auto", offline=False) as made:
        fleet: Any = made
        loaded = perf_counter() - started
        most = len(devices) * asked.at_once

        def transcribe(_: int) -> Any:
            return fleet.transcribe(asked.audio, temperature=0.0)

        with ThreadPoolExecutor(most) as pool:
            list(pool.map(transcribe, range(2 * most)))  # plans are recorded, memory has grown
            begun = [worker.served for worker in fleet.workers.living()]
            started = perf_counter()
            found = list(pool.map(transcribe, range(asked.files)))
            spent = perf_counter() - started
        shares = [w.served - b for w, b in zip(fleet.workers.living(), begun, strict=True)]
        after = readings()
    grown = {card: (after[card] - before.get(card, 0)) >> 20 for card in after}
    rate = asked.files / spent
    print(f"{len(devices)} of the devices ({made.device}): loaded in {loaded:.1f} s")
    print(f"    {asked.files} files in {spent:.2f} s: {rate:.2f} a second, {most} at once")
    print(f"    {rate * found[0].duration:.0f} times real time; files of each device: {shares}")
    print(f"    MiB more in use: {grown or 'not told'}")
    if not all(shares):
        raise ValueError("a device did nothing")
    if len({transcript.text for transcript in found}) > 1:
        raise ValueError("not all transcripts are the same")
    return rate


def compare(asked: argparse.Namespace) -> int:
    """Files a second on one device and on all."""
    devices = list_gpus()
    one = files_a_second(devices[:1], asked, memory_in_use)
    if len(devices) > 1:
        every = files_a_second(devices, asked, memory_in_use)
        print(f"{len(devices)} devices do {every / one:.2f} times as many as one")
    return 0


def main() -> int:
    """Print the table, and what is wrong with it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=1 << 30, help="memory that each choice takes")
    parser.add_argument("--model", help="compare --device all with one device")
    parser.add_argument("--audio", type=Path, default=SPOKEN, help="what is transcribed")
    parser.add_argument("--files", type=int, default=256, help="how often")
    parser.add_argument("--at-once", type=int, default=16, help="files under way on each device")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(which_card(arguments.one, arguments.bytes, memory_in_use)))
        return 0
    if arguments.model:
        return compare(arguments)
    rows = []
    count = max(cards(implementation) for implementation in PACKAGES)
    for implementation in PACKAGES:
        for number in range(count):
            row = in_a_process(implementation, f"gpu:{number}", arguments.bytes)
            print(f"{implementation:5} gpu:{number}  {row.get('problem') or row['adapter']}")
            if not row.get("problem"):
                print(f"    identity: {row['identity'] or 'not told'}")
                print(f"    computes on: {row['card'] or 'unknown'}, right: {row['right']}")
            rows.append(row)
    told = faults(rows) if rows else ["no hardware GPU"]
    print(
        *told or ["each number is a card of its own, under each implementation the same"], sep="\n"
    )
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
