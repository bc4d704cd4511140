"""Word and character error rates of oscine beside faster-whisper, same weights, same run.

    python benchmarks/accuracy.py --peer-python PATH [--audio FOLDER] [--device cpu]

Both decode greedily at temperature 0 in float32. English recordings count in words (jiwer, with
the normaliser Whisper's error rates are quoted with), others in characters, with the language that
was detected. Recordings come from a folder with a manifest.jsonl; nothing is fetched but weights.
Prints a JSON line a recording and model, then the table, which also goes to benchmarks/accuracy.md.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jiwer
from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

import oscine
from oscine import hub

HERE = Path(__file__).resolve().parent
AUDIO = HERE.parent.parent / "shared" / "audio"
PEER = HERE / "peer_faster_whisper.py"

#: Whose words a transcript is: the origin's own or a known text; or a larger model's, which errs.
TRUE_KINDS, MACHINE_KINDS = ("reference", "known"), ("machine-large",)
#: Two talkers at once, whose mono mix matches neither transcript.
LEFT_OUT = ("fw_stereo_diarization.wav",)

normalise_english = EnglishTextNormalizer()
normalise_other = BasicTextNormalizer()


@dataclass(frozen=True)
class Clip:
    """One line of the manifest."""

    file: str
    language: str
    transcript: str
    kind: str


@dataclass(frozen=True)
class Result:
    """What one program made of a clip, beside what it should be, both normalised."""

    clip: Clip
    expected: str
    found: str
    language: str


def read_manifest(folder: Path) -> list[Clip]:
    lines = (folder / "manifest.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [
        Clip(row["file"], row["language"], row["transcript"], row["transcript_kind"])
        for row in rows
        if row["transcript_kind"] in TRUE_KINDS + MACHINE_KINDS and row["file"] not in LEFT_OUT
    ]


def result(clip: Clip, text: str, language: str) -> Result:
    normalise = normalise_english if clip.language == "en" else normalise_other
    expected, found = normalise(clip.transcript).strip(), normalise(text).strip()
    if clip.language == "zh":  # written without spaces; where a program puts some is no error
        expected, found = expected.replace(" ", ""), found.replace(" ", "")
    return Result(clip, expected, found, language)


def run_oscine(
    name: str, device: str, clips: list[Clip], folder: Path, language: str
) -> list[Result]:
    model = oscine.load(name, device, "f32")
    options: dict[str, Any] = {"temperature": 0.0, "condition_on_previous_text": True}
    results = []
    for clip in clips:
        known = None if language == "auto" else language
        made = model.transcribe(folder / clip.file, language=known, **options)
        results.append(result(clip, made.text, made.language))
    return results


def run_peer(
    python: str, name: str, clips: list[Clip], folder: Path, language: str
) -> list[Result]:
    files = [str(folder / clip.file) for clip in clips]
    command = [python, str(PEER), str(hub.resolve(name)), language, *files]
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = [json.loads(line) for line in made.splitlines()]
    return [
        result(clip, row["text"], row["language"]) for clip, row in zip(clips, rows, strict=True)
    ]


def with_digits_joined(result: Result) -> Result:
    """Lists of digits written alike: the normaliser makes 123 of "one two three" but "one 2 3" of
    "1, 2, 3", so that one spelling of the right words counts as three errors."""
    expected, found = (
        re.sub(r"(?<=\d) (?=\d)", "", re.sub(r"\bone(?= \d)|(?<=\d )one\b", "1", text))
        for text in (result.expected, result.found)
    )
    return replace(result, expected=expected, found=found)


def rate(results: list[Result]) -> float:
    """Error rate of all clips together, in percent: words for English, else characters."""
    measure = jiwer.wer if results[0].clip.language == "en" else jiwer.cer
    return 100 * measure([r.expected for r in results], [r.found for r in results])


def compare(
    name: str, arguments: argparse.Namespace, clips: list[Clip], language: str
) -> list[tuple[Result, Result]]:
    ours = run_oscine(name, arguments.device, clips, arguments.audio, language)
    theirs = run_peer(arguments.peer_python, name, clips, arguments.audio, language)
    pairs = list(zip(ours, theirs, strict=True))
    for mine, peer in pairs:
        row = {
            "model": name,
            "file": mine.clip.file,
            "kind": mine.clip.kind,
            "oscine": round(rate([mine]), 2),
            "faster_whisper": round(rate([peer]), 2),
            "languages": [mine.clip.language, mine.language, peer.language],
            "texts": [mine.expected, mine.found, peer.found],
        }
        print(json.dumps(row, ensure_ascii=False), flush=True)
    return pairs


def line(name: str, what: str, pairs: list[tuple[Result, Result]]) -> str:
    mine, peer = rate([a for a, _ in pairs]), rate([b for _, b in pairs])
    same = sum(a.found == b.found for a, b in pairs)
    cells = (
        name,
        what,
        f"{mine:.2f}",
        f"{peer:.2f}",
        f"{mine - peer:+.2f}",
        f"{same}/{len(pairs)}",
    )
    return f"| {' | '.join(cells)} |"


def table(arguments: argparse.Namespace, clips: list[Clip]) -> list[str]:
    english = [clip for clip in clips if clip.language == "en"]
    others = [clip for clip in clips if clip.language != "en"]
    lines = []
    for name in arguments.models:
        pairs = compare(name, arguments, english, "en")
        true = [pair for pair in pairs if pair[0].clip.kind in TRUE_KINDS]
        lines.append(line(name, f"English, {len(pairs)} recordings, WER", pairs))
        lines.append(line(name, f"of these {len(true)} with the speaker's own text, WER", true))
        alike = [(with_digits_joined(mine), with_digits_joined(peer)) for mine, peer in true]
        lines.append(
            line(name, f"these {len(true)} with lists of digits written alike, WER", alike)
        )
        if hub.MODELS[name].n_vocab == hub.ENGLISH:
            continue
        foreign = compare(name, arguments, others, "auto")
        lines.append(line(name, f"{len(foreign)} recordings in other languages, CER", foreign))
        for pair in foreign:
            wanted, mine, peer = pair[0].clip.language, pair[0].language, pair[1].language
            what = f"{pair[0].clip.file} ({wanted}; detected {mine}, {peer}), CER"
            lines.append(line(name, what, [pair]))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer-python", required=True, help="a Python that has faster-whisper")
    parser.add_argument("--audio", type=Path, default=AUDIO, help="folder with a manifest.jsonl")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base"])
    arguments = parser.parse_args()
    if not (arguments.audio / "manifest.jsonl").exists():
        sys.exit(f"{arguments.audio}: no manifest.jsonl there; name a folder with --audio")
    clips = read_manifest(arguments.audio)
    lines = [
        "# Accuracy",
        "",
        "Error rates in percent, oscine beside faster-whisper on the same weights: float32, greedy,"
        f" temperature 0; oscine on {arguments.device}. Made by benchmarks/accuracy.py.",
        "Transcripts are the origin's own or a known text (reference, known) and, in the first line"
        " of each model only, also a larger model's (machine-large).",
        "",
        "| model | what | oscine | faster-whisper | difference | same text |",
        "|---|---|---|---|---|---|",
        *table(arguments, clips),
    ]
    print("\n".join(lines[6:]))
    (HERE / "accuracy.md").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
