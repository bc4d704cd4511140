"""Every kernel against its NumPy meaning: the table that tests, `oscine doctor` and loading share.

One row of CASES an op and shape: ragged sizes, spiked inputs. A case runs three times through one
plan, on fresh numbers: a buffer reused too early or a state not advanced shows on a replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.errors import DeviceError
from oscine.ops.gpu import Gpu
from oscine.ops.reference import Reference

Array = NDArray[Any]
Values = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One op at one shape. Slots persist between runs; `outputs` names those to compare."""

    name: str
    inputs: Callable[[np.random.Generator], Values]  # written to slots before each run
    call: Callable[[Any, Values, Values], Any]  # (backend, slots, weights) -> result or None
    weights: Callable[[np.random.Generator], Values] = lambda rng: {}
    compare: tuple[str, ...] = ()  # slots that the op writes
    limit: float = 2e-5  # of the largest value


def noise(rng: np.random.Generator, *shape: int, spike: float = 0.0) -> Array:
    """Gaussian noise; with a spike a few values are large and every row has a large mean.

    Plain noise is too kind: it hides cancelling sums and overflowing exponentials.
    """
    x = rng.standard_normal(shape).astype(np.float32)
    if spike:
        x.reshape(-1)[:: max(1, x.size // 7)] *= spike
        x += spike / 10
    return x


def linear_case(rows: int, inputs: int, outputs: int, half: bool, **options: Any) -> Case:
    """activation(norm(x) Wᵀ + b) + add."""
    kind = np.float16 if half else np.float32

    def weights(rng: np.random.Generator) -> Values:
        matrix = (rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)).astype(kind)
        bias = noise(rng, outputs) if options.get("bias", True) else None
        norm = ops.Norm(1 + noise(rng, inputs) / 8, noise(rng, inputs) / 8)
        return {"linear": ops.Linear(matrix, bias), "norm": norm}

    def call(backend: Any, x: Values, w: Values) -> Any:
        return backend.linear(
            x["x"],
            w["linear"],
            norm=w["norm"] if options.get("norm") else None,
            activation=options.get("activation"),
            add=x["add"] if options.get("add") else None,
        )

    def values(rng: np.random.Generator) -> Values:
        return {"x": noise(rng, rows, inputs, spike=30.0), "add": noise(rng, rows, outputs)}

    words = " ".join(sorted(options))
    name = f"linear {rows}x{inputs}x{outputs} {np.dtype(kind).name} {words}".strip()
    return Case(name, values, call, weights)


def conv_case(frames: int, inputs: int, outputs: int, stride: int, half: bool) -> Case:
    """gelu(conv1d(x)) + add."""
    kind = np.float16 if half else np.float32
    return Case(
        f"conv1d {frames}x{inputs}->{outputs} stride {stride} {np.dtype(kind).name}",
        lambda rng: {
            "x": noise(rng, frames, inputs),
            "add": noise(rng, -(-frames // stride), outputs),
        },
        lambda backend, x, w: backend.conv1d(
            x["x"], w["conv"], stride=stride, activation="gelu", add=x["add"]
        ),
        lambda rng: {
            "conv": ops.Linear(
                (noise(rng, outputs, 3, inputs) / 9).astype(kind), noise(rng, outputs)
            )
        },
    )


def norm_case(rows: int, width: int) -> Case:
    """Layer normalisation."""
    return Case(
        f"layer_norm {rows}x{width}",
        lambda rng: {"x": noise(rng, rows, width, spike=100.0)},
        lambda backend, x, w: backend.layer_norm(x["x"], w["norm"]),
        lambda rng: {"norm": ops.Norm(noise(rng, width), noise(rng, width))},
    )


def attention_case(length: int, heads: int, width: int) -> Case:
    """The encoder's attention."""
    return Case(
        f"attention {length} rows, {heads}x{width}",
        lambda rng: {"qkv": noise(rng, length, 3 * heads * width, spike=4.0)},
        lambda backend, x, w: backend.attention(x["qkv"], heads),
    )


def cross_case(rows: int, length: int, heads: int, width: int) -> Case:
    """The decoder's attention to the audio."""
    return Case(
        f"attend_cross {rows} rows, {length} keys, {heads}x{width}",
        lambda rng: {
            "q": noise(rng, rows, heads * width, spike=3.0),
            "kv": noise(rng, length, 2 * heads * width, spike=3.0),
        },
        lambda backend, x, w: backend.attend_cross(x["q"], x["kv"], heads),
    )


def state_rows(rng: np.random.Generator, lines: int, room: int, length: int) -> Array:
    """Lines at random places with room for `length` more rows; one in four is done."""
    rows = np.zeros(lines, ops.STATE)
    rows["position"] = rng.integers(0, room - length + 1, lines)
    rows["length"] = rng.integers(1, length + 1, lines)
    rows["sot"] = rng.integers(0, length, lines)
    rows["done"] = rng.random(lines) < (0.25 if lines > 1 else 0.0)
    rows["limit"] = room
    rows["after_pair"] = 1
    return rows


def self_case(lines: int, length: int, room: int, heads: int, width: int) -> Case:
    """The decoder's attention to itself; appends to caches that hold noise."""
    shape = (lines, room, heads * width)

    def call(backend: Any, x: Values, w: Values) -> Any:
        cache = ops.Cache(x["keys"], x["values"])
        state = ops.State(x["rows"], x["tokens"])
        y = backend.attend_self(x["qkv"], cache, state, heads)
        return backend.take_rows(y, state)

    def values(rng: np.random.Generator) -> Values:
        rows = state_rows(rng, lines, room, length)
        rows["done"] = 0  # a done line's result is void; that its cache stays is pick's test
        rows["sot"] = np.minimum(rows["sot"], rows["length"] - 1)
        return {
            "qkv": noise(rng, lines * length, 3 * heads * width, spike=3.0),
            "keys": noise(rng, *shape),
            "values": noise(rng, *shape),
            "rows": rows,
            "tokens": np.zeros((lines, room), np.uint32),
        }

    name = f"attend_self {lines} lines of {length}, {room} keys, {heads}x{width}"
    return Case(name, values, call, compare=("keys", "values"))


def embed_case(lines: int, length: int, vocabulary: int, width: int, half: bool) -> Case:
    """Token plus position; prompts and single tokens."""
    kind = np.float16 if half else np.float32
    room = length + 5

    def values(rng: np.random.Generator) -> Values:
        rows = state_rows(rng, lines, room, length)
        rows["done"], rows["length"] = 0, length
        rows["token"] = rng.integers(0, vocabulary, lines)
        prompt = rng.integers(0, vocabulary, (lines, length)).astype(np.uint32)
        return {"rows": rows, "tokens": np.zeros((lines, room), np.uint32), "prompt": prompt}

    def call(backend: Any, x: Values, w: Values) -> Any:
        state = ops.State(x["rows"], x["tokens"])
        prompt = x["prompt"] if length > 1 else None
        return backend.embed(w["table"], w["positions"], state, prompt)

    return Case(
        f"embed {lines} lines of {length}, {vocabulary}x{width} {np.dtype(kind).name}",
        values,
        call,
        lambda rng: {
            "table": noise(rng, vocabulary, width).astype(kind),
            "positions": noise(rng, room, width),
        },
    )


def pick_case(lines: int, vocabulary: int, timestamps: int, temperature: float = 0.0) -> Case:
    """The decision after random histories: filters, rule e, sums and the state's advance."""
    begin = vocabulary - timestamps if timestamps else vocabulary
    end = begin - 12 if timestamps else vocabulary - 1

    def values(rng: np.random.Generator) -> Values:
        rows = state_rows(rng, lines, 32, 1)
        rows["count"] = rng.integers(0, 3, lines)
        rows["token"] = rng.integers(0, vocabulary, lines)
        rows["repeats"] = rng.integers(1, 8, lines)
        rows["temperature"], rows["seed"] = temperature, rng.integers(0, 2**32, lines)
        if timestamps:
            rows["after_timestamp"] = rng.integers(0, 2, lines)
            rows["after_pair"] = rng.integers(0, 2, lines)
            seen = rng.random(lines) < 0.5
            rows["last_timestamp"] = np.where(seen, begin + rng.integers(0, timestamps, lines), 0)
        rules = np.zeros(1, ops.RULES)
        numbers = (vocabulary, end, begin, begin - 1, begin - 2, timestamps > 0, 50, 8)
        rules[0] = numbers
        logits = noise(rng, 2 * lines, vocabulary) * 3
        logits[:, rng.integers(0, vocabulary, 5)] = 9.5  # ties, to be won by the lowest id
        logits[rng.random(2 * lines) < 0.3, begin:] += 4  # rows where timestamps win together
        mask = (rng.random(vocabulary) < 0.05) * ops.SUPPRESS
        mask |= (rng.random(vocabulary) < 0.05) * ops.SUPPRESS_FIRST
        return {
            "rows": rows,
            "tokens": np.zeros((lines, 32), np.uint32),
            "rules": rules,
            "logits": logits,
            "mask": mask.astype(np.uint32),
        }

    def call(backend: Any, x: Values, w: Values) -> None:
        state = ops.State(x["rows"], x["tokens"])
        backend.no_speech(x["logits"], x["rules"], state)
        backend.pick(x["logits"], x["mask"], x["rules"], state)

    kind = f"{timestamps} timestamps, temperature {temperature}"
    name = f"pick {lines} lines of {vocabulary}, {kind}"
    return Case(name, values, call, compare=("rows", "tokens"))


CASES = (
    *(norm_case(rows, width) for rows, width in ((1, 4), (3, 384), (65, 40), (129, 1280))),
    linear_case(1, 384, 1536, False, norm=True, activation="gelu"),
    linear_case(1, 384, 1153, True, norm=True, bias=False),
    linear_case(1, 1280, 1280, True, add=True),
    linear_case(2, 40, 517, False, norm=True),
    linear_case(4, 48, 7, True, norm=True, add=True, activation="gelu"),
    linear_case(5, 40, 130, False, norm=True),
    linear_case(16, 32, 1830, True, norm=True),
    linear_case(64, 36, 128, True, add=True),
    linear_case(65, 256, 129, False, activation="gelu", add=True),
    linear_case(200, 100, 300, True, activation="gelu", norm=True),
    linear_case(1, 64, 70000, True, norm=True),
    conv_case(40, 80, 32, 1, False),
    conv_case(41, 128, 40, 1, True),
    conv_case(40, 32, 33, 2, True),
    conv_case(130, 48, 48, 2, False),
    attention_case(1, 1, 4),
    attention_case(20, 2, 16),
    attention_case(64, 1, 64),
    attention_case(150, 5, 8),
    attention_case(257, 2, 64),
    attention_case(65, 1, 128),
    cross_case(1, 20, 2, 16),
    cross_case(1, 1500, 2, 64),
    cross_case(2, 129, 5, 8),
    cross_case(5, 150, 1, 48),
    cross_case(1, 128, 1, 128),
    self_case(1, 1, 448, 6, 64),
    self_case(5, 1, 40, 2, 20),
    self_case(1, 4, 32, 2, 16),
    self_case(3, 16, 96, 5, 8),
    embed_case(1, 1, 517, 32, False),
    embed_case(5, 1, 1830, 40, True),
    embed_case(2, 7, 300, 384, True),
    pick_case(4, 517, 201),
    pick_case(8, 1830, 0),
    pick_case(8, 51866, 1501),
    pick_case(8, 51866, 1501, 0.6),
)

#: A minute of listening does not depend on these, but one second of checking does: the ops whose
#: failures users of other engines met as "!!!!!" (peers' issues), in the sizes of tiny.
SELF_CHECK = tuple(
    case
    for case in CASES
    if case.name.startswith(
        ("linear 1x384x1153", "linear 65x256", "attention 64", "attend_cross 1 rows, 20", "pick 4")
    )
)


@dataclass(frozen=True, slots=True)
class Result:
    """How a case went: the largest difference of three runs, as a share of the largest value."""

    case: Case
    error: float  # infinite where a value is not finite, or an integer differs
    kernels: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the difference is within the case's limit."""
        return self.error <= self.case.limit


def run_case(gpu: Gpu, case: Case, seed: int = 0) -> Result:
    """Run a case three times through one plan, each time on fresh numbers."""
    rng = np.random.default_rng(seed)
    reference = Reference()
    weights = case.weights(rng)
    theirs = {name: ops.upload(gpu, value) for name, value in weights.items()}
    ours = {name: ops.upload(reference, value) for name, value in weights.items()}
    first = case.inputs(rng)
    slots = {name: gpu.slot(value.shape, value.dtype) for name, value in first.items()}
    expected = case.call(reference, {name: v.copy() for name, v in first.items()}, ours)
    out = None if expected is None else gpu.slot(expected.shape)

    def trace() -> None:
        result = case.call(gpu, slots, theirs)
        if out is not None:
            gpu.keep(result, out)

    plan = gpu.record(trace, name="check")
    worst = 0.0
    for inputs in (first, case.inputs(rng), case.inputs(rng)):
        for name, value in inputs.items():
            gpu.write(slots[name], value)
        plan.run()
        expected = case.call(reference, inputs, ours)  # writes to `inputs`, as the plan to slots
        pairs = [(inputs[name], gpu.read(slots[name])) for name in case.compare]
        if out is not None:
            pairs.append((expected, gpu.read(out)))
        worst = max([worst, *(difference(a, b) for a, b in pairs)])
    kernels = dict.fromkeys(dispatch.kernel for dispatch in plan.dispatches)
    return Result(case, worst, tuple(kernels))


def difference(expected: Array, found: Array) -> float:
    """Largest difference as a share of the largest value; integers must be equal."""
    if expected.dtype.names is not None:
        return max(difference(expected[name], found[name]) for name in expected.dtype.names)
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(expected, found) else np.inf
    if not np.isfinite(found).all():
        return np.inf
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-6))


def self_check(gpu: Gpu) -> None:
    """Refuse a device whose kernels do not compute what they should. Raises DeviceError."""
    for case in SELF_CHECK:
        result = run_case(gpu, case)
        if not result.passed:
            raise DeviceError(
                f"{gpu.name} fails its check against NumPy ({case.name}: {result.error:.1e}); "
                "see `oscine doctor`, or use --device cpu"
            )
