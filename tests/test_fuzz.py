"""What damaged files have once brought about does not come back, and what finds it does find."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORPUS = sorted(path.parent for path in (ROOT / "tests" / "fuzz_corpus").glob("*/about.json"))


@pytest.fixture(scope="module")
def fuzz() -> Iterator[Any]:
    """tools/fuzz.py as a module."""
    sys.path.insert(0, str(ROOT / "tools"))
    yield importlib.import_module("fuzz")
    sys.path.remove(str(ROOT / "tools"))


@pytest.fixture(scope="module")
def reader(fuzz: Any) -> Iterator[Any]:
    made = fuzz.Reader()
    yield made
    made.close()


@pytest.mark.parametrize("place", CORPUS, ids=lambda place: place.name)
def test_what_was_found_is_read_or_refused(
    fuzz: Any, reader: Any, place: Path, tmp_path: Path
) -> None:
    answer = fuzz.again(place, tmp_path, reader)
    assert answer.outcome in ("read", "refused", "contained"), answer.what


def test_a_kept_file_is_small_and_says_where_it_is_from() -> None:
    for place in CORPUS:
        about = json.loads((place / "about.json").read_text("utf-8"))
        assert about.keys() == {"base", "file", "kind", "from", "what"}
        assert (place / "input").stat().st_size < 256 << 10


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("crash", "the process ended with -11"), ("memory", "MemoryError"),
        ("error", "KeyError"),
        ("long_message", "a message of many lines"),
    ],
)  # fmt: skip
def test_a_fault_is_a_finding_and_the_next_input_is_read(
    reader: Any, tmp_path: Path, fault: str, told: str
) -> None:
    answer = reader.read(fault, tmp_path)
    assert answer.outcome == "finding" and told in answer.what
    assert reader.read("refusal", tmp_path).outcome == "refused"


def test_what_hangs_is_a_finding(fuzz: Any, tmp_path: Path) -> None:
    impatient = fuzz.Reader(seconds=5)
    try:
        assert impatient.read("refusal", tmp_path).outcome == "refused"
        impatient.seconds = 0.5
        assert impatient.read("hang", tmp_path).what == "no answer within 0.5 s"
        impatient.seconds = 30
        assert impatient.read("refusal", tmp_path).outcome == "refused"
    finally:
        impatient.close()


def test_a_seed_makes_the_same_damage_again(fuzz: Any, tmp_path: Path) -> None:
    seeds = fuzz.checkpoints()
    for number in range(200):
        made = []
        for folder in (tmp_path / "a", tmp_path / "b"):
            seed, name, _ = fuzz.made(seeds, Random(f"same/{number}"), folder)
            made.append((seed.name, name, (folder / name).read_bytes()))
        assert made[0] == made[1], made[0][:2]


def test_whole_files_are_read(fuzz: Any, reader: Any, tmp_path: Path) -> None:
    """Else damage would be refused for another reason."""
    for number, seed in enumerate([*fuzz.checkpoints(), *fuzz.recordings()]):
        folder = tmp_path / str(number)
        for file, content in seed.files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        answer = reader.read(seed.kind, folder / seed.main)
        assert answer.outcome == "read", (seed.name, answer.what)
