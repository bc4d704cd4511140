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
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine import ops
from oscine.gpu.kernels import load
from oscine.ops import Cache, Memory, Ops, Pool, State, Track, Utterances, check, shadow
from oscine.ops.check import Case
from oscine.ops.codec import Coding
from oscine.ops.codec_ops import CodecOps
from oscine.ops.gpu import Gpu
from oscine.ops.gpu_codec import GpuCodec
from oscine.ops.reference import Reference
from oscine.tree import tree_leaves

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "indexes.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
#: They name, keep or rename a tensor: no kernel, no case; shadow mode has methods for them.
PLAIN = {"keep", "reshape", "probe"}
WRITTEN_TREES = State | Cache | Pool | Track | Memory | Utterances
MOST_BUFFERS = 8
#: Two cases are left out: their weights take as long to make as those of all others.
CASES = tuple(case for case in check.CASES if not re.match(r"linear 1x64x\d{5}", case.name))
WHOLE_NUMBERS = re.compile(r"var<storage, \w+> \w+: array<(?:u32|vec\d<u32>)>")


def vocabulary() -> dict[str, Callable[..., Any]]:
    """Every op by name, as the protocols declare it."""
    named = {name: op for kind in Ops.__mro__ for name, op in vars(kind).items() if callable(op)}
    return {name: op for name, op in named.items() if not name.startswith("_")}


# -- what the cases do ----------------------------------------------------------------------------


@dataclass
class Facts:
    """What the table of cases shows of the ops that it calls."""

    cases: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    trees_written: set[str] = field(default_factory=set)  # ops that write a State or the like
    slots_written: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    void: set[str] = field(default_factory=set)  # ops whose rows of finished lines mean nothing
    unnamed: list[str] = field(default_factory=list)  # cases that write what they do not compare
    kernels: dict[str, set[str]] | None = None  # by op; None: nothing was recorded


def content(tree: Any) -> list[bytes]:
    return [array.tobytes() for array in tree_leaves(tree)]


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


def facts_of(cases: tuple[Case, ...]) -> Facts:
    """Run every case once in NumPy, and see which operands each op changes."""
    facts = Facts()

    def called(name: str, call: Callable[[], Any], given: dict[str, Any]) -> Any:
        facts.cases[name].append(case.name)
        if case.lines:
            facts.void.add(name)
        before = {key: content(value) for key, value in given.items()}
        result = call()
        for key, value in given.items():
            if content(value) != before[key]:
                if isinstance(value, WRITTEN_TREES):
                    facts.trees_written.add(name)
                else:
                    facts.slots_written[name].add(key)
        return result

    for case in cases:
        rng = np.random.default_rng(len(case.name))
        weights, inputs = case.weights(rng), case.inputs(rng)
        reference = Reference()
        own = {name: ops.upload(reference, value) for name, value in weights.items()}
        before = {name: content(value) for name, value in inputs.items()}
        case.call(Spy(reference, called), inputs, own)
        changed = {name for name, value in inputs.items() if content(value) != before[name]}
        if not changed <= set(case.compare):
            facts.unnamed.append(f"{case.name} writes {sorted(changed - set(case.compare))}")
    return facts


@pytest.fixture(scope="module")
def facts() -> Facts:
    return facts_of(CASES)


# -- the steps ------------------------------------------------------------------------------------


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Name, kind and default of each, without self."""
    every = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in every if one.name != "self"]


def side(op: str, backend: type) -> str | None:
    """What a side of the vocabulary has to be."""
    own = getattr(backend, op, None)
    if own is None:
        return f"{backend.__name__} has no method of this name"
    if parameters(own) != parameters(vocabulary()[op]):
        return f"{backend.__name__} takes other parameters than the signature says"
    return None


def signature(op: str, facts: Facts) -> str | None:
    told = inspect.getdoc(vocabulary()[op]) or ""
    return None if told.endswith(".") else "its signature has no docstring"


def meaning(op: str, facts: Facts) -> str | None:
    return side(op, Reference)


def gpu_side(op: str, facts: Facts) -> str | None:
    return side(op, Gpu)


def kernel(op: str, facts: Facts) -> str | None:
    if facts.kernels is None or op in PLAIN:
        return None
    return None if facts.kernels.get(op) else "it records no kernel"


def case(op: str, facts: Facts) -> str | None:
    return None if op in PLAIN or op in facts.cases else "no case calls it"


def shadowed(op: str, facts: Facts) -> str | None:
    if op in PLAIN:
        return None if op in vars(shadow.Shadow) else "Shadow has no method of this name"
    if op not in shadow.OPS:
        return "it is not in shadow.OPS"
    if op in facts.trees_written and op not in shadow.WRITERS:
        return "it writes a state or cache, and is not in shadow.WRITERS"
    if op in facts.void and op not in shadow.VOID:
        return "it leaves rows of finished lines void, and is not in shadow.VOID"
    slots = facts.slots_written.get(op)
    if slots and slots != {shadow.WRITTEN.get(op)}:
        return f"it writes {', '.join(sorted(slots))}, and shadow.WRITTEN does not say so"
    return None


def indexes(op: str, facts: Facts) -> str | None:
    kernels = (facts.kernels or {}).get(op, set())
    reading = {name for name in kernels if WHOLE_NUMBERS.search(kernel_text(name))}
    rows = {name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.M) for name in row.split("`")}
    missing = reading - rows
    return f"docs/indexes.md has no row for {', '.join(sorted(missing))}" if missing else None


STEPS: dict[str, Callable[[str, Facts], str | None]] = {
    "signature": signature,
    "meaning": meaning,
    "GPU": gpu_side,
    "kernel": kernel,
    "case": case,
    "shadow": shadowed,
    "indexes": indexes,
}


def lacking(facts: Facts) -> dict[str, list[str]]:
    """By op, the steps that were left out, with what is missing."""
    found: dict[str, list[str]] = {}
    for op in vocabulary():
        problems = ((step, follow(op, facts)) for step, follow in STEPS.items())
        missing = [f"{step}: {problem}" for step, problem in problems if problem]
        if missing:
            found[op] = missing
    return found


def kernel_text(name: str) -> str:
    return files("oscine.kernels").joinpath(f"{name}.wgsl").read_text("utf-8")


# -- every op -------------------------------------------------------------------------------------


def test_the_steps_are_those_of_contributing() -> None:
    section = CONTRIBUTING.partition("- *An op*")[2].partition("\n- *")[0]
    assert re.findall(r"^  \d\. \*(\w+)\*", section, re.M) == list(STEPS)


def test_every_op_has_every_step(facts: Facts) -> None:
    assert lacking(facts) == {}
    assert not facts.unnamed


def test_shadow_mode_expects_no_writing_that_no_case_shows(facts: Facts) -> None:
    assert set(shadow.WRITERS) <= facts.trees_written
    declared = {op: {slot} for op, slot in shadow.WRITTEN.items()}
    assert declared | {"keep": {"slot"}} == facts.slots_written
    assert {*shadow.WRITERS, *shadow.WRITTEN, *shadow.VOID} <= set(shadow.OPS)


@pytest.mark.gpu
@pytest.mark.host
def test_every_op_has_a_kernel_whose_indexes_are_bounded(
    gpu: Gpu, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels are named and not compiled: other tests run them."""
    recorder = Gpu(gpu.device)
    named: list[str] = []
    kernels: dict[str, set[str]] = defaultdict(set)
    recorder.add = lambda kernel, *given, **parameters: named.append(kernel)  # type: ignore[method-assign]

    def called(name: str, call: Callable[[], Any], given: dict[str, Any]) -> Any:
        named.clear()
        result = call()
        kernels[name] |= set(named)
        return result

    for case in CASES:
        rng = np.random.default_rng(0)
        weights, inputs = case.weights(rng), case.inputs(rng)
        theirs = {name: ops.upload(recorder, value) for name, value in weights.items()}
        slots = {name: recorder.slot(value.shape, value.dtype) for name, value in inputs.items()}
        case.call(Spy(recorder, called), slots, theirs)
    assert lacking(replace(facts, kernels=kernels)) == {}
    without = {**kernels, "concat": set()}
    assert lacking(replace(facts, kernels=without)) == {"concat": ["kernel: it records no kernel"]}
    unbounded = {**kernels, "concat": {"concat", "step_counter"}}
    monkeypatch.setattr(
        sys.modules[__name__], "kernel_text",
        lambda name: "var<storage, read> n: array<u32>;" if name == "step_counter" else "",
    )  # fmt: skip
    problem = "indexes: docs/indexes.md has no row for step_counter"
    assert lacking(replace(facts, kernels=unbounded)) == {"concat": [problem]}


@pytest.mark.parametrize(
    "name",
    sorted(file.name.removesuffix(".wgsl") for file in files("oscine.kernels").iterdir()
           if file.name.endswith(".wgsl") and not file.name.startswith("_")),
)  # fmt: skip
def test_a_kernel_says_what_it_computes_and_how_it_is_launched(name: str) -> None:
    text = load(name)
    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("//"))
    assert text.startswith("// ") and re.search(r"\blaunch", head, re.I)
    assert text.count("var<storage") <= MOST_BUFFERS


# -- an op that lacks one -------------------------------------------------------------------------


def other_parameters(self: Any, parts: Any, axis: int = 1) -> Any: ...


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (lambda m: m.delattr(Coding, "concat"), "meaning: Reference has no method of this name"),
        (lambda m: m.delattr(GpuCodec, "concat"), "GPU: Gpu has no method of this name"),
        (
            lambda m: m.setattr(GpuCodec, "concat", other_parameters),
            "GPU: Gpu takes other parameters than the signature says",
        ),
        (
            lambda m: m.setattr(Coding, "concat", other_parameters),
            "meaning: Reference takes other parameters than the signature says",
        ),
        (
            lambda m: m.setattr(CodecOps.concat, "__doc__", None),
            "signature: its signature has no docstring",
        ),
        (
            lambda m: m.setattr(shadow, "OPS", tuple(op for op in shadow.OPS if op != "concat")),
            "shadow: it is not in shadow.OPS",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_op_that_lacks_a_step_is_named(
    facts: Facts, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None], missing: str
) -> None:
    change(monkeypatch)
    assert lacking(facts) == {"concat": [missing]}


def test_an_op_that_no_case_calls_is_named() -> None:
    others = tuple(case for case in CASES if not case.name.startswith(("concat", "columns")))
    found = lacking(facts_of(others[-12:]))
    assert found["concat"] == found["columns"] == ["case: no case calls it"]


@pytest.mark.parametrize(
    ("op", "written", "missing"),
    [
        ("pick", "WRITERS", "shadow: it writes a state or cache, and is not in shadow.WRITERS"),
        ("quantise", "WRITTEN", "shadow: it writes codes, and shadow.WRITTEN does not say so"),
        (
            "join",
            "VOID",
            "shadow: it leaves rows of finished lines void, and is not in shadow.VOID",
        ),
    ],
)
def test_an_op_that_does_what_it_does_not_declare_is_named(
    facts: Facts, monkeypatch: pytest.MonkeyPatch, op: str, written: str, missing: str
) -> None:
    declared: Any = getattr(shadow, written)
    without = (
        {name: declared[name] for name in declared if name != op}
        if written == "WRITTEN"
        else (tuple(name for name in declared if name != op))
    )
    monkeypatch.setattr(shadow, written, without)
    assert lacking(facts) == {op: [missing]}


def test_an_op_that_was_only_declared_lacks_all_else(
    facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def softmax(self: Any, x: Any) -> Any:
        """Over the last axis."""

    monkeypatch.setattr(Ops, "softmax", softmax, raising=False)
    steps = [problem.partition(":")[0] for problem in lacking(facts)["softmax"]]
    assert steps == ["meaning", "GPU", "case", "shadow"]
