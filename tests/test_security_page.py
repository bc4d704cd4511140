"""SECURITY.md names tests that are there, for every promise."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")


def test_every_promise_has_a_test() -> None:
    code = "\n".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^def (test_\w+)\(", code, re.M))
    promises = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| ")]
    numbered = [row for row in promises if re.match(r" \d+\. ", row[0])]
    assert [int(row[0].split(".")[0]) for row in numbered] == list(range(1, len(numbered) + 1))
    assert len(numbered) >= 7
    for promise, tests in numbered:
        named = set(re.findall(r"`(test_\w+)`", tests))
        assert named and named <= there, (promise, named - there)


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / target).exists(), target
