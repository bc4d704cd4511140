"""Recorded plans: who shares which buffer, replays, guards, and work cut into submits."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine import ops
from oscine.errors import DeviceError
from oscine.gpu import plan as plans
from oscine.gpu.matrix_units import MatrixUnits
from oscine.gpu.plan import BufferPool, Dispatch
from oscine.gpu.tensor import Tensor
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu

FLOAT = np.dtype(np.float32)


@dataclass(eq=False)
class Buffer:
    """A buffer as a pool sees it."""

    size: int


@dataclass
class Store:
    """Memory that only counts."""

    device: Any = field(
        default_factory=lambda: SimpleNamespace(api=SimpleNamespace(BufferUsage=Usage))
    )
    made: list[Buffer] = field(default_factory=list)

    def buffer(self, nbytes: int, usage: int) -> Buffer:
        self.made.append(Buffer(nbytes))
        return self.made[-1]


class Usage:
    STORAGE, COPY_SRC = 1, 2


@dataclass(frozen=True)
class Op:
    """Reads some of the results so far (numbers taken modulo their count) and makes one."""

    size: int
    reads: tuple[int, ...]
    kept: bool  # written to a slot, which no intermediate may share


graphs = st.lists(
    st.builds(
        Op,
        size=st.integers(1, 9),
        reads=st.lists(st.integers(0, 40), max_size=3).map(tuple),
        kept=st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


def dispatches_of(graph: list[Op]) -> tuple[list[Dispatch], list[Buffer]]:
    results: list[Tensor] = []
    slots: list[Buffer] = []
    found = []
    for op in graph:
        made = Tensor((op.size,), FLOAT)
        if op.kept:
            slots.append(Buffer(made.nbytes))
            made.buffer = slots[-1]
        reads = [results[number % len(results)] for number in op.reads] if results else []
        found.append(Dispatch("op", (*reads, made), (1, 1, 1)))
        results.append(made)
    return found, slots


def simulate(found: list[Dispatch]) -> None:
    """Run the graph on the buffers: every read must find what its tensor was given."""
    holds: dict[int, int] = {}
    for dispatch in found:
        *reads, made = dispatch.tensors
        assert made.buffer.size >= made.nbytes
        for tensor in reads:
            assert holds[id(tensor.buffer)] == id(tensor), "overwritten while still to be read"
            assert tensor.buffer is not made.buffer, "an op would write what it reads"
        holds[id(made.buffer)] = id(made)


@given(st.lists(graphs, min_size=1, max_size=3))
def test_shared_buffers_never_hold_two_living_tensors(sequence: list[list[Op]]) -> None:
    pool = BufferPool(Store())  # type: ignore[arg-type]
    for graph in sequence:  # plans share the pool: one runs at a time
        found, slots = dispatches_of(graph)
        pool.assign(found)
        simulate(found)
        assert not {id(slot) for slot in slots} & {id(buffer) for buffer in pool.buffers}


@given(st.integers(2, 30))
def test_a_chain_takes_two_buffers(length: int) -> None:
    store = Store()
    chain = [Op(4, (at - 1,) if at else (), False) for at in range(length)]
    found, _ = dispatches_of(chain)
    BufferPool(store).assign(found)  # type: ignore[arg-type]
    assert len(store.made) == 2


def test_the_smallest_buffer_that_fits_is_taken() -> None:
    pool = BufferPool(Store())  # type: ignore[arg-type]
    large, small = pool.acquire([], 100), pool.acquire([], 40)
    free = [large, small]
    assert pool.acquire(free, 40) is small
    assert free == [large]


# -- on a device ----------------------------------------------------------------------------------


def layer(backend: Any, width: int) -> tuple[ops.Linear, ops.LayerNorm]:
    """Weights of one feed-forward layer, the same on every backend."""
    rng = np.random.default_rng(width)
    square = (rng.standard_normal((width, width)) / width).astype(np.float32)
    uploaded = ops.upload(
        backend,
        (
            ops.Linear(square, np.ones(width, np.float32)),
            ops.LayerNorm(np.ones(width, np.float32), np.zeros(width, np.float32)),
        ),
    )
    return uploaded  # type: ignore[no-any-return]


def feed(backend: Any, rows: int, width: int, until: Any = None) -> tuple[Any, Any, Any]:
    """A plan of eight layers with residual sums, its input slot and its output slot."""
    linear, norm = layer(backend, width)
    given_, out = backend.zeros((rows, width)), backend.zeros((rows, width))

    def trace() -> None:
        x = given_
        for _ in range(4):
            hidden = backend.linear(x, linear, norm=norm, activation="gelu")
            x = backend.linear(hidden, linear, add=x)
        backend.store(x, out)

    return backend.record(trace, until, "feed"), given_, out


def values(rows: int, width: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [2, 20])
def test_a_replay_is_the_first_run_again(gpu: Gpu, rows: int) -> None:
    plan, given_, out = feed(gpu, rows, 16)
    reference, ours, expected = feed(Reference(), rows, 16)
    first, second = values(rows, 16, 1), values(rows, 16, 2)
    results = []
    for array in (first, second, first):
        gpu.write(given_, array)
        plan.run()
        results.append(gpu.read(out))
        ours[...] = array
        reference.run()
        np.testing.assert_allclose(results[-1], expected, atol=1e-5)
    assert np.array_equal(results[0], results[2])
    assert not np.array_equal(results[0], results[1])


@pytest.mark.gpu
def test_work_cut_into_submits_gives_the_same(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, given_, out = feed(gpu, 20, 16)
    gpu.write(given_, values(20, 16, 3))
    plan.run()
    whole = gpu.read(out)
    submits: list[int] = []
    submit = plan.submit
    monkeypatch.setattr(
        plan, "submit", lambda steps, times: (submits.append(len(steps)), submit(steps, times))
    )
    plan.max_submit_flops = plan.flops / 3
    gpu.write(given_, values(20, 16, 3))
    plan.run(2)
    assert np.array_equal(gpu.read(out), whole)
    assert sum(submits) == 2 * len(plan.bound)
    assert len(submits) >= 6
    assert max(submits) < len(plan.bound)


@pytest.mark.parametrize(
    ("kind", "features", "flops"),
    [
        ("CPU", {"subgroups"}, 30e9),
        ("IntegratedGPU", {"f16"}, 30e9),
        ("Unknown", set(), 30e9),
        ("DiscreteGPU", {"subgroups", "f16"}, 300e9),
        ("DiscreteGPU", {"subgroups", "f16", "matrix"}, 1e12),
        ("IntegratedGPU", {"matrix"}, 1e12),
    ],
)
def test_a_faster_kind_of_gpu_has_more_work_in_a_submit(
    kind: str, features: set[str], flops: float
) -> None:
    assert plans.max_submit_flops(a_device(kind, features, MatrixUnits())) == flops


def test_small_matrix_units_have_the_work_of_their_kind_of_gpu_in_a_submit() -> None:
    small = MatrixUnits(8, 8, 8)
    assert plans.max_submit_flops(a_device("IntegratedGPU", {"matrix"}, small)) == 30e9
    assert plans.max_submit_flops(a_device("DiscreteGPU", {"matrix"}, small)) == 300e9


def a_device(kind: str, features: set[str], units: MatrixUnits) -> Any:
    adapter = SimpleNamespace(adapter_type=kind, matrix_units=units)
    return SimpleNamespace(features=features, adapter=adapter)


@pytest.mark.gpu
def test_many_small_runs_go_in_few_submits(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, given_, _ = feed(gpu, 2, 16)
    times: list[int] = []
    submit = plan.submit
    monkeypatch.setattr(
        plan, "submit", lambda steps, count: (times.append(count), submit(steps, count))
    )
    gpu.write(given_, values(2, 16, 4))
    plan.run(5)
    assert times == [5]
    plan.max_submit_flops = plan.flops * 2
    plan.run(5)
    assert times == [5, 2, 2, 1]


@pytest.mark.gpu
def test_a_plan_whose_lines_are_all_done_changes_nothing_of_theirs(gpu: Gpu) -> None:
    """A guarded step may run on, as the host is a burst behind: state and tokens must stay."""
    lines, vocabulary, width = 2, 40, 16
    linear, norm = layer(gpu, width)
    table = gpu.upload(values(vocabulary, width, 5))
    positions = gpu.upload(values(9, width, 6))
    state = ops.TextDecoderState(
        gpu.zeros((lines,), ops.TEXT_DECODER_STATE), gpu.zeros((lines, 9), np.uint32)
    )
    cache = ops.KVCache(gpu.zeros((lines, 9, width)), gpu.zeros((lines, 9, width)))
    rules, masks = gpu.zeros((2,), ops.DECODE_PARAMS), gpu.zeros((1, vocabulary), np.uint32)
    kv = gpu.upload(values(30, 2 * width, 7)[None])
    packed = gpu.upload(values(3 * width, width, 8))

    def trace() -> None:
        x = gpu.embed(table, positions, state)
        qkv = gpu.linear(x, ops.Linear(packed, None), norm=norm)
        x = gpu.linear(gpu.causal_attention(qkv, cache, state, 2), linear, add=x)
        x = gpu.linear(gpu.cross_attention(x, kv, state, 2), linear, add=x)
        gpu.sample_token(gpu.linear(x, ops.Linear(table, None)), masks, rules, state)

    plan = gpu.record(trace, state.rows)
    rows = np.zeros(lines, ops.TEXT_DECODER_STATE)
    rows["length"], rows["limit"], rows["position"], rows["after_pair"] = 1, 8, 1, 1
    rows["slot"] = (1, 0)
    numbers = np.zeros(2, ops.DECODE_PARAMS)
    numbers["vocabulary"] = numbers["timestamp_begin"] = vocabulary
    numbers["end"] = vocabulary - 1
    gpu.write(state.rows, rows)
    gpu.write(rules, numbers)
    slots = state.rows, state.tokens, cache.keys, cache.values
    before = gpu.snapshot(*slots)()
    plan.run()
    running = gpu.snapshot(*slots)()
    assert all(not np.array_equal(a, b) for a, b in zip(before, running, strict=True))
    rows = running[0].copy()
    rows["done"] = ops.STOP_LENGTH
    gpu.write(state.rows, rows)
    plan.run(3)
    done = gpu.snapshot(*slots)()
    assert np.array_equal(done[0], rows)
    assert all(np.array_equal(a, b) for a, b in zip(running[1:], done[1:], strict=True))


@pytest.mark.gpu
def test_keep_takes_an_intermediate_once(gpu: Gpu) -> None:
    slot = gpu.zeros((2, 16))
    with pytest.raises(ValueError, match="store"):
        gpu.record(lambda: gpu.store(slot, gpu.zeros((2, 16))))


@pytest.mark.gpu
def test_ops_outside_a_recording_do_not_reach_a_plan(gpu: Gpu) -> None:
    before, _, _ = feed(gpu, 2, 16)

    def half() -> None:
        x = gpu.layer_norm(gpu.zeros((2, 16)), ops.LayerNorm(gpu.zeros((16,)), gpu.zeros((16,))))
        gpu.linear(x, ops.Linear(gpu.zeros((4, 7)), None), add=gpu.zeros((2, 7)))
        gpu.layer_norm(gpu.zeros((2, 18)), ops.LayerNorm(x, x))

    with pytest.raises(DeviceError):  # the recording is given up half-way
        gpu.record(half)
    assert gpu.dispatches == []
    after, _, _ = feed(gpu, 2, 16)
    assert [d.kernel for d in after.dispatches] == [d.kernel for d in before.dispatches]


# -- what kernels cannot do -----------------------------------------------------------------------


def conv(gpu: Gpu) -> None:
    gpu.conv1d(gpu.zeros((8, 6)), ops.Linear(gpu.zeros((4, 3, 6)), None), ops.ConvParams.same(3))


def norm_of_odd_width(gpu: Gpu) -> None:
    gpu.layer_norm(gpu.zeros((2, 18)), ops.LayerNorm(gpu.zeros((18,)), gpu.zeros((18,))))


def linear_of_odd_width(gpu: Gpu) -> None:
    gpu.linear(gpu.zeros((2, 7)), ops.Linear(gpu.zeros((4, 7)), None))


def attention_of_odd_heads(gpu: Gpu) -> None:
    gpu.attention(gpu.zeros((5, 36)), 2)


def cross_of_odd_heads(gpu: Gpu) -> None:
    state = ops.TextDecoderState(
        gpu.zeros((1,), ops.TEXT_DECODER_STATE), gpu.zeros((1, 8), np.uint32)
    )
    gpu.cross_attention(gpu.zeros((1, 12)), gpu.zeros((1, 9, 24)), state, 2)


def self_of_odd_heads(gpu: Gpu) -> None:
    cache = ops.KVCache(gpu.zeros((1, 8, 12)), gpu.zeros((1, 8, 12)))
    state = ops.TextDecoderState(
        gpu.zeros((1,), ops.TEXT_DECODER_STATE), gpu.zeros((1, 8), np.uint32)
    )
    gpu.causal_attention(gpu.zeros((1, 36)), cache, state, 2)


def a_head_too_wide(gpu: Gpu) -> None:
    gpu.attention(gpu.zeros((5, 3 * 1024)), 1)


def embedding_of_odd_width(gpu: Gpu) -> None:
    state = ops.TextDecoderState(
        gpu.zeros((1,), ops.TEXT_DECODER_STATE), gpu.zeros((1, 8), np.uint32)
    )
    gpu.embed(gpu.zeros((9, 10)), gpu.zeros((8, 10)), state)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("op", "told"),
    [
        (conv, "convolution input width 6 "),
        (norm_of_odd_width, "norm width 18 "),
        (linear_of_odd_width, "input width 7 "),
        (attention_of_odd_heads, "head width 6 "),
        (cross_of_odd_heads, "head width 6 "),
        (self_of_odd_heads, "head width 6 "),
        (a_head_too_wide, "head width 1024 is above 512"),
        (embedding_of_odd_width, "embedding width 10 "),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_kernels_cannot_do_is_refused_with_its_numbers(gpu: Gpu, op: Any, told: str) -> None:
    with pytest.raises(DeviceError, match=told) as raised:
        gpu.record(lambda: op(gpu))
    assert str(raised.value).startswith(gpu.name)
    assert "\n" not in str(raised.value)


@pytest.mark.gpu
def test_a_grid_no_device_takes_is_refused(gpu: Gpu) -> None:
    with pytest.raises(DeviceError, match="70000 workgroups"):
        gpu.dispatch("gather_rows", [gpu.nothing] * 3, (1, 70000))


@pytest.mark.gpu
def test_views_of_one_slot_are_bound_each_by_its_size(gpu: Gpu) -> None:
    """Kernels take lengths from their bindings: equal buffers are not yet the same group."""
    x, y = gpu.zeros((64,)), gpu.zeros((64,), np.float16)

    def trace() -> None:
        for count in (8, 64, 8):
            gpu.dispatch("to_f16", [gpu.view(x, (count,)), gpu.view(y, (count,))], (1,), COUNT4=2)

    small, large, again = (group for _, group, *_ in gpu.record(trace).bound)
    assert small is again
    assert small is not large
