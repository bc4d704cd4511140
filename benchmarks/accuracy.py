"""Word and character error rates of oscine beside faster-whisper, same weights, same run.

    python benchmarks/accuracy.py --peer-python PATH [--audio FOLDER] [--device cpu] [--modes ...]

Both decode at temperature 0 in float32, in each mode of MODES. English recordings count in words
(jiwer, with the normaliser Whisper's error rates are quoted with), others in characters, with the
language that was detected. Recordings come from a folder with a manifest.jsonl; nothing is fetched
but weights. Prints a JSON line a recording, mode and model, then the table, which also goes to
benchmarks/accuracy.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jiwer
from recordings import AUDIO, HERE, Clip, digits_alike, normalised, read_manifest, run_peer

import oscine
from oscine.models.whisper.released import ENGLISH, MODELS

Options = dict[str, Any]

#: What each program is asked for beside temperature 0; the rest as each has it by default. Without
#: batches, faster-whisper listens for speech only when told to, oscine unless told not to.
MODES: dict[str, tuple[Options, Options]] = {
    "greedy": ({}, {"vad_filter": True}),
    "greedy, defaults": ({}, {}),
    "greedy, no VAD": ({"vad_filter": False}, {}),
    "beam 5": ({"beam_size": 5}, {"beam_size": 5, "vad_filter": True}),
    "batched 8": ({"batch_size": 8}, {"batch_size": 8, "without_timestamps": False}),
    "words": ({"word_timestamps": True}, {"word_timestamps": True, "vad_filter": True}),
}


@dataclass(frozen=True)
class Result:
    """What one program made of a clip, beside what it should be, both normalised."""

    clip: Clip
    expected: str
    found: str
    language: str


Pair = tuple[Result, Result]


def result(clip: Clip, text: str, language: str) -> Result:
    expected = normalised(clip.transcript, clip.language)
    return Result(clip, expected, normalised(text, clip.language), language)


def with_digits_alike(found: Result) -> Result:
    return replace(found, expected=digits_alike(found.expected), found=digits_alike(found.found))


def rate(results: list[Result]) -> float:
    """Error rate of all clips together, in percent: words for English, else characters."""
    measure = jiwer.wer if results[0].clip.language == "en" else jiwer.cer
    return 100 * measure([r.expected for r in results], [r.found for r in results])


class Comparison:
    """One model on both sides."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        self.name, self.arguments = name, arguments
        self.model = oscine.load(name, arguments.device, "f32")

    def run(self, mode: str, clips: list[Clip], language: str) -> list[Pair]:
        ours, theirs = MODES[mode]
        known = None if language == "auto" else language
        mine = []
        for clip in clips:
            file = self.arguments.audio / clip.file
            made = self.model.transcribe(file, language=known, temperature=0.0, **ours)
            mine.append(result(clip, made.text, made.language))
        files = [self.arguments.audio / clip.file for clip in clips]
        rows = run_peer(self.arguments.peer_python, self.name, language, theirs, files)
        peer = [result(c, r["text"], r["language"]) for c, r in zip(clips, rows, strict=True)]
        pairs = list(zip(mine, peer, strict=True))
        for pair in pairs:
            self.show(mode, pair)
        return pairs

    def show(self, mode: str, pair: Pair) -> None:
        mine, peer = pair
        row = {
            "model": self.name,
            "mode": mode,
            "file": mine.clip.file,
            "kind": mine.clip.kind,
            "oscine": round(rate([mine]), 2),
            "faster_whisper": round(rate([peer]), 2),
            "languages": [mine.clip.language, mine.language, peer.language],
            "texts": [mine.expected, mine.found, peer.found],
        }
        print(json.dumps(row, ensure_ascii=False), flush=True)

    def line(self, mode: str, what: str, pairs: list[Pair]) -> str:
        mine, peer = rate([a for a, _ in pairs]), rate([b for _, b in pairs])
        same = sum(a.found == b.found for a, b in pairs)
        cells = (
            self.name,
            mode,
            what,
            f"{mine:.2f}",
            f"{peer:.2f}",
            f"{mine - peer:+.2f}",
            f"{same}/{len(pairs)}",
        )
        return f"| {' | '.join(cells)} |"

    def english(self, mode: str, clips: list[Clip]) -> list[str]:
        pairs = self.run(mode, clips, "en")
        alike = [(with_digits_alike(mine), with_digits_alike(peer)) for mine, peer in pairs]
        true = [pair for pair in pairs if pair[0].clip.is_true]
        true_alike = [pair for pair in alike if pair[0].clip.is_true]
        return [
            self.line(mode, f"English, {len(pairs)} recordings, WER", pairs),
            self.line(mode, "with lists of digits written alike, WER", alike),
            self.line(mode, f"of these {len(true)} with the speaker's own text, WER", true),
            self.line(mode, f"these {len(true)} with digits written alike, WER", true_alike),
        ]

    def foreign(self, mode: str, clips: list[Clip]) -> list[str]:
        pairs = self.run(mode, clips, "auto")
        lines = [self.line(mode, f"{len(pairs)} recordings in other languages, CER", pairs)]
        for pair in pairs:
            wanted, mine, peer = pair[0].clip.language, pair[0].language, pair[1].language
            what = f"{pair[0].clip.file} ({wanted}; detected {mine}, {peer}), CER"
            lines.append(self.line(mode, what, [pair]))
        return lines


def table(arguments: argparse.Namespace, clips: list[Clip]) -> list[str]:
    english = [clip for clip in clips if clip.language == "en"]
    others = [clip for clip in clips if clip.language != "en"]
    lines = []
    for name in arguments.models:
        comparison = Comparison(name, arguments)
        for mode in arguments.modes:
            lines += comparison.english(mode, english)
            if MODELS[name].n_vocab != ENGLISH:
                lines += comparison.foreign(mode, others)
    return lines


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
        "# Accuracy",
        "",
        "Error rates in percent, oscine beside faster-whisper on the same weights: float32,"
        f" temperature 0; oscine on {arguments.device}. Made by benchmarks/accuracy.py.",
        "Modes are greedy unless they say beams. Both listen for speech before they transcribe,"
        ' except under "no VAD"; under "defaults" oscine does and faster-whisper does not.',
        "Transcripts are the origin's own or a known text (reference, known) and, in the first two"
        " lines of each mode only, also a larger model's (machine-large).",
        "",
        "| model | mode | what | oscine | faster-whisper | difference | same text |",
        "|---|---|---|---|---|---|---|",
        *table(arguments, read_manifest(arguments.audio)),
    ]
    print("\n".join(lines[6:]))
    (HERE / "accuracy.md").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
