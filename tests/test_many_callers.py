"""tools/many_callers.py sees what is wrong, and finds nothing wrong in its smallest form."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.engine.batch import Occupancy

ROOT = Path(__file__).resolve().parent.parent
SHARED = Occupancy(bursts=10, rows=40, sequences=30, max_sequences=5, multi_caller_bursts=8)
FLAT = {"MB": 300.0, "threads": 3.0, "files": 9.0, "slots": 0.0}


@pytest.fixture(scope="module")
def callers() -> Iterator[Any]:
    """The tool as a module."""
    sys.path.insert(0, str(ROOT / "tools"))
    yield importlib.import_module("many_callers")
    sys.path.remove(str(ROOT / "tools"))


@pytest.fixture
def results(callers: Any) -> Any:
    """Of two jobs with their answers alone."""
    silence = np.zeros(16000, np.float32)
    jobs = [callers.Job(number, 1.0, "transcribe", {}, silence) for number in range(2)]
    answers = [
        callers.Answer(("en", ("a", 0.0, 1.0)), tuple(range(10)), -0.5),
        callers.Answer(("en", ("b", 0.0, 2.0)), tuple(range(5, 17)), -0.7),
    ]
    return callers.Results(jobs, answers)


def test_equal_answers_are_counted(callers: Any, results: Any) -> None:
    for job, answer in zip(results.jobs, results.alone, strict=True):
        results.take(job, answer)
    assert (results.answers, results.others.total()) == (2, 0)
    assert not callers.verdict(SHARED, results, 0.0, [FLAT, FLAT, FLAT])


def test_the_first_token_that_differs_is_told(
    callers: Any, results: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    known = results.alone[0]
    other = replace(known, parts=("en",), tokens=(*range(7), 99, 8, 9), avg_logprob=-0.75)
    results.take(results.jobs[0], other)
    assert "token 7 of 10 is 7 alone, 99; avg_logprob -0.2500" in capsys.readouterr().out
    assert results.others == {"tokens": 1}
    assert callers.verdict(SHARED, results, 1.0, [FLAT, FLAT, FLAT]) == []
    assert callers.verdict(SHARED, results, 0.01, [FLAT, FLAT, FLAT]) == [
        "100.00 % of the answers differ, 1.00 % may"
    ]


def test_times_that_differ_are_told_apart(callers: Any, results: Any) -> None:
    known = results.alone[0]
    results.take(results.jobs[0], replace(known, parts=("en", ("a", 0.0, 1.02))))
    assert results.others == {"times": 1}


def test_an_answer_of_another_job_is_never_a_near_tie(callers: Any, results: Any) -> None:
    results.take(results.jobs[0], results.alone[1])
    (wrong,) = callers.verdict(SHARED, results, 1.0, [FLAT, FLAT, FLAT])
    assert wrong.startswith("job 0 ") and "has the answer of job 1 " in wrong


def test_what_has_grown_or_is_not_shared_is_wrong(callers: Any, results: Any) -> None:
    rounds = [FLAT] * 6 + [{"MB": 400.0, "threads": 4.0, "files": 9.0, "slots": 1.0}]
    wrong = callers.verdict(SHARED, results, 0.0, rounds)
    assert [line.split(":")[0] for line in wrong] == ["MB", "threads", "slots"]
    alone = replace(SHARED, multi_caller_bursts=0)
    assert callers.verdict(alone, results, 0.0, [FLAT, FLAT, FLAT])


def test_many_callers_have_the_answers_that_they_have_alone() -> None:
    """With NumPy; `make callers` has the GPU too."""
    command = [
        *(sys.executable, str(ROOT / "tools" / "many_callers.py"), "--device", "cpu"),
        *("--model", str(ROOT / "tests" / "goldens" / "whisper_multi"), "--jobs", "19"),
        *("--threads", "6", "--longest", "2", "--seconds", "1.5", "--round", "0.5"),
    ]
    ran = subprocess.run(command, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("every answer is what it is alone, and nothing has grown\n")
