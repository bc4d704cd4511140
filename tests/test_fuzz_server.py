"""tools/fuzz_server.py sees what is wrong with an answer; in its smallest form it finds nothing."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(not find_spec("uvicorn"), reason="needs the extra server")


@pytest.fixture(scope="module")
def fuzz() -> Iterator[Any]:
    """The tool as a module."""
    sys.path.insert(0, str(ROOT / "tools"))
    yield importlib.import_module("fuzz_server")
    sys.path.remove(str(ROOT / "tools"))


def error(message: str = "model is required", **more: Any) -> bytes:
    row = {"message": message, "type": "server_error", "param": None, "code": "a", **more}
    return json.dumps({"error": row}).encode()


def test_a_seed_makes_the_same_request_again(fuzz: Any) -> None:
    maker = fuzz.Maker("a", "b")
    made = [maker.make(Random(f"same/{number}")) for number in range(200)]
    assert made == [maker.make(Random(f"same/{number}")) for number in range(200)]
    assert {request.framed for request in made} == {True, False}
    assert all(request.raw().startswith(b"POST /v1/audio/") for request in made if request.framed)


@pytest.mark.parametrize(
    ("status", "body", "framed", "told"),
    [
        (200, b"{}", True, ""), (400, error(), True, ""), (0, b"", False, ""),
        (400, b"Invalid HTTP request received.", False, ""),
        (400, b"Invalid HTTP request received.", True, "has another form"),
        (0, b"", True, "cut"), (500, error("failed"), True, "500 a: failed"),
        (503, error("busy"), False, "503 a: busy"), (422, error(), True, "422"),
        (404, b'{"detail": "Not Found"}', True, "has another form"),
        (400, error("a\nb"), True, "of other form"),
        (400, error("a" * 3000), True, "of other form"),
        (400, error(more=1), True, "of other form"),
        (200, b'data: {"type": "error", "error": {"type": "server_error"}}', True, "a stream ends"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_answer(
    fuzz: Any, status: int, body: bytes, framed: bool, told: str
) -> None:
    problem = fuzz.problem_of(status, body, "", framed)
    assert told in problem and bool(told) == bool(problem)


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "fuzz_server.py"), "--only", "requests"]
    more = ["--seconds", "3", "--seed", "test", "--keep", str(tmp_path)]
    ran = subprocess.run([*command, *more], text=True, capture_output=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith(" requests, 0 findings\n")
    assert not list(tmp_path.iterdir())
