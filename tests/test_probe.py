"""A look inside a network: every stage is shown, to the one who asked, and costs nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from oscine.engine.scheduler import Engine
from oscine.engine.sequence import EncoderInput
from oscine.errors import UsageError
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.sequences import AlignmentSequence, DecodingRequest, DecodingSequence
from oscine.models.whisper.weights import load_weights
from oscine.ops import LayerNorm
from oscine.ops.reference import Reference
from oscine.ops.shadow import Shadow
from oscine.ops.webgpu import Gpu
from oscine.probe import current_probe, probing

GOLDEN = Path(__file__).resolve().parent / "goldens" / "whisper_multi"
REQUEST = DecodingRequest(
    prompt=(312, 315, 318),
    sot_index=0,
    suppress_tokens=(),
    begin_suppress_tokens=(),
    eot=311,
    timestamp_begin=323,
    no_timestamps=322,
    no_speech=321,
    timestamps=True,
    max_initial_timestamp_index=None,
    max_new_tokens=5,
)
MEL = np.random.default_rng(7).standard_normal((220, 24)).astype(np.float32)

Array = np.ndarray[Any, Any]


@pytest.fixture(params=["numpy", pytest.param("gpu", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Any:
    return Reference() if request.param == "numpy" else request.getfixturevalue("gpu")


def seen_by(call: Callable[[], Any]) -> list[tuple[str, Array]]:
    """All that a call shows, in order."""
    shown: list[tuple[str, Array]] = []
    with probing(lambda name, x: shown.append((name, x))):
        call()
    return shown


class Small:
    """Two ops over a slot, the second of which may take the buffer of the first one's result."""

    def __init__(self, backend: Any, late: bool = False) -> None:
        self.backend = backend
        self.x, self.out = backend.zeros((6, 8)), backend.zeros((3, 16))
        self.norm = LayerNorm(
            backend.upload(np.full(8, 2, np.float32)), backend.upload(np.ones(8, np.float32))
        )
        self.late = late
        self.plan = backend.record(self.trace, name="small")

    def trace(self) -> None:
        ops = self.backend
        ops.probe("given", self.x)
        first = ops.activate(self.x, "relu")
        if not self.late:
            ops.probe("first", first)
        second = ops.layer_norm(first, self.norm)
        third = ops.activate(second, "tanh")
        if self.late:
            ops.probe("first", first)
        wide = ops.reshape(third, (3, 16))
        ops.probe("wide", wide)
        ops.store(ops.activate(wide, None), self.out)

    def run(self, times: int = 1) -> Array:
        values = np.random.default_rng(3).standard_normal((6, 8)).astype(np.float32)
        self.backend.write(self.x, values)
        self.plan.run(times)
        return values


@pytest.mark.parametrize("late", [False, True])
def test_a_plan_that_was_recorded_before_is_seen(backend: Any, late: bool) -> None:
    """And where a stage is named late, its value is still its own and not its buffer's next."""
    small = Small(backend, late)
    unseen = small.run()
    (given, first, wide) = shown = [x for _, x in seen_by(small.run)]
    assert [x.dtype for x in shown] == [np.float32] * 3
    np.testing.assert_array_equal(given, unseen)
    np.testing.assert_array_equal(first, np.maximum(unseen, 0))
    assert wide.shape == (3, 16)
    np.testing.assert_allclose(wide, backend.read(small.out), atol=1e-6)
    assert np.abs(wide).max() <= 1


def test_every_replay_is_seen(backend: Any) -> None:
    small = Small(backend)
    assert [name for name, _ in seen_by(lambda: small.run(3))] == ["given", "first", "wide"] * 3


def test_what_is_shown_is_a_copy(backend: Any) -> None:
    small = Small(backend)

    def spoil(name: str, x: Array) -> None:
        if x.flags.writeable:
            x[...] = np.nan

    with probing(spoil):
        small.run()
    assert np.isfinite(backend.read(small.out)).all()


def test_a_look_changes_no_result(backend: Any) -> None:
    engine = Engine(WhisperRunner(load_weights(GOLDEN), backend))

    def decoded() -> Any:
        audio = EncoderInput(MEL)
        aligned = engine.submit(
            AlignmentSequence(audio, (312, 315, 318, 5, 6, 311), 311, 60)
        ).wait()
        return (
            engine.call(lambda runner: runner.encode_one(MEL)).tolist(),
            aligned.weights.tolist(),
            engine.submit(DecodingSequence(audio, REQUEST)).wait(),
        )

    found: list[Any] = []
    before = decoded()
    shown = seen_by(lambda: found.append(decoded()))
    assert found == [before] == [decoded()]
    names = {name for name, _ in shown}
    layers = {f"{side}.layer{index}" for side in ("encoder", "decoder") for index in (0, 1)}
    others = {"encoder.stem", "encoder.out", "decoder.embedding", "decoder.logits"}
    assert names == layers | others


def test_a_look_that_raises_stops_the_call_and_no_other(backend: Any) -> None:
    small = Small(backend)

    def stop(name: str, x: Array) -> None:
        if name == "first":
            raise KeyError(name)

    with pytest.raises(KeyError), probing(stop):
        small.run()
    assert current_probe() is None
    assert len(seen_by(small.run)) == 3


def test_the_inner_look_is_in_place_of_the_outer(backend: Any) -> None:
    small, inner = Small(backend), []
    outer = seen_by(lambda: inner.extend(seen_by(small.run)))
    assert len(inner) == 3 and not outer


@pytest.mark.parametrize("probe", [None, 3, "print", {}])
def test_a_look_takes_a_function(probe: Any) -> None:
    with pytest.raises(UsageError, match=r"^probing takes a function of a name and an array, not "):
        probing(probe).__enter__()
    assert current_probe() is None


def test_a_thread_sees_its_own_calls_alone() -> None:
    ready = Barrier(2, timeout=60)

    def look(own: str | None) -> list[str]:
        backend = Reference()
        names: list[str] = []

        def call() -> None:
            ready.wait()
            for _ in range(200):
                backend.probe(own or "unasked", np.zeros(1))
            ready.wait()

        if own is None:
            call()
        else:
            names += [name for name, _ in seen_by(call)]
        return names

    with ThreadPoolExecutor(2) as pool:
        for pair in (("a", "b"), ("a", None)):
            ready.reset()
            found = list(pool.map(look, pair))
            assert found == [[own] * 200 if own else [] for own in pair]


def test_a_task_sees_its_own_calls_alone() -> None:
    backend = Reference()

    async def look(own: str) -> list[str]:
        names: list[str] = []
        with probing(lambda name, x: names.append(name)):
            for _ in range(5):
                backend.probe(own, np.zeros(1))
                await asyncio.sleep(0)
        return names

    async def both() -> list[list[str]]:
        return list(await asyncio.gather(look("a"), look("b")))

    assert asyncio.run(both()) == [["a"] * 5, ["b"] * 5]


# -- what it costs --------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.host
def test_a_block_that_ends_in_another_thread_has_ended_everywhere() -> None:
    """As that of a generator, which the threads of a server pass on."""

    def looking() -> Iterator[None]:
        with probing(print):
            yield
            yield

    outer: Callable[[str, Any], None] = lambda name, x: None  # noqa: E731
    with ThreadPoolExecutor(1) as other:
        looks = looking()
        next(looks)
        assert current_probe() is print
        assert other.submit(current_probe).result() is None
        other.submit(lambda: list(looks)).result()
        assert current_probe() is None and other.submit(current_probe).result() is None
        with probing(outer):
            looks = looking()
            next(looks)
            assert current_probe() is print
            other.submit(looks.close).result()
            assert current_probe() is outer
            context = copy_context()
        assert context.run(current_probe) is None  # a task that outlives the block
    assert current_probe() is None


def test_plans_are_the_same_with_and_without_stages(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dispatches, buffers, and which buffer each of them takes."""

    class Recording(Gpu):
        def record(self, *given: Any, **more: Any) -> Any:
            plans.append(super().record(*given, **more))
            return plans[-1]

    plans: list[Any] = []

    def recorded(backend: Gpu) -> tuple[list[Any], int, int]:
        plans.clear()
        engine = Engine(WhisperRunner(load_weights(GOLDEN), backend))
        audio = EncoderInput(MEL)
        engine.submit(AlignmentSequence(audio, (312, 315, 318, 5, 6, 311), 311, 60)).wait()
        engine.submit(DecodingSequence(audio, REQUEST)).wait()
        layers = ["cross_kv", "cross_kv"]
        assert [plan.name for plan in plans] == ["encode", *layers, "step", "prompt", "align"]
        order: dict[int, int] = {}
        for plan in plans:
            for dispatch in plan.dispatches:
                for tensor in dispatch.tensors:
                    order.setdefault(id(tensor.buffer), len(order))
        made = [
            [(d.kernel, d.grid, [order[id(t.buffer)] for t in d.tensors]) for d in plan.dispatches]
            for plan in plans
        ]
        return made, len(backend.pool.buffers), sum(len(plan.probe_points) for plan in plans)

    made, buffers, probe_points = recorded(Recording(gpu.device))
    monkeypatch.setattr(Gpu, "probe", lambda self, name, x: None)
    assert recorded(Recording(gpu.device)) == (made, buffers, 0)
    assert probe_points > 10


@pytest.mark.gpu
@pytest.mark.host
def test_only_what_was_computed_can_be_a_stage(gpu: Gpu) -> None:
    with pytest.raises(ValueError, match="probe takes what an op of this plan has computed"):
        gpu.record(lambda: gpu.probe("stray", gpu.intermediate(2, 4)))


@pytest.mark.gpu
@pytest.mark.host
def test_shadow_mode_shows_the_same_stages(gpu: Gpu) -> None:
    names = [name for name, _ in seen_by(Small(Shadow(gpu)).run)]
    assert names == ["given", "first", "wide"]
