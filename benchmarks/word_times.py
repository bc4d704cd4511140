"""Times of words beside faster-whisper's: how far apart the same words begin and end.

    python benchmarks/word_times.py --peer-python PATH [--audio FOLDER] [--device cpu]

Both decode greedily at temperature 0 in float32. Words are matched by their letters in order, so
only what both heard counts; of oscine's alone: the share of words that have a time, and whether
all times are in order and inside the recording. Prints a JSON line a recording, then the table,
which also goes to benchmarks/words.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from recordings import AUDIO, HERE, normalised, run_peer

import oscine
from oscine.models.whisper.released import ENGLISH, MODELS
from oscine.types import Transcript

FAR = 0.2  # seconds
Word = tuple[float, float, str]
Options = dict[str, Any]

#: What each program is asked for beside words; the rest as each has it by default.
MODES: dict[str, tuple[Options, Options]] = {
    "one after another": ({}, {"vad_filter": True}),
    "one after another, no VAD": ({"vad_filter": False}, {}),
    "batched 8": ({"batch_size": 8}, {"batch_size": 8, "without_timestamps": False}),
}


@dataclass
class Times:
    """What is known of the words of some recordings; times in seconds."""

    words: int = 0
    timed: int = 0
    in_order: bool = True
    starts: list[float] = field(default_factory=list)  # ours less the peer's
    ends: list[float] = field(default_factory=list)

    def add(self, other: Times) -> None:
        self.words += other.words
        self.timed += other.timed
        self.in_order &= other.in_order
        self.starts += other.starts
        self.ends += other.ends

    def summary(self) -> dict[str, Any]:
        row: dict[str, Any] = {"words": self.words, "timed": self.timed, "in_order": self.in_order}
        row["matched"] = len(self.starts)
        for name, values in (("start", self.starts), ("end", self.ends)):
            apart = [abs(value) for value in values] or [0.0]
            row[f"median_{name}_ms"] = round(1000 * median(apart))
            row[f"bias_{name}_ms"] = round(1000 * median(values or [0.0]))
            row[f"far_{name}_percent"] = round(100 * sum(a > FAR for a in apart) / len(apart), 1)
        return row


def compared(made: Transcript, peer: list[Word]) -> Times:
    """One recording's words; both in order of time."""
    mine = [(w.start, w.end, w.word) for s in made.segments for w in s.words or ()]
    edges = [edge for start, end, _ in mine for edge in (start, end)]
    inside = all(0 <= edge <= made.duration for edge in edges)
    untimed = sum("".join(w.word for w in s.words or ()) != s.text for s in made.segments)
    times = Times(
        words=len(mine) + untimed,
        timed=sum(start < end for start, end, _ in mine),
        in_order=inside and all(a <= b for a, b in pairwise(edges)),
    )
    keys = [[normalised(word, "") for _, _, word in words] for words in (mine, peer)]
    for block in SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks():
        for at in range(block.size):
            ours, theirs = mine[block.a + at], peer[block.b + at]
            times.starts.append(ours[0] - theirs[0])
            times.ends.append(ours[1] - theirs[1])
    return times


def measure(name: str, arguments: argparse.Namespace, mode: str) -> Times:
    """One model in one mode on every recording that it knows the language of."""
    lines = (arguments.audio / "manifest.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["language"] != "none"]
    english = [row["file"] for row in rows if row["language"] == "en"]
    others = [row["file"] for row in rows if row["language"] != "en"]
    if MODELS[name].n_vocab == ENGLISH:
        others = []
    model = oscine.load(name, arguments.device, "f32")
    ours, theirs = MODES[mode]
    total = Times()
    for language, names in (("en", english), ("auto", others)):
        files = [arguments.audio / file for file in names]
        options = {"word_timestamps": True, **theirs}
        found = run_peer(arguments.peer_python, name, language, options, files) if files else []
        for file, row in zip(files, found, strict=True):
            known = None if language == "auto" else language
            made = model.transcribe(
                file, language=known, temperature=0.0, word_timestamps=True, **ours
            )
            times = compared(made, [tuple(word) for word in row["words"]])
            total.add(times)
            print(json.dumps({"model": name, "mode": mode, "file": file.name} | times.summary()))
            sys.stdout.flush()
    return total


def line(name: str, mode: str, times: Times) -> str:
    row = times.summary()
    cells = (
        name,
        mode,
        f"{100 * times.timed / max(1, times.words):.1f} % of {times.words}",
        "yes" if times.in_order else "no",
        str(row["matched"]),
        *(
            f"{row[f'median_{edge}_ms']} ms ({row[f'bias_{edge}_ms']:+d} ms), "
            f"{row[f'far_{edge}_percent']} %"
            for edge in ("start", "end")
        ),
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer-python", required=True, help="a Python that has faster-whisper")
    parser.add_argument("--audio", type=Path, default=AUDIO, help="folder with a manifest.jsonl")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base"])
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    arguments = parser.parse_args()
    if not (arguments.audio / "manifest.jsonl").exists():
        sys.exit(f"{arguments.audio}: no manifest.jsonl there; name a folder with --audio")
    lines = [
        "# Times of words",
        "",
        "oscine beside faster-whisper on the same weights: float32, greedy, temperature 0; oscine"
        f" on {arguments.device}. Made by benchmarks/word_times.py.",
        "Starts and ends: the median of absolute differences (that of differences, ours less"
        f" theirs), and the share that is more than {FAR} s apart."
        ' Both listen for speech before they transcribe, except under "no VAD".',
        "",
        "| model | mode | words with a time | in order, inside | heard by both | starts | ends |",
        "|---|---|---|---|---|---|---|",
        *(
            line(name, mode, measure(name, arguments, mode))
            for name in arguments.models
            for mode in arguments.modes
        ),
    ]
    print("\n".join(lines[5:]))
    (HERE / "words.md").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
