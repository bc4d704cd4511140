"""Speech of small checkpoints from text to samples: upstream's waveforms, and what stays alike."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.models.qwen3_tts.config import GenerationConfig
from oscine.models.qwen3_tts.pipeline import Qwen3Tts
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner
from oscine.models.qwen3_tts.sentences import split_sentences
from oscine.models.qwen3_tts.weights import load_weights
from oscine.models.speech import Speech
from oscine.ops.reference import Reference
from oscine.text.qwen import QwenTokenizer

from ...audio.comments import comment_of

FOLDERS = [
    folder
    for folder in (
        Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts",
        Path(__file__).resolve().parents[4] / "shared" / "oracles" / "tts-seed0",
    )
    if folder.is_dir()
]
KINDS = ("custom_voice", "voice_design", "base")
GREEDY = {"do_sample": False, "subtalker_do_sample": False}

RUNS = [
    pytest.param(folder / kind, run, id=f"{folder.name}-{kind}-{run['run']}")
    for folder in FOLDERS
    for kind in KINDS
    for run in json.loads((folder / kind / "meta.json").read_text("utf-8"))["runs"]
]


def arguments(folder: Path, run: dict[str, Any]) -> dict[str, Any]:
    """Of speak, as upstream was asked."""
    given: dict[str, Any] = {
        "language": run["language"],
        "max_frames": run["max_new_tokens"] - 1,
        "repetition_penalty": run["repetition_penalty"],
        **GREEDY,
    }
    for ours, theirs in (("voice", "speaker"), ("instruct", "instruct")):
        if run.get(theirs) is not None:
            given[ours] = run[theirs]
    whole = run.get("non_streaming_mode")
    given["streamed_text"] = folder.name == "base" if whole is None else not whole
    if folder.name == "base":
        name = "ref_wav_long" if run["run"] == "icl_text_shorter" else "ref_wav_short"
        given["reference"] = np.load(folder / "expected.npz")[name], 24_000
        if not run["x_vector_only_mode"]:
            given["reference_text"] = run["ref_text"]
    return given


@pytest.mark.parametrize(("folder", "run"), RUNS)
def test_upstreams_samples_whole_and_streamed(folder: Path, run: dict[str, Any]) -> None:
    model = oscine.load(folder / "ckpt", "cpu")
    assert isinstance(model, Qwen3Tts)
    expected = np.load(folder / "expected.npz")[f"{run['run']}/wav"]
    given = arguments(folder, run)
    speech = model.speak(run["text"], **given)
    assert speech.samples.shape == expected.shape
    assert np.abs(speech.samples - expected).max() < 1e-4
    stream = model.stream(run["text"], **given)
    streamed = np.concatenate([audio.samples for audio in stream])
    assert np.abs(streamed - speech.samples).max() < 1e-5
    assert stream.finish_reason == speech.finish_reason


@pytest.fixture(scope="module")
def custom() -> Qwen3Tts:
    return oscine.load(FOLDERS[0] / "custom_voice" / "ckpt", "cpu")  # type: ignore[return-value]


def say(model: Qwen3Tts, text: str = "Hello there.", **given: Any) -> Speech:
    return model.speak(text, **{"voice": "ryan", "max_frames": 6, **given})


def test_the_same_seed_says_the_same(custom: Qwen3Tts) -> None:
    first, again, other = (say(custom, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first.samples, again.samples)
    assert not np.array_equal(first.samples, other.samples)
    drawn = say(custom)
    assert np.array_equal(drawn.samples, say(custom, seed=drawn.seed).samples)


def test_saving(custom: Qwen3Tts, tmp_path: Path) -> None:
    speech = say(custom, seed=5)
    for suffix in ("wav", "flac"):
        speech.save(tmp_path / f"a.{suffix}")
        from oscine.audio.io import decode

        back = decode(tmp_path / f"a.{suffix}", speech.rate).samples
        assert np.abs(back - speech.samples).max() <= 1 / 16000


@pytest.mark.parametrize("name", ["wav", "mp3", "flac", "opus", "ogg", "m4a", "aac"])
def test_speech_says_that_it_is_synthetic(custom: Qwen3Tts, tmp_path: Path, name: str) -> None:
    """Which model and program, and nothing of the voice or of this machine."""
    speech = say(custom, seed=5)
    file = tmp_path / f"a.{name}"
    speech.save(file)
    mark = json.loads(comment_of(file))
    assert mark == {
        "synthetic": True,
        "digitalSourceType": "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia",
        "software": f"oscine {oscine.__version__}",
        "model": "ckpt",
    }
    named = json.loads(replace(speech, model="qwen3-tts-0.6b-base").mark)
    assert named["model"] == "qwen3-tts-0.6b-base"
    with custom.stream("Hello.", voice="ryan", max_frames=2) as stream:
        assert stream.mark == speech.mark
    speech.save(file, mark=False)
    assert comment_of(file) == ""


def endless_text(length: int) -> str:
    sentence = "The words go on and on, and nobody knows where they end: here, perhaps? "
    return (sentence * (1 + length // len(sentence)))[:length]


class Counting(Reference):
    """NumPy that counts the memory made for plans which is still there."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[weakref.ref[np.ndarray]] = []
        self.plans = 0

    def zeros(self, shape: Any, dtype: Any = np.float32) -> Any:
        slot = super().zeros(shape, dtype)
        self.made.append(weakref.ref(slot))
        return slot

    def record(self, trace: Any, *given: Any, **named: Any) -> Any:
        self.plans += 1
        return super().record(trace, *given, **named)

    def held(self) -> int:
        """Bytes, but for what waits to be collected."""
        gc.collect()
        self.made = [ref for ref in self.made if ref() is not None]
        return sum(slot.nbytes for ref in self.made if (slot := ref()) is not None)


def counted(kind: str) -> tuple[Qwen3Tts, Counting]:
    weights = load_weights(FOLDERS[0] / kind / "ckpt")
    backend = Counting()
    tokenizer = QwenTokenizer.load(weights.folder)
    return Qwen3Tts(Qwen3TtsRunner(weights, backend), tokenizer, kind), backend


@pytest.mark.parametrize("kind", ["custom_voice", "base"])
def test_a_hundred_requests_leave_nothing_behind(kind: str) -> None:
    model, backend = counted(kind)
    rng = np.random.default_rng(1)
    noise = (0.2 * rng.standard_normal(3000)).astype(np.float32)
    resource = pytest.importorskip("resource")  # not on Windows

    def request(index: int) -> None:
        text = "Hello there, you. " * (1 + index % 3)
        if kind == "custom_voice":
            say(model, text, max_frames=1 + index % 3)
            return
        given = {"reference_text": "some words"} if index % 2 else {}
        model.speak(text, reference=(noise, 24_000), max_frames=1 + index % 3, **given)

    for index in range(6):
        request(index)
    held, plans = backend.held(), backend.plans
    for index in range(94):
        request(index)
        if index == 20:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert backend.held() == held
    assert kind == "base" or backend.plans == plans  # those of references are made each time
    assert grown < 8 << (10 if sys.platform == "linux" else 20)  # KiB there, bytes on macOS


def test_five_thousand_characters_are_spoken_to_the_end_in_bounded_memory() -> None:
    model, backend = counted("custom_voice")
    hot = GenerationConfig(
        talker=replace(model._config.generation.talker, temperature=50.0, top_k=0),
        subtalker=model._config.generation.subtalker,
    )
    model._config = replace(model._config, generation=hot)
    text = endless_text(5000)
    stream = model.stream(text, voice="ryan", seed=1)
    say(model, text[:200], seed=1, max_frames=None)  # the longest piece
    held = backend.held()
    frames = 0
    for audio in stream:
        frames += len(audio.samples) // model._config.codec.hop_length
    assert stream.pieces == len(split_sentences(text)) > 20
    assert stream.finish_reason == "end" and frames > stream.pieces
    assert backend.held() < 1.3 * held  # a plan for texts of another length


@pytest.mark.gpu
def test_a_gpu_says_what_numpy_says(gpu: Any) -> None:
    folder = FOLDERS[0] / "base"  # where every engine has its part
    runs = json.loads((folder / "meta.json").read_text("utf-8"))["runs"]
    run = next(run for run in runs if run["run"] == "icl_text_shorter")
    weights = load_weights(folder / "ckpt")
    model = Qwen3Tts(Qwen3TtsRunner(weights, gpu), QwenTokenizer.load(weights.folder), "base")
    expected = np.load(folder / "expected.npz")[f"{run['run']}/wav"]
    given = arguments(folder, run)
    speech = model.speak(run["text"], **given)
    assert speech.samples.shape == expected.shape
    assert np.abs(speech.samples - expected).max() < 1e-3
    for streamed in by_turns([model.stream(run["text"], **given) for _ in range(2)]):
        assert np.abs(streamed - speech.samples).max() < 1e-5


def by_turns(streams: list[Any]) -> list[np.ndarray]:
    """The samples of streams, a piece of audio of each at a time."""
    heard: list[list[Any]] = [[] for _ in streams]
    for audios in zip_longest(*streams):
        for samples, audio in zip(heard, audios, strict=True):
            samples += [] if audio is None else [audio.samples]
    return [np.concatenate(samples) for samples in heard]


@pytest.mark.parametrize("kind", KINDS)
def test_streams_side_by_side(kind: str) -> None:
    """Streams that are interleaved, with a voice cloned between, yield the same audio."""
    model = counted(kind)[0]
    given: dict[str, Any] = {"max_frames": 200}
    if kind == "custom_voice":
        given["voice"] = "ryan"
    elif kind == "base":
        noise = (0.2 * np.random.default_rng(1).standard_normal(3000)).astype(np.float32)
        given |= {"reference": (noise, 24_000), "reference_text": "some words"}
    else:
        given["instruct"] = "A calm voice."
    text = "One.\n\nTwo."
    expected = [by_turns([model.stream(text, seed=seed, **given)])[0] for seed in range(2)]
    streams = [model.stream(text, seed=seed, **given) for seed in range(2)]
    first = next(streams[0]).samples
    if kind == "base":
        model.voice_of(given["reference"])
    heard = by_turns(streams)
    heard[0] = np.concatenate([first, heard[0]])
    for stream, samples, whole in zip(streams, heard, expected, strict=True):
        # The codes are the same; BLAS may round a row otherwise beside others.
        assert np.abs(samples - whole).max() < 1e-5 and stream.finish_reason is not None
        assert set(stream.timings) == {"prompt", "frames", "codec"}


@pytest.mark.parametrize("dtype", ["auto", "f32", "f16"])
def test_precisions(dtype: str) -> None:
    folder = FOLDERS[0] / "custom_voice" / "ckpt"
    stored, weights = load_weights(folder), load_weights(folder, dtype)
    kind = {"auto": stored.talker.codec_head.weight.dtype, "f32": np.float32, "f16": np.float16}[
        dtype
    ]
    matrices = (
        weights.talker.codec_head.weight, weights.talker.layers[0].qkv_proj.weight,
        weights.talker.codec_embedding,
        weights.code_predictor.lm_heads[-1].weight, weights.code_predictor.codec_embeddings[0],
        weights.text.fc1.weight,
    )  # fmt: skip
    assert all(matrix.dtype == kind for matrix in matrices)
    assert weights.talker.norm.weight.dtype == np.float32
    assert weights.decoder.layers[0].qkv_proj.weight.dtype == np.float32
    model = oscine.load(folder, "cpu", dtype)
    exact = oscine.load(folder, "cpu")
    said, as_stored = say(model, **GREEDY), say(exact, **GREEDY)  # type: ignore[arg-type]
    if dtype != "f16":
        assert np.array_equal(said.samples, as_stored.samples)
