"""One model, used 200 times, by many threads, after a fork, and stopped at any moment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parent / "on_many_calls.py"
GOLDENS = PROGRAM.parent / "goldens"

models = pytest.mark.parametrize("model", ["whisper_en", "parakeet_tdt"])
linux = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what the process holds")


def told(model: str, what: str) -> Any:
    """What the program says of a model."""
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), str(GOLDENS / model), what],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@linux
@models
def test_two_hundred_calls_leave_nothing_behind(model: str) -> None:
    before, after = told(model, "calls")
    assert after["descriptors"] == before["descriptors"]
    assert after["threads"] == before["threads"]
    assert after["objects"] <= before["objects"] + 100
    assert after["bytes"] <= before["bytes"] + (4 << 20)


@models
def test_many_threads_may_use_one_model(model: str) -> None:
    assert told(model, "threads") is True


@linux
@models
def test_a_fork_after_loading_works(model: str) -> None:
    assert told(model, "forks") == [0, 0, 0]


@linux
@models
def test_a_stop_at_any_moment_leaves_a_model_usable(model: str) -> None:
    assert told(model, "stops") >= 41
