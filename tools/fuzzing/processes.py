"""Reads what may be hostile in another process, which may crash, hang or want too much memory."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

TOOLS = Path(__file__).resolve().parents[1]
SECONDS = 30.0  # for one input
MEBIBYTES = 3072  # of addresses, libraries and stacks of threads too
MOST_INPUTS = 500  # of one process


@dataclass(frozen=True, slots=True)
class Answer:
    """outcome: "read", "refused", "contained" or "finding"."""

    outcome: str
    what: str
    trace: str = ""
    mebibytes: int = 0

    @property
    def signature(self) -> str:
        """The same for findings that have one cause, as far as can be told."""
        return self.what.split(":")[0] + ":" + self.what.partition(":")[2].split(":")[0][:20]


class Reader:
    """A process that reads; another one takes over where it ends."""

    def __init__(self, seconds: float = SECONDS, mebibytes: int = MEBIBYTES) -> None:
        self.seconds, self.mebibytes = seconds, mebibytes
        self.process: subprocess.Popen[bytes] | None = None
        self.errors: Any = None
        self.inputs = 0

    def read(self, kind: str, path: Path) -> Answer:
        """Have it read; what came of it."""
        if self.process is None or self.inputs >= MOST_INPUTS:
            self.close()
            self.start()
        process = self.process
        assert process is not None and process.stdin is not None and process.stdout is not None
        self.inputs += 1
        line = json.dumps({"kind": kind, "path": str(path)}).encode() + b"\n"
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except BrokenPipeError:
            return self.ended()
        ready, _, _ = select.select([process.stdout], [], [], self.seconds)
        if not ready:
            self.close()
            return Answer("finding", f"no answer within {self.seconds:g} s")
        told = process.stdout.readline()
        if not told.endswith(b"\n"):
            return self.ended()
        found = json.loads(told)
        trace, size = found.get("trace", ""), int(found["mebibytes"])
        return Answer(found["outcome"], found["what"], trace, size)

    def start(self) -> None:
        """A new process."""
        few = {"OPENBLAS_NUM_THREADS": "1", "OSCINE_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        self.errors = TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fuzzing.reading", str(self.mebibytes)],
            cwd=TOOLS,
            env=os.environ | few | {"HF_HUB_OFFLINE": "1", "OSCINE_OFFLINE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
        )
        self.inputs = 0

    def ended(self) -> Answer:
        """The process is gone: how, and where it was."""
        assert self.process is not None
        code = self.process.wait()
        self.errors.seek(0)
        trace = self.errors.read()[-4000:].decode("utf-8", "replace")
        self.close()
        where = re.search(r'oscine/(\S+\.py)", line \d+ in (\w+)', trace)
        place = f" in {where[1]}, {where[2]}" if where else ""
        return Answer("finding", f"the process ended with {code}{place}", trace)

    def close(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout, self.errors):
                assert pipe is not None
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        self.process = None
