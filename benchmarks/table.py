#!/usr/bin/env python3
"""One table: every benchmark of the GPU beside its peers, in one run, and ratios that are kept.

Usage: table.py [--rows encoder,step,...] [--implementations dawn,wgpu] [--seconds 480]
           [--peer-python PYTHON] [--whisper-cpp PROGRAM MODEL] [--keep FOLDER] [--logs FOLDER]
           [--ratios FILE] [--compare FILE] [--json FILE]

Each row runs the benchmarks that give it, then its peers where their packages are installed, each
in a process of its own with a limit of time. A row that fails costs one line, and the others go on;
what --seconds has no time for is left out by name. The limit of a row is its operations or bytes at
the rates that a matrix product and a copy reach in the same run. Rows: table_rows.py.

Prints a JSON line a case, then a table in Markdown. --ratios (benchmarks/ratios.json) is updated
with the cases that were measured: ours, over each peer and over the limit. --compare marks what is
slower than in such a file by more than noise: ratios to peers where both runs have them, else the
times themselves where the device is the same. PROGRAM is whisper.cpp's whisper-bench, MODEL a turbo
in its format; it has a weight format of its own, so its figures stand beside the row of PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from table_rows import CASES, LIMITS, ROWS, Case, Job, Records

HERE = Path(__file__).resolve().parent
NOISE = 0.05  # of a ratio, beside the spread of its repeats
SHORTEST_S = 5.0  # less time is not worth the start of a process
#: Lines of whisper-bench: the case, and the pattern of its milliseconds a run.
WHISPER_CPP = {
    "turbo encoder, one window": r"encode time = .*?([\d.]+) ms per run",
    "turbo step, batch 1": r"decode time = .*?([\d.]+) ms per run",
}


class Run:
    """The processes of one run: each job once for each implementation, within the time there is."""

    def __init__(self, options: argparse.Namespace, keep: Path) -> None:
        self.options, self.keep = options, keep
        self.ends = perf_counter() + options.seconds
        self.done: dict[tuple[Job, str], Records] = {}

    def records(self, job: Job, implementation: str = "") -> Records:
        """The JSON lines of a job; none where it failed, or is left out."""
        key = job, implementation
        if key not in self.done:
            self.done[key] = self.start(job, implementation)
        return self.done[key]

    def start(self, job: Job, implementation: str) -> Records:
        """Run a job, and log what it prints. Says in one line why it gives nothing."""
        title = f"{implementation} {job.script} {job.arguments}".strip()
        if job.packages and not has_packages(self.options.peer_python, job.packages):
            warn(f"{job.script}: left out, {self.options.peer_python} lacks {job.packages}")
            return []
        left = min(job.budget_s, self.ends - perf_counter())
        if left < SHORTEST_S:
            warn(f"{title}: left out, no time is left")
            return []
        python = self.options.peer_python if job.packages else sys.executable
        arguments = job.arguments.format(keep=self.keep).split()
        started, found = perf_counter(), ""
        try:
            ran = subprocess.run(
                [python, str(HERE / job.script), *arguments],
                env=environment(implementation), text=True, capture_output=True, timeout=left,
            )  # fmt: skip
            found, said = ran.stdout, ran.stderr
            problem = f"ended with {ran.returncode}: {last_line(said)}" if ran.returncode else ""
        except subprocess.TimeoutExpired as error:
            found, said = text_of(error.stdout), text_of(error.stderr)
            problem = f"stopped after {left:.0f} s"
        name = re.sub(r"[^\w.-]+", "_", title)
        (self.options.logs / f"{name[:120]}.txt").write_text(found + said, "utf-8")
        warn(f"{title}: {problem or f'{perf_counter() - started:.0f} s'}")
        return [json.loads(line) for line in found.splitlines() if is_record(line)]


def environment(implementation: str) -> dict[str, str]:
    """This process's environment with the source of the checkout, and the implementation."""
    paths = [str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
    chosen = {"OSCINE_WEBGPU": implementation} if implementation else {}
    return {**os.environ, **chosen, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def has_packages(python: str, names: tuple[str, ...]) -> bool:
    """Whether a Python has all these packages; none is imported."""
    test = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, {names!r})))"
    return subprocess.run([python, "-c", test], capture_output=True).returncode == 0


def is_record(line: str) -> bool:
    """Whether a line is a whole JSON object."""
    return line.startswith("{") and line.rstrip().endswith("}")


def last_line(text: str) -> str:
    """The last line of a text that is not empty."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")[:200]


def text_of(output: bytes | str | None) -> str:
    """What a stopped process had printed."""
    return output.decode("utf-8", "replace") if isinstance(output, bytes) else output or ""


def warn(line: str) -> None:
    """A line on stderr, since stdout has the results."""
    print(line, file=sys.stderr, flush=True)


def measure(case: Case, run: Run, implementation: str) -> dict[str, Any] | None:
    """One case on one implementation, with its peers and its limit; None where it has no figure."""
    records = run.records(case.ours.job, implementation)
    found = case.ours.read(records)
    if found is None:
        return None
    value, spread = found
    device = next((record["device"] for record in records if "device" in record), "")
    row: dict[str, Any] = {
        "case": case.name, "row": case.row, "implementation": implementation, "device": device,
        "unit": case.unit, "ours": value, "spread": spread, "peers": {}, "over_peer": {},
    }  # fmt: skip
    for name, figure in case.peers.items():
        if (theirs := figure.read(run.records(figure.job))) is not None:
            row["peers"][name], row["over_peer"][name] = theirs[0], value / theirs[0]
    (limits, *_) = run.records(LIMITS, implementation) or [None]
    if limits is not None and (limit := case.limit(limits, records)):
        row |= {"limit": limit, "over_limit": value / limit}
    return row


def whisper_cpp(options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of the cases that whisper-bench measures; none where it is not given."""
    if options.whisper_cpp is None:
        return {}
    program, model = options.whisper_cpp
    try:
        ran = subprocess.run(
            [program, "-m", model], text=True, capture_output=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        warn(f"whisper.cpp: {error}")
        return {}
    matches = {case: re.search(pattern, ran.stderr) for case, pattern in WHISPER_CPP.items()}
    return {case: float(match[1]) for case, match in matches.items() if match}


def rows_of(run: Run, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every case that gives a figure, those of the first implementation before all others."""
    theirs = whisper_cpp(options)
    for implementation in options.implementations.split(","):
        for case in CASES:
            if case.row in options.rows and (row := measure(case, run, implementation)):
                if case.name in theirs:
                    row["peers"]["whisper.cpp"] = theirs[case.name]
                    row["over_peer"]["whisper.cpp"] = row["ours"] / theirs[case.name]
                yield row


# -- ratios, and what is slower ---------------------------------------------------------------


def key_of(row: dict[str, Any]) -> tuple[str, str]:
    """By what rows of two runs are compared."""
    return row["case"], row["implementation"]


def read_ratios(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of a file of ratios; none where there is no file."""
    rows = json.loads(path.read_text("utf-8")) if path.exists() else []
    return {key_of(row): row for row in rows}


def write_ratios(path: Path, rows: list[dict[str, Any]]) -> None:
    """Replace the rows of a file that were measured, and keep the others."""
    merged = read_ratios(path) | {key_of(row): row for row in rows}
    path.write_text(json.dumps([*merged.values()], indent=1) + "\n", "utf-8")


def change(row: dict[str, Any], before: dict[str, Any]) -> float | None:
    """How much slower a case is than it was, by ratios to the same peers; 1.1: a tenth slower.

    Where a run has no peer, the figures themselves, if they are of one device; else None.
    """
    shared = row["over_peer"].keys() & before["over_peer"].keys()
    if shared:
        name = min(shared)
        ratio = row["over_peer"][name] / before["over_peer"][name]
    elif row["device"] == before["device"]:
        ratio = row["ours"] / before["ours"]
    else:
        return None
    return float(ratio if row["unit"] in ("ms", "s") else 1 / ratio)


def is_slower(row: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether a case is slower than it was by more than noise."""
    ratio = change(row, before)
    return ratio is not None and ratio > 1 + NOISE + row["spread"] + before["spread"]


def table(rows: list[dict[str, Any]], before: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    """The lines of a table in Markdown: a line a case, a column an implementation."""
    implementations = [*dict.fromkeys(row["implementation"] for row in rows)]
    heads = ["case", *implementations, "peers", "limit", *(["since"] if before else [])]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in dict.fromkeys(row["case"] for row in rows):
        mine = {row["implementation"]: row for row in rows if row["case"] == name}
        first = next(iter(mine.values()))
        cells = [f"{name}, {first['unit']}"]
        cells += [digits(mine[i]["ours"]) if i in mine else "" for i in implementations]
        cells.append(", ".join(f"{who} {digits(v)}" for who, v in first["peers"].items()))
        cells.append(digits(first["limit"]) if "limit" in first else "")
        if before:
            cells.append(", ".join(since(row, before) for row in mine.values()))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def since(row: dict[str, Any], before: dict[tuple[str, str], dict[str, Any]]) -> str:
    """How a case has changed, for the table."""
    earlier = before.get(key_of(row))
    ratio = change(row, earlier) if earlier else None
    if earlier is None or ratio is None:
        return "-"
    return f"{ratio:.2f}{' **slower**' if is_slower(row, earlier) else ''}"


def digits(value: float) -> str:
    """Three digits, or more before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help=", ".join(ROWS))
    parser.add_argument("--implementations", default="dawn,wgpu")
    parser.add_argument("--seconds", type=float, default=480, help="of the whole run")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--whisper-cpp", nargs=2, metavar=("PROGRAM", "MODEL"))
    parser.add_argument("--keep", type=Path, help="where checkpoints are, or are made and kept")
    parser.add_argument("--logs", type=Path, default=Path(tempfile.gettempdir()) / "oscine-table")
    parser.add_argument("--ratios", type=Path, default=HERE / "ratios.json")
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.rows = options.rows.split(",")
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"there is no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    if options.compare and not options.compare.exists():
        parser.error(f"{options.compare} is not there; a run without --compare writes --ratios")
    options.logs.mkdir(parents=True, exist_ok=True)
    before = read_ratios(options.compare) if options.compare else {}
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        keep = options.keep or Path(scratch)
        for row in rows_of(Run(options, keep), options):
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.json:
        with options.json.open("a", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
    if rows:
        write_ratios(options.ratios, rows)
        print("\n" + "\n".join(table(rows, before)))
    slower = [row["case"] for row in rows if is_slower_than(row, before)]
    sys.exit(f"slower than before: {', '.join(slower)}" if slower else 0 if rows else 1)


def is_slower_than(row: dict[str, Any], before: dict[tuple[str, str], dict[str, Any]]) -> bool:
    """Whether a row is slower than its row of an earlier run."""
    earlier = before.get(key_of(row))
    return earlier is not None and is_slower(row, earlier)


if __name__ == "__main__":
    main()
