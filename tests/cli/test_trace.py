"""OSCINE_TRACE: times by stage on stderr, and nothing else changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.cli import run
from oscine.gpu.profile import MAX_QUERIES, Profile, profile_from_env
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.weights import load_weights
from oscine.ops.webgpu import Gpu

GOLDENS = Path(__file__).resolve().parent.parent / "goldens"
MODEL = GOLDENS / "whisper_multi"
RECORDING = GOLDENS / "audio" / "whisper_multi.wav"
LINE = re.compile(r"oscine: (\S+?)(?: on the GPU)?: \d+\.\d ms(?: in \d+ passes)?")


def transcribe(device: str) -> int:
    usual = ["transcribe", str(RECORDING), "--model", str(MODEL), "--language", "de"]
    once = ["--temperature-increment-on-fallback", "None", "--no-vad"]
    return run([*usual, *once, "--device", device])


def test_numpy_tells_its_stages(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSCINE_TRACE", "1")
    assert transcribe("cpu") == 0
    traced = capsysbinary.readouterr()
    lines = traced.err.decode().splitlines()
    assert [LINE.fullmatch(line)[1] for line in lines] == ["encode", "decode"]  # type: ignore[index]
    monkeypatch.setenv("OSCINE_TRACE", "0")
    assert transcribe("cpu") == 0
    plain = capsysbinary.readouterr()
    assert (plain.out, plain.err) == (traced.out, b"")


@pytest.fixture
def timed(device: Any) -> Any:
    if "timestamps" not in device.features:
        pytest.skip("the device has no timestamps")
    return device


@pytest.mark.gpu
@pytest.mark.parametrize("value", ["1", "kernels"])
def test_a_gpu_tells_its_own_time(
    timed: Any, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any, value: str
) -> None:
    monkeypatch.setenv("OSCINE_TRACE", value)
    monkeypatch.setattr("oscine.ops.check.SELF_CHECK", ())
    assert transcribe("gpu") == 0
    said = capsysbinary.readouterr()
    lines = [line for line in said.err.decode().splitlines() if line.startswith("oscine:")]
    told = [LINE.fullmatch(line)[1] for line in lines]  # type: ignore[index]
    assert told[:2] == ["encode", "decode"]
    assert all("on the GPU" in line for line in lines[2:])
    assert {name.split("/")[0] for name in told[2:]} == {"encode", "cross_kv", "prompt", "step"}
    if value == "1":
        assert len(told) == 6
    else:
        assert {
            "encode/attention",
            "step/sample_token",
            "step/causal_attention",
            "prompt/kv_cache_write",
        } <= set(told)
    monkeypatch.delenv("OSCINE_TRACE")
    assert transcribe("cpu") == 0
    assert capsysbinary.readouterr().out == said.out


@pytest.mark.gpu
def test_more_spans_than_queries_are_all_counted(
    timed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSCINE_TRACE", "kernels")
    gpu = Gpu(timed)
    slot, out = gpu.zeros((2, 16)), gpu.zeros((2, 16))
    norm_of = gpu.upload(np.ones(16, np.float32))

    def trace() -> None:
        from oscine.ops import LayerNorm

        gpu.store(
            gpu.layer_norm(
                gpu.layer_norm(slot, LayerNorm(norm_of, norm_of)), LayerNorm(norm_of, norm_of)
            ),
            out,
        )

    plan = gpu.record(trace, name="norms")
    runs = MAX_QUERIES // 4 + 7  # two spans a run, two queries a span
    plan.run(runs)
    counted, milliseconds = gpu.trace()["norms/layer_norm"]
    assert counted == 2 * runs
    assert 0 <= milliseconds < 60_000
    assert gpu.trace()["norms/layer_norm"] == (counted, milliseconds)


@pytest.mark.gpu
def test_a_profile_is_made_only_where_it_is_asked_for(
    timed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value, by_kernel in (("", None), ("0", None), ("1", False), ("kernels", True)):
        monkeypatch.setenv("OSCINE_TRACE", value)
        profile = profile_from_env(timed)
        assert (profile and profile.by_kernel) is by_kernel
    monkeypatch.setenv("OSCINE_TRACE", "")
    assert Gpu(timed).trace() == {}
    assert Profile(timed, by_kernel=False).collect() == {}


@pytest.mark.gpu
def test_a_decoder_passes_on_what_its_device_measured(
    timed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSCINE_TRACE", "1")
    runner = WhisperRunner(load_weights(MODEL), Gpu(timed))
    runner.encode_one(np.zeros((220, 24), np.float32))
    runner.encode_one(np.zeros((220, 24), np.float32))
    assert runner.trace()["encode"][0] == 2
