"""Voices in one batch on the real network: each equals its result alone, beside any others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oscine
from oscine.engine.scheduler import Engine
from oscine.models.qwen3_tts.config import SamplingParams
from oscine.models.qwen3_tts.pipeline import Qwen3Tts
from oscine.models.qwen3_tts.prompt import Embeddings, Prompt, PromptDraft
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner
from oscine.models.qwen3_tts.sequences import Utterance, UtteranceRequest, UtteranceResult
from oscine.models.qwen3_tts.weights import load_weights
from oscine.ops.reference import Reference
from tests.engine.by_hand import ByHand

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts"
BASE = load_weights(GOLDENS / "base" / "ckpt")
CHOICES = (
    SamplingParams(do_sample=False),
    SamplingParams(),
    SamplingParams(temperature=1.5, top_k=0, top_p=0.8, repetition_penalty=1.0),
    SamplingParams(temperature=0.6, top_k=5, repetition_penalty=1.4),
)
KINDS = 12
ROUNDING = 1e-5  # of samples: BLAS, and kernels of other numbers of rows


def utterance(kind: int) -> Utterance:
    """One of several utterances, which differ in prompt, options, limits, reference and output."""
    rng = np.random.default_rng(kind)
    width, config = BASE.config.talker.hidden_size, BASE.config
    heard = rng.standard_normal((3 + 5 * kind, width), np.float32)
    text = rng.standard_normal((1 + kind % 4, width), np.float32)
    first, later = CHOICES[kind % 4], CHOICES[kind // 4]
    request = UtteranceRequest(Prompt(heard, text), first, later, kind, 1 + 4 * kind % 31)
    reference = None
    if kind % 3 == 0:
        reference = rng.integers(0, config.codebook_size, (9, config.num_code_groups)).astype(
            np.uint32
        )
    return Utterance(request, reference, guard=kind % 2 == 0, returns_audio=kind % 4 != 3)


def result(voice: Utterance) -> tuple[UtteranceResult, np.ndarray, np.ndarray]:
    """Its result, its frames, and the delivered pieces."""
    return voice.result(0), voice.known_codes, np.concatenate(list(voice.pieces()))


class Alone:
    """The results of each kind alone, on one backend."""

    def __init__(self, backend: Any) -> None:
        self.runner = Qwen3TtsRunner(BASE, backend)
        self.result = lru_cache(maxsize=None)(self.compute)

    def engine(self) -> ByHand:
        return ByHand(self.runner)  # type: ignore[arg-type]

    def compute(self, kind: int) -> tuple[UtteranceResult, np.ndarray, np.ndarray]:
        engine, voice = self.engine(), utterance(kind)
        engine.submit(voice)
        engine.until_idle()
        return result(voice)

    def check(self, kind: int, voice: Utterance, atol: float = ROUNDING) -> None:
        """Assert equal frames, and equal samples up to rounding."""
        for found, expected in zip(result(voice), self.result(kind), strict=True):
            if isinstance(found, np.ndarray):
                assert found.shape == expected.shape  # type: ignore[union-attr]
                np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
            else:
                assert found == expected

    def play(self, plan: list[tuple[int, int, int | None]]) -> None:
        """Voices by the turn they come at, their kind, and the turns after which each is given up.

        Utterances that are not cancelled equal their results alone; no resources leak.
        """
        engine = self.engine()
        voices = [(at, kind, given_up, utterance(kind)) for at, kind, given_up in plan]
        for turn in range(24):
            for at, _, given_up, voice in voices:
                if at == turn:
                    engine.submit(voice)
                if given_up is not None and at + given_up == turn:
                    voice.cancel()
            engine.run_iteration()
        engine.until_idle()
        for _, kind, given_up, voice in voices:
            assert voice.done()
            if given_up is None:
                self.check(kind, voice)
        assert engine._slots.in_use == engine.running == engine.waiting == 0
        assert (
            not self.runner.utterance_executor.voices
            and not self.runner.utterance_executor.codec.in_flight
        )
        codec = self.runner.codec
        kept = len(self.runner.utterance_executor.codec.reference_slots)
        assert len(set(codec.free_slots)) == len(codec.free_slots) == codec.states.slots - kept


class Ahead(Reference):
    """NumPy that is driven as a GPU is."""

    is_async = True


NUMPY = {False: Alone(Reference()), True: Alone(Ahead())}

plans = st.lists(
    st.tuples(
        st.integers(0, 9), st.integers(0, KINDS - 1), st.none() | st.none() | st.integers(0, 6)
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=25, deadline=None)
@given(plans, st.booleans())
def test_a_voice_is_what_it_is_alone(plan: list[tuple[int, int, int | None]], ahead: bool) -> None:
    NUMPY[ahead].play(plan)


@pytest.mark.gpu
def test_a_voice_is_what_it_is_alone_on_a_gpu(gpu: Any) -> None:
    """Bit for bit between two batches of the same sizes, and the same frames as alone."""
    alone = Alone(gpu)
    alone.play([(0, kind, None) for kind in range(KINDS)])
    alone.play([(0, 5, None), (0, 8, 3), (1, 2, None), (1, 5, None), (2, 10, None), (3, 6, 0)])
    engine = alone.engine()
    engine.fixed_rows = 4
    first, again = utterance(8), utterance(8)
    engine.submit(first)
    engine.until_idle()
    for voice in (utterance(2), again, utterance(10)):
        engine.submit(voice)
    engine.until_idle()
    assert np.array_equal(first.known_codes, again.known_codes)


# -- threads and tasks ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Iterator[Qwen3Tts]:
    loaded = oscine.load(GOLDENS / "custom_voice" / "ckpt", "cpu")
    assert isinstance(loaded, Qwen3Tts)
    yield loaded


TEXTS = [f"Sentence {number} is here. " * (1 + number % 3) + "\n\nAnd more." for number in range(8)]


def how(number: int) -> dict[str, Any]:
    return {"voice": "ryan", "seed": number, "max_frames": 15 + number, "guard": number % 2 == 0}


def test_threads_and_tasks_that_speak_at_once_hear_what_each_hears_alone(model: Qwen3Tts) -> None:
    expected = [model.speak(text, **how(number)).samples for number, text in enumerate(TEXTS)]
    model.engine.occupancy.max_sequences = 0
    ready = threading.Barrier(9)

    def speak(number: int) -> np.ndarray:
        ready.wait()
        return model.speak(TEXTS[number], **how(number)).samples

    async def listen(number: int) -> np.ndarray:
        stream = model.stream(TEXTS[number], **how(number))
        return np.concatenate([audio.samples async for audio in stream])

    async def tasks() -> list[np.ndarray]:
        await asyncio.to_thread(ready.wait)
        return await asyncio.gather(*map(listen, range(8)))

    with ThreadPoolExecutor(8) as pool:
        spoken = [pool.submit(speak, number) for number in range(8)]
        heard = asyncio.run(tasks())
    for found in (heard, [each.result() for each in spoken]):
        for samples, alone in zip(found, expected, strict=True):
            assert samples.shape == alone.shape
            assert np.abs(samples - alone).max() < ROUNDING
    assert model.engine.occupancy.max_sequences > 1 and model.engine.occupancy.multi_caller_bursts


def test_prompts_of_one_length_are_one_prefill() -> None:
    runner = Qwen3TtsRunner(BASE, Reference())
    plans: list[tuple[int, int]] = []
    prompt_plan = runner.talker.prompt_plan
    runner.talker.prompt_plan = lambda count, length: (  # type: ignore[method-assign]
        plans.append((count, length)) or prompt_plan(count, length)  # type: ignore[func-returns-value]
    )
    engine: Engine[Any] = ByHand(runner)  # type: ignore[arg-type]
    voices = [utterance(kind) for kind in (2, 2, 5, 2)]
    for voice in voices:
        engine.submit(voice)
    engine.run_iteration()
    assert sorted(plans) == [(1, 28), (3, 13)]


def test_prompts_of_one_length_are_prefilled_without_much_padding() -> None:
    """Where plans are recorded for powers of two, five prompts are four and one."""
    runner = Qwen3TtsRunner(BASE, Reference())
    runner.backend.bucket_rows = lambda count: 1 << (count - 1).bit_length()  # type: ignore[method-assign]
    plans: list[tuple[int, int]] = []
    prompt_plan = runner.talker.prompt_plan
    runner.talker.prompt_plan = lambda count, length: (  # type: ignore[method-assign]
        plans.append((count, length)) or prompt_plan(count, length)  # type: ignore[func-returns-value]
    )
    engine: Engine[Any] = ByHand(runner)  # type: ignore[arg-type]
    voices = [utterance(2) for _ in range(5)]
    for voice in voices:
        engine.submit(voice)
    engine.until_idle()
    assert plans == [(4, 16), (1, 16)]
    alone = Alone(Reference())
    for voice in voices:
        alone.check(2, voice)


def test_texts_of_several_prompts_are_projected_in_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = Qwen3TtsRunner(BASE, Reference()).tables
    passes: list[int] = []
    submit = tables.text_projection.submit

    def counted(rows: np.ndarray) -> Any:
        passes.append(len(rows))
        return submit(rows)

    def build(embeddings: Embeddings, ids: list[int]) -> Prompt:
        return Prompt(embeddings.embed_text(ids[:2]), embeddings.embed_text(ids[2:]))

    def draft(ids: list[int]) -> PromptDraft:
        return PromptDraft(2, len(ids) - 2, ids, lambda embeddings: build(embeddings, ids))

    texts = [[1, 2, 3], [4, 5, 6, 7, 8], [2, 9, 1, 3]]
    alone = [build(tables, ids) for ids in texts]
    ready = Prompt(alone[0].embeddings, alone[0].trailing_text)
    monkeypatch.setattr(tables.text_projection, "submit", counted)
    first, given, *others = tables.build_prompts([draft(texts[0]), ready, *map(draft, texts[1:])])
    assert passes == [12] and given is ready
    monkeypatch.setattr("oscine.models.qwen3_tts.embeddings.MAX_PREFILL_ROWS", 5)
    assert (
        tables.embed_text([each for ids in texts for each in ids]).shape[0] == sum(passes[1:]) == 12
    )
    assert max(passes[1:]) == 5
    for found, expected in zip((first, *others), alone, strict=True):
        np.testing.assert_allclose(found.embeddings, expected.embeddings, atol=1e-6)
        np.testing.assert_allclose(found.trailing_text, expected.trailing_text, atol=1e-6)
