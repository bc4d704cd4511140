"""The compiled CPU backend: its ops equal NumPy's, and models make the same text of them."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine import hub, ops, threads
from oscine.backends import cpu_backend
from oscine.errors import DeviceError, UsageError
from oscine.ops.cases import Case
from oscine.ops.check import CASES, run_case
from oscine.ops.reference import Reference
from oscine.quantized import Q4, Q8, dequantize, quantize

pytest.importorskip("numba", reason="the extra [cpu] is not installed")
from oscine.ops.compiled import Compiled, library
from oscine.ops.compiled.team import Crew
from oscine.ops.compiled.words import PIECE_BITS

GOLDENS = Path(__file__).resolve().parent.parent / "goldens"


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    """The backend, whose machine code is stored where commands have it."""
    return Compiled(hub.home() / "kernels")


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = threads.count()
    threads.set_count(2)
    yield
    threads.set_count(before)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_op_equals_its_meaning(compiled: Compiled, case: Case) -> None:
    result = run_case(compiled, case, seed=len(case.name))
    print(f"{case.name}: largest difference {result.error:.2e} of the largest value")
    assert result.passed


def random_linear(kind: Any, outputs: int, inputs: int) -> ops.Linear:
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((outputs, inputs)).astype(kind)
    return ops.Linear(weight, rng.standard_normal(outputs).astype(np.float32))


@pytest.mark.parametrize("rows", [1, 3, 4, 7, 24, 25])
def test_a_product_does_not_depend_on_threads(
    compiled: Compiled, two_threads: None, rows: int
) -> None:
    x = np.random.default_rng(2).standard_normal((rows, 512)).astype(np.float32)
    linear = ops.upload(compiled, random_linear(np.float16, 3001, 512))
    together = [compiled.linear(x, linear, activation="gelu") for _ in range(20)]
    threads.set_count(1)
    alone = compiled.linear(x, linear, activation="gelu")
    assert all(np.array_equal(y, alone) for y in together)


def test_weights_keep_their_two_bytes(compiled: Compiled) -> None:
    matrix = random_linear(np.float16, 128, 64).weight
    before = compiled.budget.used
    kept = compiled.upload(matrix)
    assert kept.dtype == np.float16
    assert compiled.budget.used - before == matrix.nbytes == compiled.stored_bytes(matrix)
    assert compiled.upload(matrix[:3]).dtype == np.float32  # too small to matter


@pytest.mark.parametrize("dtype", [Q8, Q4], ids=["q8", "q4"])
def test_weights_in_blocks_stay_in_blocks(compiled: Compiled, dtype: Any) -> None:
    """Of them, products of few and many rows are those of the weights that they stand for."""
    blocks = quantize(random_linear(np.float32, 130, 96).weight, dtype)
    kept = compiled.upload(blocks)
    assert kept.dtype == dtype and compiled.stored_bytes(blocks) == blocks.nbytes
    for rows in (1, 5, 24, 25, 400):
        x = np.random.default_rng(rows).standard_normal((rows, 96)).astype(np.float32)
        found = compiled.linear(x, ops.Linear(kept, None))
        assert np.abs(found - x @ dequantize(blocks).T).max() < 1e-4


def test_damaged_logits_stop_a_sequence(compiled: Compiled) -> None:
    case = next(case for case in CASES if case.name.startswith("sample_token"))
    inputs = case.inputs(np.random.default_rng(0))
    inputs["logits"][:, 3] = np.nan
    rows = inputs["rows"]
    rows["done"], rows["temperature"] = 0, 0
    case.call(compiled, inputs, case.weights(np.random.default_rng(0)))
    assert (rows["done"] == ops.STOP_NONFINITE).all()


def transcripts(backend: str, model: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    monkeypatch.setenv("OSCINE_CPU", backend)
    samples = np.random.default_rng(0).standard_normal(16000 * 4).astype(np.float32) / 10
    loaded = oscine.load(model, device="cpu", dtype=options.pop("dtype", "auto"))
    assert loaded.device == {"numpy": "NumPy", "numba": "Numba"}[backend]
    found = loaded.transcribe(options.pop("audio", samples), vad_filter=False, **options)
    return [(segment.start, segment.end, segment.text) for segment in found.segments]


@pytest.mark.parametrize("model", ["whisper_multi", "parakeet_tdt"])
def test_a_golden_has_the_same_text(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, found = (
        transcripts(name, GOLDENS / model, monkeypatch) for name in ("numpy", "numba")
    )
    assert found == expected


def test_an_interrupt_waits_for_the_pieces_of_others(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of a piece is the caller's, who frees it; and the next work counts from none."""
    crew = Crew(compiled.team.library, 1)
    waits: list[int] = []

    def divide(words: Any, start: int, looks: int) -> None:
        words[5], crew._done.value = 1, 1
        crew._ticket.value = 2 << PIECE_BITS | 2  # of two pieces both have begun

    def sleep(seconds: float) -> None:
        waits.append(crew._done.value)
        if len(waits) == 1:
            raise KeyboardInterrupt
        crew._done.value = 2

    monkeypatch.setattr(crew, "_divide", divide)
    monkeypatch.setattr("time.sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        crew.divide(0, (ctypes.c_int64 * 1)(), 2, 1)
    assert crew._done.value == 2 and waits == [1, 1]


@pytest.mark.parametrize(
    "options", [{}, {"beam_size": 3}, {"word_timestamps": True}, {"dtype": "q8"}, {"dtype": "q4"}]
)
@pytest.mark.weights
def test_a_recording_has_the_same_text(
    weights: dict[str, Path],
    example: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
) -> None:
    expected, found = (
        transcripts(name, weights["tiny.en"], monkeypatch, audio=example, **options)
        for name in ("numpy", "numba")
    )
    assert found == expected and found


@pytest.mark.parametrize("kind", ["custom_voice", "voice_design"])
def test_a_golden_speaks_alike(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights are bfloat16, of which every table of embeddings is read."""
    made = []
    for name in ("numpy", "numba"):
        monkeypatch.setenv("OSCINE_CPU", name)
        model: Any = oscine.load(GOLDENS / "qwen3_tts" / kind / "ckpt", device="cpu")
        voice = {"voice": "ryan"} if kind == "custom_voice" else {"instruct": "A voice."}
        made.append(model.speak("Good day.", **voice, seed=1, max_frames=4).samples)
    np.testing.assert_allclose(made[1], made[0], atol=1e-4)


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {}
    for value in ("numpy", "numba", ""):
        monkeypatch.setenv("OSCINE_CPU", value)
        names[value] = cpu_backend().name
    assert names == {"numpy": "NumPy", "numba": "Numba", "": "Numba"}
    monkeypatch.setenv("OSCINE_CPU", "fortran")
    with pytest.raises(UsageError, match="OSCINE_CPU=fortran: it must be numpy or numba"):
        cpu_backend()


def test_without_the_extra_it_is_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "oscine.ops.compiled", None)
    monkeypatch.delenv("OSCINE_CPU")
    assert type(cpu_backend()) is Reference
    monkeypatch.setenv("OSCINE_CPU", "numba")
    with pytest.raises(DeviceError, match=r"the extra \[cpu\] is not installed"):
        cpu_backend()


def test_a_failure_of_the_compiler_leaves_numpy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(folder: Path) -> None:
        raise OSError("no LLVM here")

    monkeypatch.setattr("oscine.ops.compiled.team", broken)
    monkeypatch.delenv("OSCINE_CPU")
    assert type(cpu_backend()) is Reference
    assert "using NumPy: the kernels cannot be compiled (no LLVM here)" in caplog.text


def test_a_processor_without_half_precision_has_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(library, "has_half_conversion", lambda: False)
    monkeypatch.setenv("OSCINE_HOME", str(tmp_path))  # other kernels than those already loaded
    monkeypatch.delenv("OSCINE_CPU")
    assert type(cpu_backend()) is Reference
    assert "this processor has no conversion of float16" in caplog.text


def test_damaged_machine_code_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong name of a symbol has no address, and a call of it would end the process."""
    path, made = tmp_path / "some.kernels", ({"norm": "n"}, b"machine code\n with a newline")
    monkeypatch.setattr(library, "compile_kernels", lambda machine: made)
    library.compile_and_store(path, None)
    whole = path.read_bytes()
    assert library.read_stored(path) == made
    flipped = (whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in range(len(whole)))
    for damaged in (*flipped, *(whole[:i] for i in range(len(whole))), b"[]\n" + made[1]):
        path.write_bytes(damaged)
        assert library.read_stored(path) is None
    assert library.read_stored(tmp_path / "none") is None


def test_code_is_used_where_it_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(library, "compile_kernels", lambda machine: ({"norm": "n"}, b"code"))
    blocked = tmp_path / "a file"
    blocked.touch()
    assert library.compile_and_store(blocked / "x.kernels", None) == ({"norm": "n"}, b"code")
    assert "the compiled kernels are not stored" in caplog.text
    stored = tmp_path / "kernels" / "x.kernels"
    library.compile_and_store(stored, None)
    assert library.read_stored(stored) == ({"norm": "n"}, b"code")
    assert [path.name for path in stored.parent.iterdir()] == ["x.kernels"]
    (stored.parent / "y.kernels").mkdir()  # cannot be replaced by a file
    library.compile_and_store(stored.parent / "y.kernels", None)
    assert {path.name for path in stored.parent.iterdir()} == {"x.kernels", "y.kernels"}


def test_a_kernel_that_needs_a_runtime_is_refused() -> None:
    text = "declare void @raise()\ndefine void @k() { call void @raise() ret void }"
    module = library.llvm.parse_assembly(text)
    with pytest.raises(RuntimeError, match="the kernels need raise"):
        library.remove_error_paths(module, {"k"}, library.target_machine())
