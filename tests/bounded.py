"""Python code in a process of its own, with limits of memory and time: what could hang or crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

_HEAD = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
GIVEN = json.loads(sys.stdin.read())
"""
# Not getrusage, whose peak begins with that of the process that started this one.
_TAIL = """
from pathlib import Path
status = Path("/proc/self/status")
lines = status.read_text().splitlines() if status.exists() else []
peak = next((int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:")), 0)
print(json.dumps({"peak": peak}))
"""


def run_bounded(
    code: str, given: Any, *, seconds: float = 120, megabytes: int = 1500
) -> list[dict[str, Any]]:
    """Run code, which has `given` as GIVEN and prints one JSON object a line; returns these.

    The test fails where the process takes longer, ends by a signal or an error, or has held more
    than `megabytes`; the lines printed so far are then shown.
    """
    pytest.importorskip("resource", reason="this system has no limits of a process")
    memory = (megabytes << 20) + (4 << 30)  # of addresses, which libraries reserve freely
    script = _HEAD.format(memory=memory) + code + _TAIL
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OSCINE_THREADS": "1"}
    try:
        run = subprocess.run(
            [sys.executable, "-c", script],
            input=json.dumps(given), capture_output=True, text=True, timeout=seconds,
            env=environment, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as expired:
        done = (expired.stdout or b"").decode("utf-8", "replace")[-1000:]
        pytest.fail(f"still running after {seconds} s; printed: {done}")
    assert run.returncode == 0, (run.returncode, run.stdout[-1000:], run.stderr[-3000:])
    *lines, last = [json.loads(line) for line in run.stdout.splitlines()]
    assert last["peak"] < megabytes, (last, run.stdout[-1000:])
    return lines
