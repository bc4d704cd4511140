"""Runs small models where something is not there; test_numpy_alone.py calls it in a process.

    python on_numpy_alone.py WITHOUT... -- CASE...

WITHOUT: `packages` (all but NumPy), `packages+tokenizers` (all but these two), `threads` (none can
be started), `long_integers` (NumPy's default integer has 32 bits). Prints a JSON object: what each
case gives.
"""

from __future__ import annotations

import ast
import json
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

GOLDENS = Path(__file__).resolve().parent / "goldens"
FIRM: dict[str, Any] = {"vad_filter": False, "sample_len": 12, "condition_on_previous_text": False}
WHISPER: dict[str, dict[str, Any]] = {
    "greedy": {**FIRM, "temperature": 0.0},
    "sampled": {**FIRM, "temperature": 0.8, "best_of": 3, "seed": 7},
    "beams": {**FIRM, "temperature": 0.0, "beam_size": 3},
    "words": {**FIRM, "temperature": 0.0, "word_timestamps": True, "initial_prompt": "I'm 12."},
}


def whisper(name: str, how: str) -> Any:
    """Segments of two seconds of sound."""
    import oscine

    model: Any = oscine.load(GOLDENS / name, "cpu")
    transcript = model.transcribe(sound(), **WHISPER[how])
    return [[s.start, s.end, list(s.tokens), s.text] for s in transcript.segments]


def parakeet(name: str) -> Any:
    """Segments likewise."""
    import oscine

    model: Any = oscine.load(GOLDENS / name, "cpu")
    transcript = model.transcribe(sound(), vad_filter=False)
    return [[s.start, s.end, s.text] for s in transcript.segments]


def qwen3_tts(name: str) -> Any:
    """How much is said, and a sum of it."""
    import oscine

    model: Any = oscine.load(GOLDENS / "qwen3_tts" / name / "ckpt", "cpu")
    voice = next(iter(model.voices), None)
    speech = model.speak("Good day.", voice=voice, seed=3, max_frames=6, guard=False)
    return [len(speech.samples), float(np.abs(speech.samples).sum(dtype=np.float64))]


def sound() -> Any:
    """Two seconds, always the same."""
    seconds = np.arange(32_000, dtype=np.float32) / 16_000
    return 0.2 * np.sin(2 * np.pi * (200 + 400 * seconds) * seconds).astype(np.float32)


CASES: dict[str, Callable[[], Any]] = {
    **{f"whisper_en {how}": lambda how=how: whisper("whisper_en", how) for how in WHISPER},
    **{f"whisper_multi {how}": lambda how=how: whisper("whisper_multi", how) for how in WHISPER},
    **{
        f"whisper_formats/{form}": lambda form=form: whisper(f"whisper_formats/{form}", "greedy")
        for form in ("hf", "ggml-q5_1.bin", "ct2_int8")
    },
    **{name: lambda name=name: parakeet(name) for name in ("parakeet_ctc", "parakeet_rnnt")},
    **{name: lambda name=name: parakeet(name) for name in ("parakeet_tdt", "parakeet_formats/mlx")},
    "qwen3_tts/custom_voice": lambda: qwen3_tts("custom_voice"),
}


class Alone(MetaPathFinder):
    """Finds the standard library, oscine and the packages that are allowed, and no other."""

    def __init__(self, *packages: str) -> None:
        self.allowed = {"oscine", "numpy", *packages, *sys.stdlib_module_names}

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> None:
        top = name.partition(".")[0]
        if top not in self.allowed and not top.startswith(("_", "numpy")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class ShortIntegers(ast.NodeTransformer):
    """`int` as a type of elements becomes 32 bits, as it is where C's long has no more."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr != "index":
            short = ast.parse("__import__('numpy').int32", mode="eval").body
            node.args = [short if _is_int(each) else each for each in node.args]
            for keyword in node.keywords:
                if _is_int(keyword.value):
                    keyword.value = short
        return node


def _is_int(node: ast.AST) -> bool:
    whole = isinstance(node, ast.Name) and node.id == "int"
    return whole or (isinstance(node, ast.Attribute) and node.attr in ("intp", "int_"))


class ShortLoader(SourceFileLoader):
    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:  # type: ignore[override]
        tree = ShortIntegers().visit(ast.parse(data))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def get_code(self, fullname: str) -> Any:  # never from a cache
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class Short(MetaPathFinder):
    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != "oscine":
            return None
        found = PathFinder.find_spec(name, path)
        if found is not None and isinstance(found.loader, SourceFileLoader):
            found.loader = ShortLoader(found.loader.name, found.loader.path)
        return found


def shortened(call: Callable[..., Any]) -> Callable[..., Any]:
    """Of NumPy's: where it chooses 64 bits by itself, 32, unless what it is given has them."""

    def short(*given: Any, **named: Any) -> Any:
        made = call(*given, **named)
        stated = "dtype" in named or any(isinstance(each, type | np.dtype) for each in given)
        long = any(getattr(each, "dtype", None) in (np.int64, np.uint64) for each in given)
        if stated or long or getattr(made, "dtype", None) not in (np.int64, np.uint64):
            return made
        return made.astype(np.int32 if made.dtype == np.int64 else np.uint32)

    return short


def prepare(without: Sequence[str]) -> None:
    """Take it away."""
    if "packages" in without:
        sys.meta_path.insert(0, Alone())
    if "packages+tokenizers" in without:
        sys.meta_path.insert(0, Alone("tokenizers", "huggingface_hub"))
    if "threads" in without:

        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        threading.Thread.start = refuse  # type: ignore[method-assign]
    if "long_integers" in without:
        sys.meta_path.insert(0, Short())
        for name in ("arange", "array", "asarray", "cumsum", "sum", "prod", "flatnonzero", "diff"):
            setattr(np, name, shortened(getattr(np, name)))


if __name__ == "__main__":
    cut = sys.argv.index("--")
    prepare(sys.argv[1:cut])
    print(json.dumps({case: CASES[case]() for case in sys.argv[cut + 1 :]}))
