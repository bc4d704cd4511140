"""A GPU that is lost, full or too small: what is said, and that the work goes on.

Devices are lost here by closing them, as both implementations can be told to. A driver that fails,
which is what a watchdog's reset looks like: gpu/test_faulty_driver.py.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine import backends, ops, registry
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import EncoderInput
from oscine.errors import DeviceError, DeviceLostError, DeviceMemoryError
from oscine.family import Network
from oscine.gpu.device import Adapter, Device, one_line, open_device
from oscine.loading import RunnerFactory
from oscine.models.whisper.network import NETWORK
from oscine.models.whisper.pipeline import Whisper
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.sequences import DecodingRequest, DecodingSequence
from oscine.models.whisper.weights import WhisperWeights, load_weights
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu
from oscine.weights import Checkpoint

from .test_plug_in import PLUG_INS, TONES, checkpoint, write

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "goldens" / "whisper_multi"
OPTIONS: dict[str, Any] = {
    "language": "en", "temperature": 0, "vad_filter": False, "condition_on_previous_text": False,
    "no_speech_threshold": None, "logprob_threshold": None, "compression_ratio_threshold": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_losses_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "LOSS_COUNTS", type(backends.LOSS_COUNTS)())
    for name in ("OSCINE_DEVICE", "OSCINE_CHECK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Warnings so far."""
    with caplog.at_level(logging.WARNING):
        yield lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def own(adapter: Adapter) -> Gpu:
    """A GPU of the test's own, to be broken."""
    return Gpu(open_device(adapter))


@pytest.fixture(scope="module")
def audio() -> Any:
    """Nine seconds of noise: many windows for the small model, in which it finds words."""
    return (np.random.default_rng(0).standard_normal(16000 * 9) * 0.1).astype(np.float32)


def work(gpu: Gpu) -> tuple[Any, Any, Any]:
    """A plan, its input and its output."""
    rng = np.random.default_rng(1)
    x, out = gpu.zeros((64, 32)), gpu.zeros((64, 48))
    weight = gpu.upload(rng.standard_normal((48, 32)).astype(np.float32))
    plan = gpu.record(lambda: gpu.store(gpu.linear(x, ops.Linear(weight, None)), out))
    plan.run()
    gpu.read(out)
    return plan, x, out


# -- a device that is lost ------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(
    "call",
    [
        "run",
        "write",
        "read",
        "waiting read",
        "zeros",
        "large slot",
        "copy",
        "record",
        "can_allocate",
        "release",
    ],
)
def test_every_call_on_a_lost_device_says_so_in_one_line(own: Gpu, call: str, lines: Any) -> None:
    plan, x, out = work(own)
    wait = own.snapshot(out)
    calls = {
        "run": plan.run,
        "write": lambda: own.write(x, np.ones((64, 32), np.float32)),
        "read": lambda: own.read(out),
        "waiting read": wait,
        "zeros": lambda: own.zeros((4,)),
        "copy": lambda: own.copy(out, out, ((0, 1),)),
        "large slot": lambda: own.zeros((1 << 20,)),
        "record": lambda: work(own),
        "can_allocate": lambda: own.memory.can_allocate(1 << 20),
        "release": lambda: own.memory.release(x),
    }
    own.device.handle.destroy()
    for _ in range(2):
        with pytest.raises(DeviceLostError) as raised:
            calls[call]()
        told = str(raised.value)
        assert told.startswith(f"{own.name}: the device was lost (")
        assert told.endswith('if that happens again, update its driver or use device="cpu"')
        assert "\n" not in told
    assert lines() == []  # nor do the implementations log it at length


@pytest.mark.gpu
@pytest.mark.parametrize(
    "call", ["run", "write", "read", "waiting read", "zeros", "copy", "kernel", "record"]
)
def test_a_device_lost_a_moment_after_it_was_asked(
    own: Gpu, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """What the implementation raises then is understood."""
    plan, x, out = work(own)
    calls = {
        "run": plan.run,
        "write": lambda: own.write(x, np.ones((64, 32), np.float32)),
        "read": lambda: own.read(out),
        "waiting read": own.snapshot(out),
        "zeros": lambda: own.zeros((4,)),
        "copy": lambda: own.copy(out, out, ((0, 1),)),
        "kernel": lambda: own.pipelines.get("gather_rows", LINES=3, WIDTH4=7),
        "record": lambda: work(own),
    }
    own.copy(out, out, ((0, 1),))
    monkeypatch.setattr(Device, "raise_if_lost", lambda self: None)
    own.device.handle.destroy()
    with pytest.raises(DeviceLostError):
        calls[call]()


@pytest.mark.gpu
def test_a_device_closed_while_a_read_waits_ends_the_wait(own: Gpu) -> None:
    x, out = own.zeros((1024, 512)), own.zeros((1024, 512))
    weight = own.upload(np.ones((512, 512), np.float32))
    plan = own.record(lambda: own.store(own.linear(x, ops.Linear(weight, None)), out))
    plan.run(2)
    wait = own.snapshot(out)
    closing = threading.Timer(0.02, own.device.handle.destroy)
    closing.start()
    try:
        assert not wait()[0].any()  # wgpu may still hand over the data
    except DeviceLostError as lost:
        assert own.name in str(lost)
    closing.join()
    with pytest.raises(DeviceLostError):
        own.read(out)


@pytest.mark.gpu
def test_a_read_ends_where_the_device_is_closed_before_its_work_is_done(own: Gpu) -> None:
    """As with a kernel that takes a second to compile: nothing asks wgpu-native for it any more."""
    if own.device.adapter.implementation != "wgpu":
        pytest.skip("Dawn ends the wait itself")
    _, _, out = work(own)
    own.device.handle._poller._poll_func = lambda block: time.sleep(0.01)  # it is never done
    told: list[Exception] = []

    def read() -> None:
        try:
            own.read(out)
        except DeviceLostError as lost:
            told.append(lost)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    time.sleep(0.1)
    own.device.handle.destroy()
    reading.join(timeout=30)
    assert not reading.is_alive()
    assert own.name in str(told[0])


@pytest.mark.gpu
def test_timestamps_of_a_lost_device(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    if "timestamps" not in adapter.features:
        pytest.skip("no timestamps")
    monkeypatch.setenv("OSCINE_TRACE", "kernels")
    gpu = Gpu(open_device(adapter))
    plan, _, _ = work(gpu)
    assert gpu.trace()
    plan.run()
    gpu.device.handle.destroy()
    with pytest.raises(DeviceLostError):
        gpu.trace()


@pytest.mark.gpu
def test_closing_twice_or_after_a_loss_is_nothing(own: Gpu) -> None:
    for _ in range(2):
        own.device.close()
    assert own.device.lost_reason()


class Told:
    """A device of an implementation that is not there."""

    class GPUError(Exception):
        pass

    class GPUPipelineError(Exception):
        pass


@pytest.mark.parametrize(
    "message",
    [
        "Validation Error\n\nCaused by:\n  Parent device is lost",  # wgpu-native
        "[Device] is lost.\n - While calling [Device].CreateBuffer([BufferDescriptor]).",  # Dawn
        "Could not map buffer (4 : Device was lost before MapAsync completed.).",
        "vkQueueSubmit failed with VK_ERROR_DEVICE_LOST\n at CheckVk (/src/x.cpp:104)",
    ],
)
def test_messages_that_tell_of_a_loss(message: str) -> None:
    adapter = Adapter("wgpu", "A card", "DiscreteGPU", "Vulkan", "", frozenset(), {}, None)
    device = Device(adapter, Told, None)
    for problem in (Told.GPUError(message), RuntimeError(message)):
        assert isinstance(problem, device.error_types)
        error = device.wrap_error(problem, kind=DeviceMemoryError)
        assert isinstance(error, DeviceLostError)
        assert str(error).startswith("A card (Vulkan, wgpu): the device was lost (")
    assert ".cpp" not in one_line(message)


def test_other_messages_are_what_they_are() -> None:
    adapter = Adapter("wgpu", "A card", "DiscreteGPU", "Vulkan", "", frozenset(), {}, None)
    device = Device(adapter, Told, None)
    assert type(device.wrap_error(RuntimeError("no"), "refuses kernel x")) is DeviceError
    full = type("Full", (Told.GPUError, MemoryError), {})
    assert type(device.wrap_error(full("Out of memory"))) is DeviceMemoryError


# -- the way back ---------------------------------------------------------------------------------


def breaking(model: Whisper, at: list[float]) -> Any:
    """A progress function that closes the model's device when it comes past these seconds."""
    left = list(at)

    def progress(seconds: float, total: float) -> None:
        if left and seconds >= left[0]:
            left.pop(0)
            # In the device's thread: Dawn bears no device destroyed while it submits.
            model.engine.call(lambda runner: runner.backend.device.handle.destroy())

    return progress


@pytest.mark.gpu
@pytest.mark.parametrize("more", [{}, {"batch_size": 2}], ids=["sequential", "batched"])
def test_a_transcript_goes_on_from_the_window_it_was_at(
    audio: Any, lines: Any, more: dict[str, Any]
) -> None:
    model = oscine.load(GOLDEN, "gpu")
    expected = model.transcribe(audio, **OPTIONS, **more)
    assert expected.text
    name = model.device
    progress = breaking(model, [0.5])
    found = model.transcribe(audio, progress=progress, **OPTIONS, **more)
    assert found.text == expected.text
    assert [s.start for s in found.segments] == [s.start for s in expected.segments]
    assert found.device == name
    told = [line for line in lines() if "lost" in line]
    assert len(told) == 1
    assert told[0].startswith(f"{name}: the device was lost (")


@pytest.mark.gpu
def test_what_is_lost_time_and_again_is_done_by_numpy(audio: Any, lines: Any) -> None:
    model = oscine.load(GOLDEN, "gpu")
    name = model.device
    expected = model.transcribe(audio, **OPTIONS).text
    found = model.transcribe(audio, progress=breaking(model, [0.5, 2, 4]), **OPTIONS)
    assert (found.text, found.device) == (expected, "NumPy")
    told = [line for line in lines() if "NumPy" in line]
    assert told == [f"{name}: not opened again (lost 3 times); using NumPy on the CPU"]
    again = model.transcribe(audio, **OPTIONS)
    assert (again.text, len(lines())) == (expected, 4)


@pytest.mark.gpu
def test_models_of_another_package_go_on_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: Any
) -> None:
    """A family says how its engine is made; that it is made again is not its work."""
    monkeypatch.syspath_prepend(PLUG_INS)
    monkeypatch.setattr(registry, "_registered", [])
    oscine.register(importlib.import_module("tone_family").FAMILY)
    model = oscine.load(write(tmp_path, checkpoint()), "gpu")
    name, times = model.device, np.arange(16_000) / 16_000
    tones = ["mi", "la", "ti", "la", "mi"]
    audio = np.concatenate([0.5 * np.sin(2 * np.pi * TONES[tone] * times) for tone in tones])
    found = model.transcribe(audio.astype(np.float32), progress=breaking(model, [1, 2]))
    assert (found.text.split(), found.device) == (tones, name)
    again = model.transcribe(audio.astype(np.float32), progress=breaking(model, [1]))
    assert (again.text.split(), again.device) == (tones, "NumPy")
    assert [line for line in lines() if "NumPy" in line] == [
        f"{name}: not opened again (lost 3 times); using NumPy on the CPU"
    ]


class Closing(Reference):
    """A backend that says whether it was closed."""

    name = "a GPU"

    def __init__(self) -> None:
        self.device, self.closed = self, 0

    def close(self) -> None:
        self.closed += 1


def fail(*arguments: Any) -> Any:
    raise DeviceError("no such luck")


@pytest.mark.parametrize("device", ["auto", "gpu"])
def test_a_device_that_cannot_be_opened_again_is_numpy_also_where_a_gpu_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, lines: Any, device: str
) -> None:
    backend = Closing()
    engine = WhisperRunner(load_weights(GOLDEN), backend)
    rebuild = RunnerFactory(NETWORK, GOLDEN, "auto", device, engine)
    monkeypatch.setattr(backends, "open_gpu", fail)
    assert rebuild().device == "NumPy"
    assert backend.closed == 1  # else its memory would be in the way of a new one
    assert lines() == ["a GPU: not opened again (no such luck); using NumPy on the CPU"]


def test_a_device_is_opened_as_it_was_and_with_the_same_weights(
    monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    asked: list[str] = []
    types: list[str] = []
    second = Closing()
    monkeypatch.setattr(backends, "open_gpu", lambda choice: asked.append(choice) or second)

    def load(checkpoint: Checkpoint, dtype: str) -> WhisperWeights:
        types.append(dtype)
        return NETWORK.load_weights(checkpoint, dtype)

    network = Network(load, NETWORK.runner, NETWORK.model)
    model = WhisperRunner(load_weights(GOLDEN), Closing())
    rebuild = RunnerFactory(network, GOLDEN, "f16", "gpu:1", model)
    made = rebuild()
    assert made is not model and made.backend is second
    assert (asked, types) == (["gpu:1"], ["f16"])
    rebuild()
    assert second.closed == 1  # of two losses, the second was of the second
    assert lines() == []
    assert rebuild().device == "NumPy"
    assert asked == ["gpu:1", "gpu:1"]


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_released_memory_is_used_no_more(own: Gpu) -> None:
    """Under wgpu-native a submit that uses it would end the process."""
    plan, x, out = work(own)
    other, given, _ = work(own)
    own.memory.release(x, x)
    for call in (plan.run, lambda: own.read(x), lambda: own.write(x, np.ones(4, np.float32))):
        for _ in range(2):
            with pytest.raises(DeviceError, match="released before"):
                call()
    own.write(given, np.ones((64, 32), np.float32))
    other.run(2)
    assert not own.read(out).any()


@pytest.mark.gpu
def test_released_parts_and_room(own: Gpu) -> None:
    own.memory.largest_binding = 1024
    cut = own.upload(np.ones((32, 32), np.float32))
    assert len(cut.parts) == 4
    own.memory.release(cut)
    assert all(part.buffer in own.memory.released for part in cut.parts)
    assert own.memory.can_allocate(1 << 20)
    assert own.memory.can_allocate(0)


@pytest.mark.gpu
def test_a_plan_for_which_there_is_no_room_leaves_room_for_a_smaller_one(
    own: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, create = own.device.api, own.device.handle.create_buffer
    linear = ops.Linear(own.upload(np.eye(32, dtype=np.float32)), None)

    def plan_of(rows: int) -> Any:
        x, out = own.zeros((rows, 32)), own.zeros((rows, 32))

        def trace() -> None:
            own.store(own.linear(own.linear(own.linear(x, linear), linear), linear), out)

        own.write(x, np.ones((rows, 32), np.float32))
        return own.record(trace), out

    def full(**options: Any) -> Any:
        taken = sum(buffer.size for buffer in own.pool.buffers)
        if taken + options["size"] > 48 * 32 * 4:
            raise api.GPUOutOfMemoryError("Out of memory")
        return create(**options)

    plan_of(16)
    before = list(own.pool.buffers)
    monkeypatch.setattr(own.device.handle, "create_buffer", full, raising=False)
    with pytest.raises(DeviceMemoryError):
        plan_of(40)
    assert own.pool.buffers == before
    plan, out = plan_of(16)
    plan.run()
    assert (own.read(out) == 1).all()


# -- small bindings -------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "vocabulary"), [(np.float32, 2000), (np.float16, 4000)])
def test_a_model_whose_embedding_is_larger_than_a_binding(
    adapter: Adapter, kind: Any, vocabulary: int
) -> None:
    """Lavapipe binds 128 MiB, large's embedding has 265 MB: here 64 KiB, and three times that."""
    weights = load_weights(GOLDEN)  # float16: a software GPU is slow to compile the other kernels
    assert weights.decoder is not None
    rng = np.random.default_rng(2)
    table = rng.standard_normal((vocabulary, weights.config.n_text_state)) / 4
    table = table.astype(kind)
    weights = replace(
        weights,
        config=replace(weights.config, n_vocab=vocabulary),
        decoder=replace(weights.decoder, token_embedding=table),
    )
    device, config = open_device(adapter), weights.config
    limits = {**adapter.limits, "max-storage-buffer-binding-size": 1 << 16}
    gpu = Gpu(replace(device, adapter=replace(device.adapter, limits=limits)))
    assert gpu.memory.largest_binding == 1 << 16
    assert len(gpu.upload(table).parts) == 3
    mel = rng.standard_normal((config.window_frames, config.n_mels)).astype(np.float32)
    request = DecodingRequest(
        prompt=(5, vocabulary - 7, vocabulary // 2),
        sot_index=0,
        suppress_tokens=(),
        begin_suppress_tokens=(),
        eot=vocabulary - 1,
        timestamp_begin=vocabulary,
        no_timestamps=1,
        no_speech=0,
        timestamps=False,
        max_initial_timestamp_index=None,
        max_new_tokens=24,
    )
    picked = []
    for backend in (gpu, Reference()):
        engine = Engine(WhisperRunner(weights, backend))
        (row,) = engine.submit(DecodingSequence(EncoderInput(mel), request)).wait()
        picked.append(row.tokens)
    assert picked[0] == picked[1]
    assert len(set(picked[1])) > 3


@pytest.mark.gpu
def test_a_model_that_no_binding_holds_is_refused_with_sizes(adapter: Adapter) -> None:
    device = open_device(adapter)
    limits = {**adapter.limits, "max-storage-buffer-binding-size": 4096}
    gpu = Gpu(replace(device, adapter=replace(device.adapter, limits=limits)))
    with pytest.raises(
        DeviceMemoryError, match=r"are .* MiB, its largest binding is 0\.0 MiB; use"
    ):
        WhisperRunner(load_weights(GOLDEN), gpu)
