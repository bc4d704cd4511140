"""The committed goldens hold, on NumPy and on a GPU; and the tool that says so can say no."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "tests" / "goldens"


def check(*arguments: object) -> tuple[int, str]:
    """Run the tool as a person would; exit code and everything it said."""
    command = [sys.executable, str(ROOT / "tools" / "check_golden.py"), *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return run.returncode, run.stdout + run.stderr


@pytest.fixture
def one_case(tmp_path: Path) -> Path:
    """A copy of the long-form case, to be spoilt."""
    for name in ("whisper_en", "audio"):
        shutil.copytree(GOLDENS / name, tmp_path / name)
    return tmp_path


def test_goldens_hold_on_numpy() -> None:
    code, said = check(GOLDENS, "--device", "cpu")
    assert code == 0, said
    assert "MISS" not in said and "comparisons hold" in said
    compared = {line.split()[1].rstrip(":") for line in said.splitlines() if "  ok" in line}
    for case in ("whisper_multi", "whisper_en", "whisper_formats"):
        assert f"{case}:" in said
        arrays = json.loads((GOLDENS / case / "golden.json").read_text())["arrays"]
        inputs = {"mel", "tokens"} if "formats" in case else set()
        given = {
            name
            for name in arrays
            if name.endswith("_prompt") or name[2:] in ("0_tokens", "1_tokens")
        }
        later = {name for name in arrays if name.startswith("own_")}
        assert set(arrays) - inputs - given - later <= compared


@pytest.mark.gpu
def test_goldens_hold_on_a_gpu() -> None:
    """One case: a software GPU takes a minute to compile the kernels of each set of sizes."""
    code, said = check(GOLDENS / "whisper_multi", "--device", "gpu", "--family", "whisper")
    assert code == 0, said
    assert "cosine" in said


@pytest.mark.parametrize(
    ("array", "by", "code"),
    [
        ("mel", 1e-3, 1),
        ("enc_layer0", 1e-3, 1),
        ("enc_out", 1e-3, 1),
        ("enc_out", 1e-5, 0),
        ("tf0_dec_hidden", 1e-3, 1),
        ("tf1_logits", 5e-3, 1),
        ("greedy_ts_step_logits", 5e-3, 1),
        ("greedy_nots_tokens", 1, 1),
        ("sot_logits", float("nan"), 1),
    ],
)
def test_one_wrong_number_is_a_miss(one_case: Path, array: str, by: float, code: int) -> None:
    path = one_case / "whisper_en" / "golden.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays[array] = arrays[array].copy()
    arrays[array].flat[-1] += np.asarray(by).astype(arrays[array].dtype)
    np.savez(path, **arrays)
    found, said = check(one_case)
    assert found == code, said
    assert bool(re.search(rf"MISS +{array}:", said)) == bool(code)


def test_one_wrong_window_is_a_miss(one_case: Path) -> None:
    path = one_case / "whisper_en" / "golden.json"
    meta = json.loads(path.read_text())
    meta["own_long_cond_windows"][-1]["seek"] += 2
    path.write_text(json.dumps(meta))
    code, said = check(one_case)
    assert code == 1 and re.search("MISS +long_cond windows: differs", said)


def test_a_missing_shard_is_a_miss(one_case: Path) -> None:
    next((one_case / "whisper_en").glob("model-00001*")).unlink()
    code, said = check(one_case / "whisper_en")
    assert code == 1 and "is missing" in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("case", "array"),
    [("text", "t0/ids"), ("sampler", "s2/probs"), ("codec", "dec_wav")],
)
def test_one_wrong_number_of_speech_is_a_miss(tmp_path: Path, case: str, array: str) -> None:
    shutil.copytree(GOLDENS / "qwen3_tts" / case, tmp_path / case)
    path = tmp_path / case / "expected.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    changed = arrays[array].copy()
    changed.flat[-1] += np.asarray(1 if changed.dtype.kind == "i" else 1e-2, changed.dtype)
    np.savez(path, **arrays | {array: changed})
    code, said = check(tmp_path)
    assert code == 1 and re.search(rf"MISS +{array}:", said), said


def test_what_is_not_built_is_listed_and_does_not_fail(tmp_path: Path) -> None:
    case = tmp_path / "base"
    case.mkdir()
    (case / "golden.json").write_text("{}")  # and no configuration that says of which family
    code, said = check(tmp_path)
    assert code == 0 and "not yet compared, 1: base/all" in said
    assert check(tmp_path, "--family", "whisper")[0] == 2


@pytest.mark.parametrize(
    "arguments", ((), ("/nowhere",), (GOLDENS / "audio",), (GOLDENS, "--family", "other"))
)
def test_misuse(arguments: tuple[object, ...]) -> None:
    code, said = check(*arguments)
    assert code == 2 and "Traceback" not in said
