"""The pages of docs/ whose rows are shown by tests name tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("faults.md", "times.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_row_has_a_test(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    code = "\n".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^def (test_\w+)\(", code, re.M))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    dashes = [not line.strip("|-") for line in lines]  # below the heads of a table
    rows = [
        line
        for line, is_dashes, is_head in zip(lines, dashes, [*dashes[1:], False], strict=True)
        if not is_dashes and not is_head
    ]
    assert len(rows) > 10
    for row in rows:
        *_, tests = row.strip("|").split("|")
        named = re.findall(r"`(test_\w+)`", tests)
        assert named and set(named) <= there, row
