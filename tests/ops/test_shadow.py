"""Shadow mode: silent where both sides agree, and at a wrong kernel a stop that names it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.dtypes import BFLOAT16
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import EncoderInput
from oscine.errors import DeviceError
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.sequences import AlignmentSequence, DecodingRequest, DecodingSequence
from oscine.models.whisper.weights import load_weights
from oscine.ops import (
    DECODE_PARAMS,
    SUPPRESS,
    TALKER_STATE,
    ConvParams,
    Linear,
    RmsNorm,
    TextDecoderState,
)
from oscine.ops.reference import Reference
from oscine.ops.shadow import Shadow
from oscine.ops.webgpu import Gpu

pytestmark = [pytest.mark.gpu, pytest.mark.host]

GOLDEN = Path(__file__).resolve().parent.parent / "goldens" / "whisper_multi"
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
    max_new_tokens=3,
)


BEAMS = replace(
    REQUEST, beam_size=2, max_candidates=2, repetition_penalty=1.3, no_repeat_ngram_size=2
)
SAMPLES = replace(REQUEST, best_of=3, temperature=0.8)


def decode(backend: Any, request: DecodingRequest = REQUEST, windows: int = 1) -> Any:
    """A window of noise through the golden model."""
    engine = Engine(WhisperRunner(load_weights(GOLDEN), backend, f32_cross_kv=windows == 1))
    mel = np.random.default_rng(7).standard_normal((220, 24)).astype(np.float32)
    asked = [DecodingSequence(EncoderInput(mel), request) for _ in range(windows)]
    return [each.wait() for each in [engine.submit(each) for each in asked]]


def aligned(backend: Any) -> Any:
    """Where eight tokens look in half a window of noise."""
    engine = Engine(WhisperRunner(load_weights(GOLDEN), backend, f32_cross_kv=True))
    mel = np.random.default_rng(8).standard_normal((220, 24)).astype(np.float32)
    prompt = (312, 315, 318, 5, 6, 5, 6, 311)
    return engine.submit(AlignmentSequence(EncoderInput(mel), prompt, 311, 60)).wait()


def test_a_right_gpu_passes_with_numpys_result(gpu: Gpu) -> None:
    shadow = Shadow(gpu)
    assert decode(shadow) == decode(Reference())
    assert shadow.calls > 50
    assert shadow.name == f"{gpu.name}, checked op by op"


@pytest.mark.parametrize("request_", [BEAMS, SAMPLES], ids=["beams", "samples"])
def test_searches_pass_too(gpu: Gpu, request_: DecodingRequest) -> None:
    assert decode(Shadow(gpu), request_) == decode(Reference(), request_)


def test_a_batch_passes_too_with_its_keys_in_float16(gpu: Gpu) -> None:
    shadow, reference = Shadow(gpu), Reference()
    reference.f16_cross_kv = True
    # Which rows run beside which depends on when each is submitted, and BLAS rounds by that.
    for found, wanted in zip(decode(shadow, windows=2), decode(reference, windows=2), strict=True):
        assert [row.tokens for row in found] == [row.tokens for row in wanted]
        assert found[0].sum_logprob == pytest.approx(wanted[0].sum_logprob, abs=1e-4)


def test_alignment_passes_too(gpu: Gpu) -> None:
    found, expected = (aligned(backend) for backend in (Shadow(gpu), Reference()))
    assert np.array_equal(found.weights, expected.weights)
    assert np.array_equal(found.probabilities, expected.probabilities)


@pytest.mark.parametrize(
    "op", ["conv1d", "cross_attention", "sample_token", "beam_search_step", "apply_penalties"]
)
def test_a_wrong_kernel_is_named(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    right = getattr(Gpu, op)

    def conv1d(self: Gpu, x: Any, conv: Linear, taps: ConvParams, **options: Any) -> Any:
        return right(self, x, Linear(conv.weight, None), taps, **options)

    def cross_attention(self: Gpu, q: Any, kv: Any, state: TextDecoderState, heads: int) -> Any:
        return right(self, q, kv, state, 1)

    def sample_token(
        self: Gpu,
        logits: Any,
        masks: Any,
        rules: Any,
        state: TextDecoderState,
        rows_per_logits: int,
    ) -> None:
        pass

    def beam_search_step(self: Gpu, logits: Any, masks: Any, *others: Any) -> None:
        right(self, logits, self.upload(np.full(masks.shape, SUPPRESS, np.uint32)), *others)

    def apply_penalties(self: Gpu, logits: Any, rules: Any, state: TextDecoderState) -> Any:
        return right(self, logits, self.zeros(rules.shape, DECODE_PARAMS), state)

    monkeypatch.setattr(Gpu, op, locals()[op])
    with pytest.raises(
        DeviceError, match=rf"{op} \(call \d+, operands \(.*\)\) differs from NumPy"
    ):
        decode(Shadow(gpu), BEAMS if op in ("beam_search_step", "apply_penalties") else REQUEST)


def test_bfloat16_and_gated_layers_pass_too(gpu: Gpu) -> None:
    shadow, rng = Shadow(gpu), np.random.default_rng(1)
    bits = (rng.standard_normal((64, 40)).astype(np.float32).view(np.uint32) >> 16).astype("<u2")
    weight = shadow.upload(bits.view(BFLOAT16))
    assert weight.gpu.nbytes == bits.nbytes
    x = shadow.upload(rng.standard_normal((3, 40)).astype(np.float32))
    norm = RmsNorm(shadow.upload(rng.standard_normal(40).astype(np.float32)))
    y = shadow.swiglu_linear(x, Linear(weight, None), norm=norm)
    assert y.shape == (3, 32)
    np.testing.assert_allclose(gpu.read(y.gpu), y.reference)


def test_a_slot_that_is_written_wrongly_is_named(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def conv1d(
        self: Gpu, x: Any, conv: Linear, taps: ConvParams, *, memory: Any, state: Any
    ) -> Any:
        return right(self, x, conv, taps, memory=self.zeros(memory.shape), state=state)

    right = Gpu.conv1d
    shadow = Shadow(gpu)
    x, conv = shadow.upload(np.ones((5, 4), np.float32)), np.ones((4, 3, 4), np.float32)
    operands = x, Linear(shadow.upload(conv), None), ConvParams(2)
    state = shadow.zeros((1,), TALKER_STATE)
    shadow.conv1d(*operands, memory=shadow.zeros((1, 2, 4)), state=state)
    monkeypatch.setattr(Gpu, "conv1d", conv1d)
    with pytest.raises(DeviceError, match=r"conv1d .* differs from NumPy"):
        shadow.conv1d(*operands, memory=shadow.zeros((1, 2, 4)), state=state)


def test_what_is_no_op_is_no_attribute(gpu: Gpu) -> None:
    with pytest.raises(AttributeError):
        _ = Shadow(gpu).softmax
    assert Shadow(gpu).trace() == {}


def test_oscine_check_asks_for_it(monkeypatch: pytest.MonkeyPatch, gpu: Gpu, adapter: Any) -> None:
    from oscine.backends import choose_backend

    monkeypatch.setattr("oscine.ops.check.SELF_CHECK", ())
    monkeypatch.setenv("OSCINE_CHECK", "1")
    assert isinstance(choose_backend("gpu"), Shadow)
    monkeypatch.setenv("OSCINE_CHECK", "0")
    assert isinstance(choose_backend("gpu"), Gpu)
