"""What weights in 8 and 4 bits cost: word errors and top-1 agreement beside float32 weights.

    python benchmarks/quantized.py [--models tiny.en base] [--dtypes q8 q4] [--audio FOLDER]
        [--device cpu]

Decodes each recording greedily at temperature 0, its language given, with each dtype. Words are
counted with the normaliser that Whisper's error rates are quoted with, lists of digits written
alike, Chinese in characters.
Agreement is teacher-forced: the text that float32 weights give for the first 30 s is forced on the
other, and at each position both choose among all tokens. Prints a JSON line a recording, dtype and
model, and then the table of sums. NumPy widens the blocks, so its figures are those of the format.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
from recordings import AUDIO, Clip, digits_alike, normalised, read_manifest

import oscine
from oscine.audio.io import decode
from oscine.audio.mel import log_mel
from oscine.engine.sequence import EncoderInput
from oscine.models.whisper.sequences import AlignmentSequence
from oscine.probe import probing

WINDOW = 480_000  # samples of 30 s


@dataclass(frozen=True)
class Count:
    """Word errors of both weights in a recording, and the forced tokens that both would choose."""

    words: int
    errors_f32: int
    errors: int
    tokens: int
    agreed: int

    def __add__(self, other: Count) -> Count:
        mine, theirs = vars(self).values(), vars(other).values()
        return Count(*(a + b for a, b in zip(mine, theirs, strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """The counts, and the share of tokens that agree, in percent."""
        return {**vars(self), "agreement": round(100 * self.agreed / max(self.tokens, 1), 2)}


class Decoded:
    """A recording as one model decodes it."""

    def __init__(self, model: Any, clip: Clip, file: Path) -> None:
        self.model, self.clip = model, clip
        self.samples = decode(file).samples[:WINDOW]
        found = model.transcribe(file, language=clip.language, temperature=0.0, vad_filter=False)
        self.text = found.text
        self.tokens = tuple(
            token
            for segment in found.segments
            if segment.end <= 30
            for token in segment.tokens
            if token < model._special_tokens.eot
        )

    def errors(self) -> tuple[int, int]:
        """Substituted, deleted and inserted words, and the words of the transcript."""
        expected, found = (
            digits_alike(normalised(text, self.clip.language))
            for text in (self.clip.transcript, self.text)
        )
        measure = jiwer.process_characters if self.clip.language == "zh" else jiwer.process_words
        out = measure(expected, found)
        wrong = out.substitutions + out.deletions + out.insertions
        return wrong, wrong - out.insertions + out.hits


def choices(model: Any, samples: np.ndarray, language: str, tokens: tuple[int, ...]) -> np.ndarray:
    """The most probable token after the prompt and after each of the forced tokens."""
    special = model._special_tokens
    prompt = special.sot_sequence(language, "transcribe", timestamps=False)
    padded = np.pad(samples, (0, WINDOW - len(samples)))
    mel = log_mel(padded, model.runner.config.n_mels)
    forced = AlignmentSequence(EncoderInput(mel), (*prompt, *tokens), special.eot, 1)
    rows: list[np.ndarray] = []
    with probing(lambda name, x: rows.append(x) if name == "decoder.logits" else None):
        model.engine.submit(forced).wait()
    chosen: np.ndarray = rows[0][len(prompt) - 1 : len(prompt) + len(tokens)].argmax(1)
    return chosen


def compare(name: str, dtypes: list[str], clips: list[Clip], audio: Path, device: str) -> None:
    """Print the counts of one model, a recording a line, and then their sums."""
    plain = oscine.load(name, device, "f32")
    known = [Decoded(plain, clip, audio / clip.file) for clip in clips]
    best = [choices(plain, d.samples, d.clip.language, d.tokens) for d in known]
    for dtype in dtypes:
        model = oscine.load(name, device, dtype)
        total = Count(0, 0, 0, 0, 0)
        for base, expected in zip(known, best, strict=True):
            wrong, words = base.errors()
            mine, _ = Decoded(model, base.clip, audio / base.clip.file).errors()
            found = choices(model, base.samples, base.clip.language, base.tokens)
            count = Count(words, wrong, mine, len(found), int((found == expected).sum()))
            total += count
            row = {"model": name, "dtype": dtype, "file": base.clip.file, **count.to_dict()}
            print(json.dumps(row), flush=True)
        print(json.dumps({"model": name, "dtype": dtype, "all": len(clips), **total.to_dict()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audio", type=Path, default=AUDIO, help="folder with a manifest.jsonl")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base"])
    parser.add_argument("--dtypes", nargs="+", default=["q8", "q4"])
    arguments = parser.parse_args()
    clips = read_manifest(arguments.audio)
    for name in arguments.models:
        mine = [clip for clip in clips if clip.language == "en" or not name.endswith(".en")]
        compare(name, arguments.dtypes, mine, arguments.audio, arguments.device)


if __name__ == "__main__":
    main()
