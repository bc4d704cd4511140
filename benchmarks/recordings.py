"""What the benchmarks of accuracy share: recordings, their texts made comparable, and the peer."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

from oscine import hub

HERE = Path(__file__).resolve().parent
AUDIO = HERE.parent.parent / "shared" / "audio"
PEER = HERE / "peer_faster_whisper.py"

#: Whose words a transcript is: the origin's own or a known text; or a larger model's, which errs.
TRUE_KINDS, MACHINE_KINDS = ("reference", "known"), ("machine-large",)
#: Two talkers at once, whose mono mix matches neither transcript.
LEFT_OUT = ("fw_stereo_diarization.wav",)

_english = EnglishTextNormalizer()
_other = BasicTextNormalizer()


@dataclass(frozen=True)
class Clip:
    """One line of the manifest."""

    file: str
    language: str
    transcript: str
    kind: str

    @property
    def is_true(self) -> bool:
        """Whether the words are the speaker's own."""
        return self.kind in TRUE_KINDS


def read_manifest(folder: Path) -> list[Clip]:
    """Recordings of one language whose words somebody knows, or a larger model."""
    lines = (folder / "manifest.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [
        Clip(row["file"], row["language"], row["transcript"], row["transcript_kind"])
        for row in rows
        if row["transcript_kind"] in TRUE_KINDS + MACHINE_KINDS and row["file"] not in LEFT_OUT
    ]


def normalised(text: str, language: str) -> str:
    """Text as error rates are quoted with."""
    text = (_english if language == "en" else _other)(text).strip()
    if language == "zh":  # written without spaces; where a program puts some is no error
        text = text.replace(" ", "")
    return text


def digits_alike(text: str) -> str:
    """Lists of digits written alike: the normaliser makes 123 of "one two three" but "one 2 3" of
    "1, 2, 3", so that one spelling of the right words counts as three errors."""
    text = re.sub(r"\bone(?= \d)|(?<=\d )one\b", "1", text)
    return re.sub(r"(?<=\d) (?=\d)", "", text)


def run_peer(
    python: str, name: str, language: str, options: dict[str, Any], files: list[Path]
) -> list[dict[str, Any]]:
    """What faster-whisper makes of files; fields: peer_faster_whisper.py."""
    settings = [str(hub.resolve(name)), language, json.dumps(options)]
    command = [python, str(PEER), *settings, *map(str, files)]
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in made.splitlines()]
