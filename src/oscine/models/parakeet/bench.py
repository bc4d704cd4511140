"""What `oscine bench` measures of a Parakeet: encoder, loop over frames, and a whole recording."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from oscine.audio.io import open_source
from oscine.bench import (
    BenchSettings,
    Measurement,
    made_sound,
    time_once,
    time_runs,
)
from oscine.dtypes import dtype_name
from oscine.engine.scheduler import Engine
from oscine.engine.sequence import EncoderInput
from oscine.errors import DeviceMemoryError
from oscine.models.parakeet.config import ParakeetConfig
from oscine.models.parakeet.features import NemoFeatures
from oscine.models.parakeet.hotwords import ContextGraph
from oscine.models.parakeet.pipeline import Parakeet
from oscine.models.parakeet.runner import ParakeetRunner
from oscine.models.parakeet.sequences import Chunk, Hypothesis

WINDOW_S = 30.0


def bench(model: Parakeet, settings: BenchSettings) -> Iterator[Measurement]:
    """Yield the measurements of a model. Raises DeviceError, NonFiniteError."""
    for batch in settings.batches:
        try:
            yield model.engine.call(partial(measure_encoder, batch=batch, repeats=settings.repeats))
        except DeviceMemoryError:
            break
    if model.runner.supports_hotwords:  # a CTC head has no loop
        for batch in settings.batches:
            yield measure_loop(model, batch, settings.repeats)
    yield measure_recording(model, settings)


def measure_encoder(
    runner: ParakeetRunner, batch: int, repeats: int, seconds: float = WINDOW_S
) -> Measurement:
    """`batch` windows side by side: upload of the mel, encoder, wait."""
    config = runner.config
    shape = batch, round(100 * seconds), config.n_mels
    mels = np.random.default_rng(0).standard_normal(shape, np.float32)
    inputs = [EncoderInput(mel, config.attention_window) for mel in mels]
    runs = time_runs(partial(encode, runner, inputs), repeats)
    return Measurement(
        case="encoder",
        per="window",
        batch=batch,
        times_ms=[spent / batch for spent in runs],
        audio_s=seconds,
        flop=encoder_flop(config, seconds),
        dtype=dtype_name(runner.encoder.w.blocks[0].self_attn.linear_out.weight.dtype),
    )


def encode(runner: ParakeetRunner, inputs: Sequence[EncoderInput]) -> None:
    """Run the encoder alone, in as many passes as the inputs take, and wait."""
    for group in runner.encoder.batches(inputs):
        runner.encoder.run([inputs[number] for number in group])
    runner.backend.wait()


def encoder_flop(config: ParakeetConfig, seconds: float) -> float:
    """Floating-point operations of a window: products of every block, and attention."""
    frames = math.ceil(100 * seconds / config.subsampling_factor)
    d, within = config.d_model, frames
    if config.attention_window is not None:
        within = min(frames, sum(config.attention_window) + 1)
    products = 2.0 * frames * d * (4 * config.ff_dim + 7 * d)
    return config.n_layers * (products + 6.0 * frames * within * d)


def measure_loop(model: Parakeet, batch: int, repeats: int) -> Measurement:
    """The loop over the frames of `batch` windows of made sound, whose encoding is kept.

    Raises DeviceError, NonFiniteError.
    """
    config = model.runner.config
    features = NemoFeatures(open_source(made_sound(WINDOW_S)), config.n_mels)
    mel = features.rows(0, features.frames)
    inputs = [EncoderInput(mel, config.attention_window) for _ in range(batch)]
    found = decode(model.engine, inputs)
    runs = time_runs(partial(decode, model.engine, inputs), repeats)
    plan = model.engine.runner.executor(None).step_plan(model.runner.backend.bucket_rows(batch), ())
    return Measurement(
        case="loop",
        per="batch",
        batch=batch,
        times_ms=runs,
        audio_s=batch * WINDOW_S,
        dtype=dtype_name(model.runner.encoder.w.blocks[0].self_attn.linear_out.weight.dtype),
        details={
            "labels": len(found[0].emissions),
            "decisions": len(found[0].decisions),
            "dispatches": len(getattr(plan, "dispatches", ())),
        },
    )


def decode(
    engine: Engine[ParakeetRunner],
    inputs: Sequence[EncoderInput],
    context_graph: ContextGraph | None = None,
) -> list[Hypothesis]:
    """Decode inputs side by side."""
    chunks = [Chunk(each, context_graph=context_graph) for each in inputs]
    for chunk in chunks:
        engine.submit(chunk)
    return [chunk.wait() for chunk in chunks]


def measure_recording(model: Parakeet, settings: BenchSettings) -> Measurement:
    """A recording from samples to text, in batches."""
    work = partial(model.transcribe, made_sound(settings.seconds), vad_filter=False)
    work()
    runs = [time_once(work)[0] for _ in range(max(1, settings.repeats // 3))]
    return Measurement(
        case="recording",
        per="recording",
        batch=model.runner.encode_batch,
        times_ms=runs,
        audio_s=settings.seconds,
        dtype=dtype_name(model.runner.encoder.w.blocks[0].self_attn.linear_out.weight.dtype),
        details={"audio_s": settings.seconds},
    )
