"""What `oscine bench` measures of a Whisper: encoder, decoder steps, and a whole recording."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from oscine.bench import (
    BenchSettings,
    Measurement,
    made_sound,
    tensor_bytes,
    time_once,
    time_runs,
    time_steps,
)
from oscine.dtypes import dtype_name
from oscine.engine.runner import BatchEntry
from oscine.engine.sequence import EncoderInput
from oscine.errors import DeviceMemoryError, NonFiniteError
from oscine.models.whisper.config import WhisperConfig
from oscine.models.whisper.executors import STEPS_PER_POLL, DecodingExecutor, pack_params
from oscine.models.whisper.pipeline import Whisper
from oscine.models.whisper.runner import WhisperRunner
from oscine.models.whisper.sequences import DecodingRequest, DecodingSequence

PROMPT = (1, 2, 3, 4)  # any tokens do: nothing depends on their meaning
MAX_BURSTS = 8  # of a run
TOKENS = 90  # of a window of the recording, as of fluent speech


def bench(model: Whisper, settings: BenchSettings) -> Iterator[Measurement]:
    """Yield the measurements of a model. Raises DeviceError, NonFiniteError."""
    call = model.engine.call
    has_decoder = model.tokenizer is not None
    for count in sorted({1, model.runner.encode_batch} if has_decoder else {1}):
        yield call(partial(measure_encoder, count=count, repeats=settings.repeats))
    if not has_decoder:
        return
    for batch in settings.batches:
        try:
            yield call(partial(measure_steps, batch=batch, repeats=settings.repeats))
        except DeviceMemoryError:
            break
    yield measure_recording(model, settings)


# -- encoder ----------------------------------------------------------------------------------


def measure_encoder(runner: WhisperRunner, count: int, repeats: int) -> Measurement:
    """`count` windows in one pass: upload of the mel, encoder, cross keys and values, wait."""
    config = runner.config
    mel = np.random.default_rng(1).standard_normal((config.window_frames, config.n_mels))
    mels, cross_kv = [mel.astype(np.float32)] * count, list[Any]()
    if config.n_vocab:
        runner.reserve(1, count)
        cross_kv = runner.memory.cross_kv

    def encode() -> None:
        runner.encoder.encode(mels, range(count), cross_kv)
        runner.backend.wait()

    return Measurement(
        case="encoder",
        per="window",
        batch=count,
        times_ms=[spent / count for spent in time_runs(encode, repeats)],
        flop=encoder_flop(config),
        dtype=dtype_name(runner.encoder.w.blocks[0].fc1.weight.dtype),
        audio_s=config.window_frames / 100,
    )


def encoder_flop(config: WhisperConfig) -> float:
    """Floating-point operations of a window: encoder, and the decoder's cross keys and values."""
    d, s = config.n_audio_state, config.n_audio_ctx
    blocks = config.n_audio_layer * (24.0 * d * d * s + 4.0 * s * s * d)
    stem = 2.0 * 3 * d * (2 * s * config.n_mels + s * d)
    cross_kv = config.n_text_layer * 4.0 * d * d * s if config.n_vocab else 0.0
    return blocks + stem + cross_kv


# -- decoder steps ----------------------------------------------------------------------------


class StepBench:
    """Windows that are decoded side by side from a prompt, and that nothing ends.

    Its cross keys and values are noise. Raises DeviceMemoryError where there is no room.
    """

    def __init__(self, runner: WhisperRunner, batch: int) -> None:
        self.runner, config = runner, runner.config
        self.executor: DecodingExecutor = runner.executor(("decode", 1, 0))
        v = config.n_vocab
        self.bursts = max(1, min(MAX_BURSTS, (config.n_text_ctx - 8) // STEPS_PER_POLL))
        request = DecodingRequest(
            PROMPT, 0, (v - 1,), (), v - 1, v, 5, 6, False, None, config.n_text_ctx - len(PROMPT)
        )  # fmt: skip
        runner.reserve(batch, batch)
        fill_cross_kv(runner)
        audio = EncoderInput(np.zeros((config.window_frames, config.n_mels), np.float32))
        self.entries = [
            BatchEntry(DecodingSequence(audio, request), (n,), n, n) for n in range(batch)
        ]
        self.rows = runner.backend.bucket_rows(batch)
        self.state = runner.backend.view(self.executor.rows, (batch,))
        self.step = self.executor.step_plan(self.rows, self.entries)
        self.params = pack_params(request, v, 0)
        self.params["repeat_limit"] = 0
        self.params = self.params.repeat(batch)

    def prefill(self) -> None:
        """Start every window from its prompt again."""
        self.executor.stop_rows(range(len(self.entries), self.rows))
        for start in range(0, len(self.entries), self.executor.prefill_batch):
            self.executor.start(self.entries[start : start + self.executor.prefill_batch])
        self.runner.backend.write(self.runner.memory.params, self.params)

    def time(self, repeats: int) -> list[float]:
        """Milliseconds a step, as time_steps; raises NonFiniteError where steps ended early."""
        backend = self.runner.backend
        state = self.executor.outputs(self.rows, self.entries)
        times = time_steps(
            backend, self.step, state, self.prefill, repeats,
            bursts=self.bursts, steps_per_burst=STEPS_PER_POLL,
        )  # fmt: skip
        rows = backend.read(self.state)
        self.executor.stop_rows(range(len(self.entries)))
        if (rows["count"] != 1 + self.bursts * STEPS_PER_POLL).any():
            raise NonFiniteError.of_network("logits", backend.name)
        return times

    @property
    def mean_length(self) -> float:
        """Positions in a row's key-value cache, on average over the timed steps."""
        return len(PROMPT) + self.bursts * STEPS_PER_POLL / 2


def fill_cross_kv(runner: WhisperRunner) -> None:
    """Write noise to the cross keys and values of every encoder slot."""
    noise = np.random.default_rng(0).standard_normal(1 << 20, np.float32)
    for tensor in runner.memory.cross_kv:
        runner.backend.write(tensor, np.resize(noise.astype(tensor.dtype), tensor.shape))


def measure_steps(runner: WhisperRunner, batch: int, repeats: int) -> Measurement:
    """One token of each of `batch` windows. Raises DeviceMemoryError where there is no room."""
    steps = StepBench(runner, batch)
    return Measurement(
        case="step",
        per="step",
        batch=batch,
        times_ms=steps.time(repeats),
        nbytes=step_bytes(runner, batch, steps.mean_length),
        dtype=dtype_name(runner.decoder.token_embedding.dtype),
        details={"dispatches": len(getattr(steps.step, "dispatches", ()))},
    )


def step_bytes(runner: WhisperRunner, batch: int, mean_length: float) -> float:
    """Bytes that a step reads: weights once, and the keys and values of every row.

    `mean_length`: positions in a row's own cache.
    """
    memory, w = runner.memory, runner.decoder
    weights = tensor_bytes(w) - tensor_bytes(w.positional_embedding)
    weights -= sum(tensor_bytes(block.cross_kv) for block in w.blocks)
    own = sum(tensor_bytes((cache.keys, cache.values)) for cache in memory.caches)
    own_share = batch * mean_length / (memory.slots * memory.config.n_text_ctx)
    return weights + batch * memory.encoder_slot_bytes + own * own_share


# -- a whole recording ------------------------------------------------------------------------


def measure_recording(model: Whisper, settings: BenchSettings) -> Measurement:
    """A recording from samples to text, in batches, TOKENS tokens a window at temperature 1.

    Nothing that ends a window is sampled; a window may still end in a repetition loop.
    """
    sound = made_sound(settings.seconds)
    info = model._require_text_decoder()
    options: dict[str, Any] = recording_options(info.special_tokens.eot, info.config)
    work = partial(model.transcribe, sound, batch_size=batch_size(model), **options)
    work()
    runs = [time_once(work) for _ in range(max(1, settings.repeats // 3))]
    tokens = [sum(len(segment.tokens) for segment in found.segments) for _, found in runs]
    return Measurement(
        case="recording",
        per="recording",
        batch=batch_size(model),
        times_ms=[spent for spent, _ in runs],
        audio_s=settings.seconds,
        dtype=dtype_name(model.runner.decoder.token_embedding.dtype),
        details={"audio_s": settings.seconds, "tokens": float(np.median(tokens))},
    )


def batch_size(model: Whisper) -> int:
    """Windows of a recording that are decoded side by side."""
    return model.runner.max_batch_size(1)


def recording_options(eot: int, config: WhisperConfig, tokens: int = TOKENS) -> dict[str, Any]:
    """Options with which every window is decoded once, to `tokens` tokens of text."""
    return {
        "language": "en",
        "temperature": 1.0,
        "best_of": 1,
        "compression_ratio_threshold": None,
        "logprob_threshold": None,
        "no_speech_threshold": None,
        "without_timestamps": True,
        "suppress_tokens": range(eot, config.n_vocab),
        "suppress_blank": False,
        "sample_len": min(tokens, config.n_text_ctx // 2),
        "vad_filter": False,
        "seed": 0,
    }
