"""docs/faults.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "faults.md").read_text("utf-8")


def test_every_fault_has_a_test() -> None:
    code = "\n".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^def (test_\w+)\(", code, re.M))
    rows = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("|")]
    faults = [row for row in rows if row[0].strip(" -") not in ("", "input")]
    assert len(faults) > 10
    for fault, _, tests in faults:
        named = re.findall(r"`(test_\w+)`", tests)
        assert named and set(named) <= there, fault
