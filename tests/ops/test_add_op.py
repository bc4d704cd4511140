"""CONTRIBUTING, "How to add: an op": each step of the list is followed here for every op there is.

An op that lacks a step is named with it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import ops
from oscine.gpu.kernels import kernel_files, load, source_of
from oscine.gpu.tensor import Tensor
from oscine.ops import Ops, check, shadow
from oscine.ops.check import Case
from oscine.ops.effects import OpEffects
from oscine.ops.reference import Reference
from oscine.ops.reference.channels import ChannelOps
from oscine.ops.webgpu import Gpu
from oscine.ops.webgpu.channels import GpuChannels
from oscine.tree import tree_paths

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "indexes.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
#: They name, store or rename a tensor: no effects, kernel or case; shadow mode has them as methods.
PLAIN = {"store", "reshape", "probe"}
MAX_BUFFERS = 8
#: Two cases are left out: their weights take as long to make as those of all others.
CASES = tuple(case for case in check.CASES if not re.match(r"linear 1x64x\d{5}", case.name))
WHOLE_NUMBERS = re.compile(r"var<storage, \w+> \w+: array<(?:u32|vec\d<u32>)>")


def vocabulary() -> dict[str, Callable[..., Any]]:
    """Every op by name, as it is defined."""
    return {
        name: getattr(Ops, name)
        for kind in Ops.__mro__
        for name, one in vars(kind).items()
        if callable(one) and not name.startswith("_")
    }


# -- what the cases do ----------------------------------------------------------------------------


@dataclass
class Seen:
    """What the table of cases shows of the ops that it calls."""

    cases: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    written: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # by op
    void: set[str] = field(default_factory=set)  # ops whose rows of finished sequences mean nothing
    kernels: dict[str, set[str]] | None = None  # by op; None: nothing was recorded
    bound: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # to be written


def tensors(given: dict[str, Any], leaf: type) -> dict[str, Any]:
    """The tensors among a call's operands, by the path that effects name them by."""
    return {
        f"{name}.{path}" if path else name: tensor
        for name, tree in given.items()
        for path, tensor in tree_paths(tree, leaf).items()
    }


class Spy:
    """A backend whose ops are called by a case, not by each other."""

    def __init__(
        self, backend: Any, called: Callable[[str, Callable[[], Any], dict[str, Any]], Any]
    ):
        self.backend, self.called = backend, called

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.backend, name)
        if name not in vocabulary():
            return found

        def call(*operands: Any, **options: Any) -> Any:
            given = inspect.signature(found).bind(*operands, **options).arguments
            return self.called(name, lambda: found(*operands, **options), given)

        return call


def seen_in(cases: tuple[Case, ...]) -> Seen:
    """Run every case once in NumPy, and see which operands each op changes."""
    seen = Seen()

    def called(name: str, call: Callable[[], Any], given: dict[str, Any]) -> Any:
        seen.cases[name].append(case.name)
        operands = tensors(given, np.ndarray)
        before = {path: array.tobytes() for path, array in operands.items()}
        result = call()
        if case.row_mask and result is not None:
            seen.void.add(name)
        seen.written[name] |= {p for p, array in operands.items() if array.tobytes() != before[p]}
        return result

    for case in cases:
        rng = np.random.default_rng(len(case.name))
        weights, inputs = case.weights(rng), case.inputs(rng)
        reference = Reference()
        own = {name: ops.upload(reference, value) for name, value in weights.items()}
        case.call(Spy(reference, called), inputs, own)
    return seen


@pytest.fixture(scope="module")
def seen() -> Seen:
    return seen_in(CASES)


# -- the steps ------------------------------------------------------------------------------------


def definition(op: str, seen: Seen) -> str | None:
    own = vocabulary()[op]
    if not (inspect.getdoc(own) or "").endswith("."):
        return "it has no docstring"
    if op in PLAIN:
        return None if op in vars(shadow.Shadow) else "Shadow has no method of this name"
    effects = getattr(own, "effects", None)
    if effects is None:
        return "it declares no effects"
    strays = undeclared(effects, seen.written[op]) | undeclared(effects, seen.bound[op])
    if strays:
        return f"it writes {', '.join(sorted(strays))}, and does not declare it"
    if op in seen.cases:
        idle = {path for path in effects.writes if not part_of(path, seen.written[op])}
        if idle:
            return f"it declares to write {', '.join(sorted(idle))}, and no case shows it"
    if op in seen.void and not effects.row_mask:
        return "it leaves rows of finished sequences void, and does not declare it"
    return None


def part_of(declared: str, written: set[str]) -> set[str]:
    """Those of the paths written that are, or are part of, a declared one."""
    return {path for path in written if path == declared or path.startswith(declared + ".")}


def undeclared(effects: OpEffects, written: set[str]) -> set[str]:
    """Those of the paths written that no fact names."""
    return written - {path for one in effects.writes for path in part_of(one, written)}


def gpu_side(op: str, seen: Seen) -> str | None:
    own = getattr(Gpu, op, None)
    if own is None:
        return "Gpu has no method of this name"
    if inspect.signature(own) != inspect.signature(vocabulary()[op]):
        return "Gpu takes other parameters than the definition"
    return None


def kernel(op: str, seen: Seen) -> str | None:
    if seen.kernels is None or op in PLAIN:
        return None
    return None if seen.kernels.get(op) else "it records no kernel"


def case(op: str, seen: Seen) -> str | None:
    return None if op in PLAIN or op in seen.cases else "no case calls it"


def indexes(op: str, seen: Seen) -> str | None:
    kernels = (seen.kernels or {}).get(op, set())
    reading = {name for name in kernels if WHOLE_NUMBERS.search(kernel_text(name))}
    rows = {name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.M) for name in row.split("`")}
    missing = reading - rows
    return f"docs/indexes.md has no row for {', '.join(sorted(missing))}" if missing else None


STEPS: dict[str, Callable[[str, Seen], str | None]] = {
    "definition": definition,
    "GPU": gpu_side,
    "kernel": kernel,
    "case": case,
    "indexes": indexes,
}


def lacking(seen: Seen) -> dict[str, list[str]]:
    """By op, the steps that were left out, with what is missing."""
    found: dict[str, list[str]] = {}
    for op in vocabulary():
        problems = ((step, follow(op, seen)) for step, follow in STEPS.items())
        missing = [f"{step}: {problem}" for step, problem in problems if problem]
        if missing:
            found[op] = missing
    return found


def kernel_text(name: str) -> str:
    return source_of(name)


# -- every op -------------------------------------------------------------------------------------


def test_the_steps_are_those_of_contributing() -> None:
    section = CONTRIBUTING.partition("- *An op*")[2].partition("\n- *")[0]
    assert re.findall(r"^  \d\. \*(\w+)\*", section, re.M) == list(STEPS)


def test_every_op_has_every_step(seen: Seen) -> None:
    assert lacking(seen) == {}


def bound_for_writing(kernel: str, operands: list[Any]) -> list[Any]:
    """The operands of a dispatch that its kernel may write."""
    ways = re.findall(r"var<storage, (\w+)>", load(kernel))
    return [tensor for tensor, way in zip(operands, ways, strict=True) if way == "read_write"]


@pytest.mark.gpu
@pytest.mark.host
def test_every_op_has_kernels_that_write_what_it_declares(
    gpu: Gpu, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels are named and not compiled: other tests run them."""
    recorder = Gpu(gpu.device)
    named: list[tuple[str, list[Any]]] = []
    found = replace(seen, kernels=defaultdict(set), bound=defaultdict(set))
    assert found.kernels is not None
    recorder.dispatch = lambda kernel, given, *_, **__: named.append((kernel, given))  # type: ignore[method-assign]

    def called(name: str, call: Callable[[], Any], given: dict[str, Any]) -> Any:
        named.clear()
        operands = tensors(given, Tensor)
        result = call()
        found.kernels[name] |= {kernel for kernel, _ in named}
        for kernel, bound in named:
            for tensor in bound_for_writing(kernel, bound):
                found.bound[name] |= {path for path, own in operands.items() if own is tensor}
        return result

    for case in CASES:
        rng = np.random.default_rng(0)
        weights, inputs = case.weights(rng), case.inputs(rng)
        theirs = {name: ops.upload(recorder, value) for name, value in weights.items()}
        slots = {name: recorder.zeros(value.shape, value.dtype) for name, value in inputs.items()}
        case.call(Spy(recorder, called), slots, theirs)
    assert lacking(found) == {}
    assert lacking(replace(found, kernels={**found.kernels, "concat": set()})) == {
        "concat": ["kernel: it records no kernel"]
    }
    stray = replace(found, bound=defaultdict(set, {**found.bound, "concat": {"parts.0"}}))
    problem = "definition: it writes parts.0, and does not declare it"
    assert lacking(stray) == {"concat": [problem]}
    unbounded = {**found.kernels, "concat": {"concat", "step_counter"}}
    monkeypatch.setattr(
        sys.modules[__name__], "kernel_text",
        lambda name: "var<storage, read> n: array<u32>;" if name == "step_counter" else "",
    )  # fmt: skip
    problem = "indexes: docs/indexes.md has no row for step_counter"
    assert lacking(replace(found, kernels=unbounded)) == {"concat": [problem]}


@pytest.mark.parametrize(
    "name",
    [name for name in sorted(kernel_files()) if not name.startswith("_")],
)  # fmt: skip
def test_a_kernel_says_what_it_computes_and_how_it_is_launched(name: str) -> None:
    text = load(name)
    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("//"))
    assert text.startswith("// ") and re.search(r"\blaunch", head, re.I)
    assert text.count("var<storage") <= MAX_BUFFERS


# -- an op that lacks one -------------------------------------------------------------------------


def other_parameters(self: Any, parts: Any, axis: int = 1) -> Any: ...


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (lambda m: m.delattr(GpuChannels, "concat"), "GPU: Gpu has no method of this name"),
        (
            lambda m: m.setattr(GpuChannels, "concat", other_parameters),
            "GPU: Gpu takes other parameters than the definition",
        ),
        (
            lambda m: m.setattr(ChannelOps.concat, "__doc__", None),
            "definition: it has no docstring",
        ),
        (lambda m: m.delattr(ChannelOps.concat, "effects"), "definition: it declares no effects"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_op_that_lacks_a_step_is_named(
    seen: Seen, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None], missing: str
) -> None:
    change(monkeypatch)
    assert lacking(seen) == {"concat": [missing]}


def test_an_op_that_no_case_calls_is_named() -> None:
    others = tuple(case for case in CASES if not case.name.startswith(("concat", "slice_columns")))
    found = lacking(seen_in(others[-12:]))
    assert found["concat"] == found["slice_columns"] == ["case: no case calls it"]


@pytest.mark.parametrize(
    ("op", "effects", "problem"),
    [
        (
            "sample_token",
            OpEffects(("state.rows",)),
            "it writes state.tokens, and does not declare it",
        ),
        ("nearest_code", OpEffects(), "it writes codes, and does not declare it"),
        (
            "cross_attention",
            OpEffects(("kv",), "state"),
            "it declares to write kv, and no case shows it",
        ),
        (
            "joint_network",
            OpEffects(("memory.joint",)),
            "it leaves rows of finished sequences void, and does not declare it",
        ),
    ],
)
def test_an_op_that_does_what_it_does_not_declare_is_named(
    seen: Seen, monkeypatch: pytest.MonkeyPatch, op: str, effects: OpEffects, problem: str
) -> None:
    monkeypatch.setattr(vocabulary()[op], "effects", effects)
    assert lacking(seen) == {op: [f"definition: {problem}"]}


def test_an_op_that_was_only_named_lacks_all_else(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def softmax(self: Any, x: Any) -> Any:
        """Over the last axis."""

    monkeypatch.setattr(Ops, "softmax", softmax, raising=False)
    steps = [problem.partition(":")[0] for problem in lacking(seen)["softmax"]]
    assert steps == ["definition", "GPU", "case"]
