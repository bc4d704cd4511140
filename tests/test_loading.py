"""From a name to a model on a device: which backend, and what happens where a GPU will not do."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine import backends, weights
from oscine.backends import build_with_fallback, choose_backend
from oscine.errors import CheckpointError, DeviceError, DeviceLostError, UsageError
from oscine.gpu.device import open_device
from oscine.models.qwen3_tts.pipeline import Qwen3Tts
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.weights import load_weights
from oscine.ops.reference import Reference
from oscine.ops.webgpu import Gpu
from oscine.probe import probing

GOLDEN = Path(__file__).resolve().parent / "goldens" / "whisper_multi"
SPEAKING = GOLDEN.parent / "qwen3_tts" / "custom_voice" / "ckpt"
REASON = "the reason"


class Refusing(Reference):
    """A GPU that is there and cannot do the model."""

    name = "a GPU"

    def record(self, trace: Any, guard: Any = None, name: str = "") -> Any:
        raise DeviceError(REASON)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OSCINE_DEVICE", "OSCINE_CHECK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Warnings so far."""
    with caplog.at_level(logging.WARNING):
        yield lambda: [record.getMessage() for record in caplog.records]


def fail(*arguments: Any) -> Any:
    raise DeviceError(REASON)


def test_auto_without_an_adapter_is_numpy_and_says_why_in_one_line(
    monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    monkeypatch.setattr("oscine.gpu.device.candidates", fail)
    assert isinstance(choose_backend("auto"), Reference)
    assert lines() == [f"using NumPy on the CPU: {REASON}"]


@pytest.mark.parametrize("device", ["gpu", "gpu:1", "radeon"])
def test_a_gpu_that_was_asked_for_is_an_error(
    monkeypatch: pytest.MonkeyPatch, lines: Any, device: str
) -> None:
    monkeypatch.setattr("oscine.gpu.device.candidates", fail)
    with pytest.raises(DeviceError, match=REASON):
        choose_backend(device)
    assert lines() == []


def test_cpu_asks_no_gpu(monkeypatch: pytest.MonkeyPatch, lines: Any) -> None:
    monkeypatch.setattr("oscine.gpu.device.candidates", fail)
    assert isinstance(choose_backend("cpu"), Reference)
    assert lines() == []


def test_oscine_device_stands_in_for_auto_only(monkeypatch: pytest.MonkeyPatch, lines: Any) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        backends, "open_gpu", lambda device, failed: asked.append(device) or Reference()
    )
    monkeypatch.setenv("OSCINE_DEVICE", "gpu:3")
    assert oscine.load(GOLDEN).device == "NumPy"
    oscine.load(GOLDEN, "gpu")
    oscine.load(GOLDEN, "cpu")
    assert asked == ["gpu:3", "gpu"]
    monkeypatch.setattr(backends, "open_gpu", fail)
    with pytest.raises(DeviceError, match=REASON):  # named by the variable is asked for too
        oscine.load(GOLDEN)


def only_refuses(device: str, failed: dict[str, DeviceError]) -> Any:
    """As open_gpu where the one GPU opens, and was not tried yet."""
    if failed:
        raise next(iter(failed.values()))
    return Refusing()


def test_auto_falls_to_numpy_where_the_gpu_cannot_do_the_model(
    monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    monkeypatch.setattr(backends, "open_gpu", only_refuses)
    assert oscine.load(GOLDEN, "auto").device == "NumPy"
    assert lines() == [f"using NumPy on the CPU: a GPU: {REASON}"]
    with pytest.raises(DeviceError, match=REASON):
        oscine.load(GOLDEN, "gpu")
    assert len(lines()) == 1


@pytest.mark.parametrize("asked", ["", "AUTO", " auto "])
def test_nothing_asked_for_is_auto(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    assert backends.parse_device(asked) == "auto"
    monkeypatch.setenv("OSCINE_DEVICE", " ")
    assert backends.parse_device(asked) == "auto"
    monkeypatch.setenv("OSCINE_DEVICE", "CPU")
    assert backends.parse_device(asked) == "cpu"
    assert backends.parse_device("GPU:1") == "gpu:1"


@pytest.mark.parametrize("device", ["cuda", "ROCM:1", "mps"])
def test_what_is_not_used_here_is_named_as_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    with pytest.raises(UsageError, match=f'^device="{device.lower()}": .*use device="gpu"$'):
        backends.parse_device(device)
    monkeypatch.setenv("OSCINE_DEVICE", device)
    with pytest.raises(UsageError, match=f"^OSCINE_DEVICE={device.lower()}: .*OSCINE_DEVICE=gpu$"):
        backends.parse_device("auto")


@pytest.mark.parametrize("device", [None, 3])
def test_a_device_that_is_no_text(device: Any) -> None:
    with pytest.raises(UsageError, match="device must be text"):
        oscine.load(GOLDEN, device)


def test_the_stages_of_a_loaded_model() -> None:
    stages: dict[str, Any] = {}
    model = oscine.load(GOLDEN, "cpu")
    with probing(stages.__setitem__):
        encoded = model.encode(np.zeros(16000, np.float32))
    assert list(stages) == ["encoder.stem", "encoder.layer0", "encoder.layer1", "encoder.out"]
    np.testing.assert_array_equal(stages["encoder.out"], encoded)


@pytest.mark.parametrize("dtype", ["f64", "", "float32"])
def test_an_unknown_dtype(dtype: str) -> None:
    with pytest.raises(UsageError, match="dtype"):
        oscine.load(GOLDEN, "cpu", dtype)


@pytest.mark.parametrize(("dtype", "kind"), [("f32", np.float32), ("f16", np.float16)])
def test_every_matrix_has_the_type_that_was_asked_for(dtype: str, kind: Any) -> None:
    changed = load_weights(GOLDEN, dtype)
    assert changed.decoder is not None
    block = changed.decoder.blocks[0]
    for matrix in (block.qkv, block.cross_kv, changed.encoder.conv1, changed.encoder.blocks[1].fc1):
        assert matrix.weight.dtype == kind
        assert matrix.bias is not None and matrix.bias.dtype == np.float32
    assert changed.decoder.token_embedding.dtype == kind
    assert changed.decoder.positional_embedding.dtype == np.float32


@pytest.mark.parametrize(
    "model",
    [GOLDEN, GOLDEN.parent / "parakeet_tdt", GOLDEN.parent / "parakeet_formats" / "model.nemo"],
    ids=lambda path: path.name,
)
def test_no_checkpoint_is_opened_twice(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    opened: list[Path] = []
    find = weights._weights_in  # where each opening of a folder passes
    monkeypatch.setattr(weights, "_weights_in", lambda path: opened.append(path) or find(path))
    readers = [
        replace(reader, read=lambda file, read=reader.read: opened.append(file.path) or read(file))
        for reader in weights.READERS
    ]
    monkeypatch.setattr(weights, "READERS", readers)
    oscine.load(model, "cpu")
    assert 0 < len(opened) == len(set(opened))


# -- on a device ----------------------------------------------------------------------------------


@pytest.mark.gpu
def test_the_check_finds_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch, gpu: Any) -> None:
    from oscine.ops import check

    case = next(case for case in check.SELF_CHECK if case.name.startswith("linear 1x"))
    monkeypatch.setattr(check, "SELF_CHECK", (case,))
    check.self_check(gpu)
    right = type(gpu).linear
    monkeypatch.setattr(
        type(gpu), "linear", lambda self, x, linear, **without_norm: right(self, x, linear)
    )
    with pytest.raises(DeviceError, match=r"fails its check against NumPy \(linear 1x") as raised:
        check.self_check(gpu)
    assert "oscine doctor" in str(raised.value)


@pytest.mark.gpu
@pytest.mark.parametrize("wrong", [float("inf"), 1e-2, DeviceError("refuses kernel gemm_matrix")])
def test_matrix_units_that_fail_the_check_are_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, gpu: Any, wrong: float | DeviceError
) -> None:
    from oscine.gpu.matrix_units import MatrixUnits
    from oscine.ops import check

    run = check.record_case

    def recorded(gpu: Any, case: Any) -> Any:
        if gpu.matrix is None:
            return run(gpu, case)
        if isinstance(wrong, DeviceError):
            raise wrong
        return lambda: check.Result(case, wrong, ("gemm_matrix",))

    monkeypatch.setattr(check, "record_case", recorded)
    monkeypatch.setattr(check, "SELF_CHECK", check.SELF_CHECK[:1])
    monkeypatch.setattr(gpu, "matrix", MatrixUnits(8, 8, 8))
    check.self_check(gpu)
    assert gpu.matrix is None
    (line,) = caplog.messages
    assert "8x8x8 matrix units are not used" in line
    assert ("refuses kernel" in line) == isinstance(wrong, DeviceError)


@pytest.mark.gpu
def test_sizes_no_kernel_takes_fall_to_numpy(
    monkeypatch: pytest.MonkeyPatch, lines: Any, adapter: Any
) -> None:
    """A head of 6 numbers: the encoder's, which is recorded first, and the decoder's."""
    monkeypatch.setattr(backends, "open_gpu", only_refuses)
    weights = load_weights(GOLDEN)
    for field in ("n_audio_head", "n_text_head"):
        narrow = replace(weights, config=replace(weights.config, **{field: 4}))
        with pytest.raises(DeviceError, match="head width 6 "):
            build_with_fallback(partial(WhisperRunner, narrow), Gpu(open_device(adapter)), "gpu")
        gpu = Gpu(open_device(adapter))
        assert build_with_fallback(partial(WhisperRunner, narrow), gpu, "auto").device == "NumPy"
        assert gpu.device.lost_reason()
    assert len(lines()) == 2
    assert all("head width 6 is not a multiple of 4" in line for line in lines())


def test_a_model_that_speaks(empty_home: Path) -> None:
    model = oscine.load(SPEAKING, "cpu")
    assert isinstance(model, Qwen3Tts)
    assert (model.name, model.device, model.kind) == (str(SPEAKING), "NumPy", "custom_voice")
    assert repr(model) == f"<Qwen3Tts {SPEAKING} on NumPy>"
    assert model.folder.path == empty_home / "voices"
    speech = oscine.speak("Hello.", SPEAKING, "cpu", voice="ryan", max_frames=2, seed=1)
    assert speech.duration == 2 * model._config.codec.hop_length / 24_000


def test_the_wrong_way_round() -> None:
    speaks = (
        r"transcribe: .*ckpt is a text-to-speech model and .* transcribe; oscine.load\('base'\) can"
    )
    with pytest.raises(UsageError, match=speaks):
        oscine.transcribe(np.zeros(16_000, np.float32), SPEAKING, "cpu")
    writes = (
        r"speak: whisper_multi is a speech-to-text model and .* speak; oscine.load\('qwen3-tts-"
    )
    with pytest.raises(UsageError, match=writes):
        oscine.speak("Hello.", GOLDEN, "cpu")
    listener: Any = oscine.load(GOLDEN, "cpu")
    with pytest.raises(UsageError, match=writes):
        listener.speak("Hello.")
    assert not hasattr(listener, "speak") and not hasattr(listener, "sing")


CODEC = "speech_tokenizer"
STATED = {
    "none": None,
    "nothing": {},
    "other": {"model_type": "llama"},
    "untyped": {"model_type": [3]},
}


@pytest.mark.parametrize("stated", STATED)
@pytest.mark.parametrize("part", ["", CODEC])
def test_a_configuration_that_says_nothing_of_the_model(
    tmp_path: Path, part: str, stated: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(SPEAKING, folder)
    path = folder / part / "config.json"
    path.unlink()
    if STATED[stated] is not None:
        path.write_text(json.dumps(STATED[stated]), "utf-8")
    problems = {"none": "no such file; put it", "nothing": "has no model configuration; fetch it"}
    problem = problems.get(stated, "its configuration has model_type = ")
    for given in (folder, folder / "model.safetensors"):
        with pytest.raises(CheckpointError) as refused:
            oscine.load(given, "cpu")
        assert str(refused.value).startswith(f"{path}: {problem}")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("stated", ["whole", *STATED])
def test_a_codec_alone_is_told_from_a_model(tmp_path: Path, stated: str) -> None:
    codec = tmp_path / CODEC
    shutil.copytree(SPEAKING / CODEC, codec)
    if stated != "whole":
        (codec / "config.json").unlink()
        if STATED[stated] is not None:
            (codec / "config.json").write_text(json.dumps(STATED[stated]), "utf-8")
    with pytest.raises(CheckpointError, match="is only the codec of a Qwen3-TTS; give the folder"):
        oscine.load(codec, "cpu")


def test_auto_falls_to_numpy_where_the_gpu_cannot_speak(
    monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    monkeypatch.setattr(backends, "open_gpu", only_refuses)
    assert oscine.load(SPEAKING, "auto").device == "NumPy"
    assert lines() == [f"using NumPy on the CPU: a GPU: {REASON}"]
    with pytest.raises(DeviceError, match=REASON):
        oscine.load(SPEAKING, "gpu")


def test_a_tokenizer_of_another_model(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(SPEAKING, folder)
    vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
    vocabulary["中"] = 100_000  # of one letter, so that no merge need make it
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    with pytest.raises(CheckpointError, match="its tokenizer has ids up to 100000"):
        oscine.load(folder, "cpu")


@pytest.mark.parametrize(
    "given", ["model", "link", "link/", "~/model", ".", "link/model.safetensors"]
)
def test_a_lost_device_needs_no_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: Any, given: str
) -> None:
    """A model has the name of its path, and is read again where the current folder and a link to
    the model's folder have changed since."""
    monkeypatch.setattr(backends, "LOSS_COUNTS", type(backends.LOSS_COUNTS)())
    monkeypatch.setattr(backends, "open_gpu", fail)
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(GOLDEN, tmp_path / "model")
    (tmp_path / "link").symlink_to("model")
    monkeypatch.chdir(tmp_path / "model" if given == "." else tmp_path)
    model = oscine.load(given, "cpu")
    assert model.name == ("link" if given in ("link", "link/") else "model")
    monkeypatch.chdir("/")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("elsewhere")
    lost = model.runner
    model.engine._recover(DeviceLostError("NumPy", "on purpose"))
    assert model.runner is not lost and model.device == "NumPy"


def test_a_speaking_device_that_stays_lost_is_replaced_by_numpy(
    monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    monkeypatch.setattr(backends, "LOSS_COUNTS", type(backends.LOSS_COUNTS)())
    monkeypatch.setattr(backends, "open_gpu", fail)
    model = oscine.load(SPEAKING, "cpu")
    assert isinstance(model, Qwen3Tts)
    said = model.speak("Hello.", voice="ryan", max_frames=2, seed=1)
    lost = model.runner

    def unplugged(*_: Any) -> None:
        raise DeviceLostError("a card", "on purpose")

    monkeypatch.setattr(lost.talker, "admit", unplugged)
    again = model.speak("Hello.", voice="ryan", max_frames=2, seed=1)
    assert model.runner is not lost and model.device == "NumPy"
    assert np.array_equal(said.samples, again.samples)
    told, replaced = lines()
    assert "the device was lost" in told and "using NumPy" in replaced


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("word_timestamps", "load does not take word_timestamps: give it to transcribe"),
        ("voice", "load does not take voice: give it to speak"),
        ("temperature", "load does not take temperature: give it to transcribe and speak"),
        ("no_such", "load has no argument no_such"),
    ],
)
def test_an_option_given_to_load_is_answered_with_its_method(option: str, message: str) -> None:
    options: Any = {option: 1}
    with pytest.raises(TypeError) as raised:
        oscine.load("no-such-model", **options)
    assert str(raised.value) == message and isinstance(raised.value, UsageError)
