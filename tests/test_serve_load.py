"""tools/serve_load.py sees what is wrong, and finds nothing wrong in its smallest form."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
ROW = {"text": " Good day to all of you.", "start": 0.0, "end": 1.0, "tokens": [1, 2]}
TEXT = ROW["text"].strip()  # type: ignore[attr-defined]
IDLE = {"MB": 300.0, "files": 9.0, "threads": 3.0, "queue": 0.0, "requests": 0.0}
SAMPLE = {**IDLE, "requests_at_work": 4.0, "sequences_waiting": 2.0}


@pytest.fixture(scope="module")
def load() -> Iterator[Any]:
    """The tool as a module."""
    sys.path.insert(0, str(ROOT / "tools"))
    yield importlib.import_module("serve_load")
    sys.path.remove(str(ROOT / "tools"))


def call_of(load: Any, form: str, number: int = 0, row: dict[str, Any] = ROW) -> Any:
    made = load.make_call(number, "a", np.zeros(16_000, np.float32), form, {"temperature": 0})
    made.text, made.rows = row["text"].strip(), load.rows_of([row])
    return made


def answer_of(load: Any, status: int, body: Any, **headers: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return load.Answer(status, headers, content, 0.1)


def stream_of(*events: dict[str, Any]) -> bytes:
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)


def test_equal_answers_do_not_differ(load: Any) -> None:
    done = {"type": "transcript.text.done", "text": TEXT}
    bodies = {
        "verbose_json": {"text": TEXT, "segments": [ROW]},
        "text": f"{TEXT}\n".encode(),
        "stream": stream_of({"delta": "Good day"}, {"delta": TEXT.removeprefix("Good day")}, done),
    }
    for form, body in bodies.items():
        assert call_of(load, form).differs(answer_of(load, 200, body)) == ""


@pytest.mark.parametrize(
    ("form", "body", "told"),
    [
        ("text", b"Good night\n", "character 5: 'day to all of you.' alone, 'night'"),
        ("verbose_json", {"text": TEXT, "segments": [{**ROW, "end": 1.5}]}, "times or tokens"),
        ("verbose_json", {"text": TEXT, "segments": [{**ROW, "tokens": [1, 3]}]}, "or tokens"),
        ("verbose_json", b"{", "its answer cannot be read"),
        ("stream", stream_of({"delta": TEXT}), "its answer cannot be read"),
        ("stream", stream_of({"delta": "x"}, {"type": "error", "error": {}}), "its answer"),
    ],
)  # fmt: skip
def test_what_differs_is_told(load: Any, form: str, body: Any, told: str) -> None:
    assert told in call_of(load, form).differs(answer_of(load, 200, body))


def test_near_ties_are_counted_and_anything_else_is_wrong(load: Any) -> None:
    other = {**ROW, "text": " Another sentence that is long."}
    calls = [call_of(load, "verbose_json"), call_of(load, "verbose_json", 1, other)]
    results = load.Results(calls)
    near = {**ROW, "text": " Good day to all you."}
    results.take(calls[0], answer_of(load, 200, {"text": near["text"], "segments": [near]}))
    assert results.check(1.0) == [] and len(results.check(0.5)) == 2
    whole = {"text": other["text"], "segments": [other]}
    results.take(calls[0], answer_of(load, 200, whole))
    results.take(calls[0], answer_of(load, 500, b"?"))
    results.take(calls[0], answer_of(load, -1, b"cut off"))
    first, second, third = results.check(1.0)
    assert "has the answer of call 1" in first and "status 500" in second and "status -1" in third


def test_a_refusal_has_a_reason_and_a_time(load: Any) -> None:
    body = {"error": {"code": "queue_full"}}
    whole = {"retry-after": "5"}
    assert load.refusal_problem(answer_of(load, 429, body, **whole)) == ""
    for problem in (
        answer_of(load, 429, body),
        answer_of(load, 429, body, **{"retry-after": "500"}),
        answer_of(load, 429, {"error": {"code": "internal_error"}}, **whole),
        answer_of(load, 503, b"<html>", **whole),
    ):
        assert load.refusal_problem(problem)
    results = load.Results([call_of(load, "text")])
    results.take(results.calls[0], answer_of(load, 429, b""))
    assert "its refusal is" in results.check(0.0)[0]


def test_what_has_grown_is_wrong(load: Any) -> None:
    samples = [SAMPLE] * 60
    assert load.grown(samples, IDLE, IDLE, 4) == []
    more = {**SAMPLE, "MB": 900.0, "requests_at_work": 5.0, "sequences_waiting": 9.0}
    after = {**IDLE, "files": 90.0, "queue": 1.0}
    wrong = load.grown(samples + [more] * 30, IDLE, after, 4)
    assert [line.split()[0] for line in wrong] == ["memory", "descriptors:", "idle,", "5", "9"]


def test_recordings_are_made_where_there_are_none(load: Any, tmp_path: Path) -> None:
    made = load.clips(tmp_path, 3)
    assert [name for name, _ in made] == ["example 0", "example 1", "example 2"]
    for _, samples in made:
        assert 3 <= len(samples) / load.RATE <= 30


@pytest.mark.skipif(not find_spec("uvicorn"), reason="needs the extra server")
def test_many_clients_have_the_answers_that_the_library_gives(tmp_path: Path) -> None:
    command = [
        *(sys.executable, str(ROOT / "tools" / "serve_load.py"), "--audio", str(tmp_path)),
        *("--model", str(ROOT / "tests" / "goldens" / "whisper_multi"), "--calls", "7"),
        *("--clients", "8", "--seconds", "3", "--long", "40", "--short-calls", "3"),
        "--ignore-times",
    ]
    ran = subprocess.run(command, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("every answer is what it is alone, and nothing has grown\n")
