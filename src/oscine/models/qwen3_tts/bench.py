"""What `oscine bench` measures of a Qwen3-TTS: speech of one or several voices, and its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.bench import (
    BenchSettings,
    Measurement,
    made_sound,
    run_together,
    tensor_bytes,
    time_runs,
)
from oscine.dtypes import dtype_name
from oscine.models.qwen3_tts import model as network
from oscine.models.qwen3_tts.pipeline import Qwen3Tts
from oscine.models.qwen3_tts.runner import Qwen3TtsRunner

TEXT = (
    "The harbour is quiet in the early morning, and the boats come back one after another, "
    "with their lamps still lit and the gulls behind them."
)
MAX_SPEECH_S, MAX_HOST_SPEECH_S = 15.0, 3.0  # seconds of each voice, on a GPU and in NumPy
CODEC_FRAMES = 4  # of a call of the codec
REPLAYS = 16  # of a plan in one run, on a GPU


def bench(model: Qwen3Tts, settings: BenchSettings) -> Iterator[Measurement]:
    """Yield the measurements of a model. Raises DeviceError, NonFiniteError."""
    longest = MAX_SPEECH_S if model.runner.backend.is_async else MAX_HOST_SPEECH_S
    frames = max(2, round(min(settings.seconds, longest) / frame_seconds(model.runner)))
    how = voice_options(model)
    for batch in settings.batches:
        yield from measure_voices(model, batch, frames, how, max(1, settings.repeats // 2))
    call = model.engine.call
    yield from call(lambda runner: list(measure_parts(runner, settings.repeats)))
    yield call(lambda runner: measure_codec(runner, CODEC_FRAMES, settings.repeats))


def frame_seconds(runner: Qwen3TtsRunner) -> float:
    """Seconds of audio in a frame: 0.08 in released models."""
    codec = runner.config.codec
    return codec.hop_length / codec.sample_rate


def voice_options(model: Qwen3Tts) -> dict[str, Any]:
    """What a model of each kind needs to speak: a voice, a description, or a made reference."""
    if model.kind == "custom_voice":
        return {"voice": model.capabilities.default_voice}
    if model.kind == "voice_design":
        return {"instruct": "A calm voice."}
    rate = model.runner.config.codec.sample_rate
    return {"voice": model.voice_of((made_sound(5.0, rate), rate))}


# -- speech as a caller receives it -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimedSpeech:
    """How the audio of one stream arrived.

    `first_audio_s` and `wall_s` count from the call; `seconds`: of audio; `underruns`: pieces that
    came after all before them was played.
    """

    first_audio_s: float
    wall_s: float
    seconds: float
    underruns: int


def time_speech(model: Any, text: str, **options: Any) -> TimedSpeech:
    """Speak a text, and read its audio as it arrives."""
    started = perf_counter()
    first, samples, underruns, rate = 0.0, 0, 0, model.runner.config.codec.sample_rate
    for piece in model.stream(text, **options):
        now = perf_counter()
        underruns += bool(first) and now - first > samples / rate
        first = first or now
        samples += len(piece.samples)
    return TimedSpeech(first - started, perf_counter() - started, samples / rate, underruns)


def speak_together(
    model: Any, count: int, text: str, **options: Any
) -> tuple[float, list[TimedSpeech]]:
    """Voices that start together, with seeds 0, 1, ...: seconds of all, and each."""
    calls = [partial(time_speech, model, text, seed=number, **options) for number in range(count)]
    started = perf_counter()
    found = run_together(calls)
    return perf_counter() - started, found


def measure_voices(
    model: Qwen3Tts, count: int, frames: int, how: Mapping[str, Any], repeats: int
) -> Iterator[Measurement]:
    """`count` voices of at most `frames` frames that start together, after two runs of warm-up.

    The first run makes memory grow, which drops plans that it recorded before.
    """
    run = partial(speak_together, model, count, TEXT, max_frames=frames, guard=False, **how)
    for _ in range(2):
        run()
    runs = [run() for _ in range(repeats)]
    dtype = dtype_name(model.runner.networks.talker.codec_head.weight.dtype)
    seconds = [sum(each.seconds for each in found) for _, found in runs]
    frame_s = frame_seconds(model.runner)
    yield Measurement(
        case="frame",
        per="frame",
        batch=count,
        times_ms=[
            1000 * wall * frame_s * count / total
            for (wall, _), total in zip(runs, seconds, strict=True)
        ],
        audio_s=frame_s * count,
        nbytes=frame_bytes(model.runner),
        dtype=dtype,
        details={
            "audio_s": median(seconds),
            "underruns": sum(each.underruns for _, found in runs for each in found),
        },
    )
    firsts = [[1000 * each.first_audio_s for each in found] for _, found in runs]
    yield Measurement(
        case="first audio",
        per="call",
        batch=count,
        times_ms=[median(each) for each in firsts],
        dtype=dtype,
        details={"slowest_ms": max(map(max, firsts))},
    )


# -- the parts of a frame ---------------------------------------------------------------------


def measure_parts(runner: Qwen3TtsRunner, repeats: int) -> Iterator[Measurement]:
    """The talker and the code predictor by themselves, of one voice.

    Their plans run on whatever the slots hold; no voice may be running.
    """
    talker, backend, networks = runner.talker, runner.backend, runner.networks
    buffers = talker.rows(1)
    hidden = backend.zeros((1, runner.config.talker.hidden_size))
    dtype = dtype_name(networks.talker.codec_head.weight.dtype)
    replays = REPLAYS if backend.is_async else 1

    def run_talker() -> None:
        last = networks.code_predictor.codec_embeddings[-1]
        x = backend.sum_embeddings(
            buffers.embedding_sum, last, buffers.trailing_text, buffers.state
        )
        x = network.talker(backend, networks, buffers, x)
        backend.store(backend.rms_norm(x, networks.talker.norm), hidden)

    def run_predictor() -> None:
        logits = backend.linear(hidden, networks.talker.codec_head)
        backend.sample_code(logits, buffers.sampling_params, buffers.state)
        network.code_predictor(backend, networks, buffers, hidden)

    parts: list[tuple[str, Callable[[], None], float]] = [
        ("talker", run_talker, talker_bytes(runner)),
        ("predictor", run_predictor, predictor_bytes(runner)),
    ]
    for name, trace, nbytes in parts:
        plan = talker.record(trace, buffers, name)

        def replay(plan: Any = plan) -> None:
            backend.write(buffers.state.rows, running_row(backend.read(buffers.state.rows)))
            plan.run(replays)
            backend.wait()

        yield Measurement(
            case=name,
            per="frame",
            times_ms=[spent / replays for spent in time_runs(replay, repeats)],
            nbytes=nbytes,
            dtype=dtype,
            details={"dispatches": len(getattr(plan, "dispatches", ()))},
        )
    talker.stop([0])


def measure_codec(runner: Qwen3TtsRunner, frames: int, repeats: int) -> Measurement:
    """Calls of the codec for that many frames of one voice, from codes to samples on the host."""
    codec, size = runner.codec_stream(), (frames, runner.config.num_code_groups)
    codes = np.random.default_rng(0).integers(0, runner.config.codebook_size, size)

    def decode() -> None:
        codec.reset()
        codec.decode(codes)

    runs = time_runs(decode, repeats)
    plan = runner.codec.plan(frames).plan
    runner.codec.release_slot(codec.slot)
    return Measurement(
        case="codec",
        per="frame",
        times_ms=[spent / frames for spent in runs],
        nbytes=codec_bytes(runner) / frames,
        dtype=dtype_name(runner.codec.weights.conv_in.weight.dtype),
        details={"frames": frames, "dispatches": len(getattr(plan, "dispatches", ()))},
    )


def running_row(row: NDArray[np.void]) -> NDArray[np.void]:
    """A state row [1] changed to one in the middle of an utterance."""
    row = row.copy()
    row["done"], row["group"], row["position"], row["length"] = 0, 0, 100, 1
    row["count"], row["limit"] = 10, 1 << 30
    return row


def talker_bytes(runner: Qwen3TtsRunner) -> int:
    """Bytes of weights that the talker's layers read for a frame."""
    return tensor_bytes(runner.networks.talker.layers)


def predictor_bytes(runner: Qwen3TtsRunner) -> int:
    """Bytes of weights that a frame reads in the heads and, once a code, in the predictor."""
    w = runner.networks.code_predictor
    heads = tensor_bytes(w.lm_heads) + tensor_bytes(runner.networks.talker.codec_head)
    return len(w.lm_heads) * tensor_bytes(w.layers) + heads


def codec_bytes(runner: Qwen3TtsRunner) -> int:
    """Bytes of the codec decoder's weights, which a call reads once."""
    w = runner.codec.weights
    return tensor_bytes(w) - tensor_bytes((w.rvq_first_codebooks, w.rvq_rest_codebooks))


def frame_bytes(runner: Qwen3TtsRunner) -> float:
    """Bytes of weights that a frame reads at least, of any number of voices."""
    return talker_bytes(runner) + predictor_bytes(runner) + codec_bytes(runner) / CODEC_FRAMES
