"""The codec on a device: plans for a few chunk sizes, and the streaming states of voices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.errors import DeviceError, NonFiniteError, UsageError
from oscine.models.qwen3_tts import codec
from oscine.models.qwen3_tts.codec import StreamingState
from oscine.models.qwen3_tts.codec_weights import CodecDecoderWeights, CodecEncoderWeights
from oscine.models.qwen3_tts.config import CodecConfig, TransformerConfig
from oscine.models.qwen3_tts.reference_audio import check_reference_audio
from oscine.models.qwen3_tts.rope import rope_table
from oscine.models.qwen3_tts.weights import check_finite
from oscine.ops import TALKER_STATE, Backend, KVCache, Plan, RopeTable, TalkerState, Tensor
from oscine.types import Audio

#: Frames of a chunk. Plans are recorded for these sizes; any number of frames is split into them. A
#: voice that is played while it is generated uses small chunks, which grow with the audio that is
#: buffered; a whole text uses large ones.
CHUNK_SIZES = (64, 16, 12, 8, 4, 2, 1)
MAX_BATCH_FRAMES = 192  # of all voices in a chunk, which bounds the memory of intermediates
INITIAL_POSITIONS = 1024  # positions of the first RoPE table: 82 s of speech
ENCODER_CHUNK_FRAMES = 25  # 2 s
INITIAL_ENCODER_ROWS = 512  # of the encoder's KV cache: 20 s
UPSTREAM_CHUNK_SIZE, UPSTREAM_LEFT_CONTEXT_SIZE = (
    300,
    25,
)  # frames; chunked_decode's defaults upstream

Samples = NDArray[np.float32]


def max_batch_frames(config: CodecConfig, max_tensor_bytes: int) -> int:
    """Frames of all voices in a chunk: MAX_BATCH_FRAMES, or fewer if a tensor would be too large.

    The last blocks have the largest tensors; a tenth is left for the rows before them.
    """
    frame = (
        4 * config.hop_length * (config.decoder.decoder_dim >> len(config.decoder.upsample_rates))
    )
    return max(1, min(MAX_BATCH_FRAMES, max_tensor_bytes * 9 // (10 * frame)))


def check_waveform(wave: Samples) -> Samples:
    """A voice's samples, clamped to [-1, 1]. Raises NonFiniteError for NaN or infinity."""
    if not np.isfinite(wave).all():
        raise NonFiniteError("the codec's waveform is not finite; the weights are damaged")
    return np.clip(wave, -1.0, 1.0)


class StatePool:
    """The streaming states of `slots` voices, allocated on first use; shapes:
    codec.StreamingState.
    """

    def __init__(self, backend: Backend, stack: TransformerConfig) -> None:
        self.backend, self.stack = backend, stack
        self.slots = 1
        self.conv_states: dict[str, Tensor] = {}
        self.kv_caches: tuple[KVCache, ...] = ()
        self.rope: RopeTable | None = None

    def conv_state(self, name: str, count: int, width: int) -> Tensor:
        """The buffer [slots, count, width] of the rows before a convolution."""
        if name not in self.conv_states:
            self.conv_states[name] = self.backend.zeros((self.slots, count, width))
        return self.conv_states[name]

    def allocate_kv_caches(self, keys: int) -> None:
        """Allocate empty KV caches of `keys` positions a slot; recorded plans are then out
        of date.
        """
        old, self.kv_caches = self.kv_caches, ()  # also if the allocation below fails
        self.backend.release(*(slot for c in old for slot in (c.keys, c.values)))
        shape = self.slots, keys, self.stack.kv_size
        self.kv_caches = tuple(
            KVCache(self.backend.zeros(shape), self.backend.zeros(shape))
            for _ in range(self.stack.num_hidden_layers)
        )

    def set_max_positions(self, positions: int) -> None:
        """Upload RoPE tables for that many positions; recorded plans are then out of date."""
        tables = rope_table(positions, self.stack.head_dim, self.stack.rope_theta)
        self.rope = RopeTable(self.backend.upload(tables.cos), self.backend.upload(tables.sin))

    def resize(self, slots: int) -> None:
        """Change the number of slots, keeping the first ones; recorded plans are then out of date.

        Raises DeviceMemoryError or MemoryError if there is not enough memory; nothing is changed
        then.
        """
        old, new = self.tensors(), list[Tensor]()
        try:
            for tensor in old:
                new.append(self.backend.zeros((slots, *tensor.shape[1:])))
        except (DeviceError, MemoryError):
            self.backend.release(*new)
            raise
        for source, target in zip(old, new, strict=True):
            kept = range(min(slots, self.slots))
            self.backend.copy(source, target, [(slot, slot) for slot in kept])
        self.backend.release(*old)
        caches = new[len(self.conv_states) :]
        self.conv_states = dict(zip(self.conv_states, new, strict=False))
        self.kv_caches = tuple(
            KVCache(*pair) for pair in zip(caches[::2], caches[1::2], strict=True)
        )
        self.slots = slots

    def copy(self, source: int, target: int) -> None:
        """Copy one voice's state to another slot, on the device."""
        for tensor in self.tensors():
            self.backend.copy(tensor, tensor, [(source, target)])

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that has a slot for each voice."""
        caches = (tensor for cache in self.kv_caches for tensor in (cache.keys, cache.values))
        return *self.conv_states.values(), *caches

    def bytes_per_slot(self) -> int:
        """Bytes of one voice's state, once a plan is recorded; all of it is float32."""
        return sum(4 * prod(tensor.shape[1:]) for tensor in self.tensors())

    def streaming_state(self, rows: Tensor) -> StreamingState:
        """The state that codec.decode and codec.encode take, for the voices in `rows`."""
        assert self.rope is not None
        unused = self.backend.zeros((1, 1, 1), np.uint32)
        return StreamingState(
            self.conv_state, self.kv_caches, self.rope, TalkerState(rows, unused, unused)
        )


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """A recorded plan for B voices of n frames each, with its inputs and output."""

    plan: Plan
    state: Tensor  # [B] of TALKER_STATE
    codes: Tensor  # [B·n, G]
    wave: Tensor  # [B·n·hop, 1]


class CodecDecoder:
    """Codes to waveform, for many voices, each at a position of its own.

    `acquire_slot` gives a voice a slot and `release_slot` frees it; slots are added by need. A
    voice's samples do not depend on the chunk sizes or on the other voices of a batch. `positions`:
    frames that each slot has decoded since it was acquired or reset. Raises DeviceError if the
    backend cannot hold or compute a codec of these sizes.
    """

    def __init__(
        self,
        weights: CodecDecoderWeights,
        config: CodecConfig,
        backend: Backend,
        chunk_sizes: Sequence[int] = CHUNK_SIZES,
    ) -> None:
        self.config, self.backend = config, backend
        self.chunk_sizes = sorted(chunk_sizes, reverse=True)
        if self.chunk_sizes[-1] != 1:
            raise ValueError("chunk_sizes must include 1")
        self.weights: CodecDecoderWeights = ops.upload(backend, weights)
        self.states = StatePool(backend, config.decoder.transformer)
        self.states.allocate_kv_caches(config.decoder.sliding_window - 1 + self.chunk_sizes[0])
        self.max_frames = max_batch_frames(config, backend.memory_limits()[0])
        self.recorded: dict[tuple[int, int], DecodePlan] = {}
        self.positions, self.free_slots = [0], [0]
        self.set_max_positions(INITIAL_POSITIONS)

    # -- voices -------------------------------------------------------------------------------

    def acquire_slot(self) -> int:
        """A slot for a new voice, at position 0."""
        if not self.free_slots:
            self.reserve(2 * self.states.slots)
        slot = self.free_slots.pop()
        self.reset(slot)
        return slot

    def reserve(self, slots: int) -> None:
        """Allocate that many slots in all. Raises DeviceMemoryError, after which nothing is
        changed.
        """
        before = self.states.slots
        if slots > before:
            self.states.resize(slots)
            self.positions += [0] * (slots - before)
            self.free_slots += reversed(range(before, slots))
            self.recorded.clear()

    def release(self) -> None:
        """Free the memory of all slots but one; no slot may be in use."""
        if self.states.slots > 1:
            self.states.resize(1)
            self.positions, self.free_slots = [0], [0]
            self.rerecord_plans(voices=1)  # so that the next voice does not wait for it

    def release_slot(self, slot: int) -> None:
        """Free a slot; chunks in flight keep the data that they need."""
        self.free_slots.append(slot)

    def reset(self, slot: int) -> None:
        """Return a slot to position 0, where nothing of its state is read."""
        self.positions[slot] = 0

    def copy(self, source: int, target: int) -> None:
        """Copy the state of the voice in `source` to `target`, which continues from there."""
        self.states.copy(source, target)
        self.positions[target] = self.positions[source]

    def decode(self, slots: Sequence[int], codes: Sequence[NDArray[Any]]) -> Samples:
        """Decode the next frames of several voices.

        codes [B, n, G] of any integer type -> float32 [B, n·hop] in [-1, 1].

        Raises UsageError for codes of another shape or range, NonFiniteError for a waveform that is
        not finite, ValueError for a slot that is given twice.
        """
        return np.stack([check_waveform(wave) for wave in self.submit(slots, codes)()])

    def submit(self, slots: Sequence[int], codes: Sequence[NDArray[Any]]) -> Callable[[], Samples]:
        """Start decoding; the returned function waits for the samples and is called once.

        The samples [B, n·hop] are not checked or clamped: `check_waveform` does that for each
        voice. Codes and errors: `decode`.
        """
        pieces = [self.backend.snapshot(call.wave) for call in self.run_chunks(slots, codes)]

        def wait() -> Samples:
            voices = self.backend.bucket_rows(len(slots))
            waves = [piece()[0].reshape(voices, -1)[: len(slots)] for piece in pieces]
            return np.concatenate(waves, axis=1)

        return wait

    def warm_up(self, slots: Sequence[int], codes: Sequence[NDArray[Any]]) -> None:
        """Advance voices past frames whose audio is discarded, such as a reference's."""
        for _ in self.run_chunks(slots, codes):
            pass

    # -- calls --------------------------------------------------------------------------------

    def run_chunks(
        self, slots: Sequence[int], codes: Sequence[NDArray[Any]]
    ) -> Iterator[DecodePlan]:
        """Split frames into chunks and run them; yields the plan of each chunk once it is
        submitted.
        """
        stacked = np.stack([self.check_codes(own) for own in codes])
        (count, frames, _), done = stacked.shape, 0
        if len(set(slots)) != count:
            raise ValueError(f"{count} voices need {count} different slots, not {list(slots)}")
        last_position = max(self.positions[slot] for slot in slots) + frames
        if last_position > self.max_positions:
            self.set_max_positions(2 * last_position)
        voices = self.backend.bucket_rows(count)
        while done < frames:
            limit = min(frames - done, max(1, self.max_frames // voices))
            size = next(n for n in self.chunk_sizes if n <= limit)
            call = self.plan(size, voices)
            self.backend.write(call.state, self.state_rows(slots, size, voices))
            self.backend.write(call.codes, stacked[:, done : done + size])
            call.plan.run()
            done += size
            for slot in slots:
                self.positions[slot] += size
            yield call

    def state_rows(self, slots: Sequence[int], length: int, voices: int) -> NDArray[Any]:
        """TALKER_STATE rows [voices] with slots and positions; rows beyond `slots` are padding,
        marked done.
        """
        rows = np.zeros(voices, TALKER_STATE)
        rows["done"], rows["length"] = 1, length
        rows["done"][: len(slots)], rows["slot"][: len(slots)] = 0, slots
        rows["position"][: len(slots)] = [self.positions[slot] for slot in slots]
        return rows

    def check_codes(self, codes: NDArray[Any]) -> NDArray[np.uint32]:
        """A voice's codes as contiguous uint32 [n, G]. Raises UsageError for another shape or
        range.
        """
        codes, groups, entries = (
            np.asarray(codes),
            self.config.num_code_groups,
            self.config.codebook_size,
        )
        if codes.ndim != 2 or codes.shape[1] != groups or not len(codes):
            raise UsageError(
                f"codes must be [frames, {groups}], at least one frame, not {list(codes.shape)}"
            )
        if codes.dtype.kind not in "iu":
            raise UsageError(f"codes must be whole numbers, not {codes.dtype}")
        low, high = int(codes.min()), int(codes.max())
        if low < 0 or high >= entries:
            wrong = low if low < 0 else high
            raise UsageError(f"codes must be 0 to {entries - 1}, not {wrong}")
        return np.ascontiguousarray(codes, np.uint32)

    def record_plans(self, *lengths: int, voices: int = 1) -> None:
        """Record plans while loading, so that the first call does not wait for it."""
        for length in lengths:
            self.plan(length, voices)

    def plan(self, length: int, voices: int = 1) -> DecodePlan:
        """The plan for `voices` voices of `length` frames each, recorded on first use."""
        if (length, voices) not in self.recorded:
            frames, slot = voices * length, self.backend.zeros
            state, codes = (
                slot((voices,), TALKER_STATE),
                slot((frames, self.config.num_code_groups), np.uint32),
            )
            wave = slot((frames * self.config.hop_length, 1))
            self.recorded[length, voices] = DecodePlan(
                self.record(state, codes, wave), state, codes, wave
            )
        return self.recorded[length, voices]

    def record(self, state: Tensor, codes: Tensor, wave: Tensor) -> Plan:
        """Record a plan that decodes `codes` into `wave`."""
        past, config = self.states.streaming_state(state), self.config.decoder

        def trace() -> None:
            found = codec.decode(self.backend, self.weights, config, past, codes)
            self.backend.store(found, wave)

        return self.backend.record(trace, name="codec")

    def set_max_positions(self, positions: int) -> None:
        """Allow positions up to that number since the reset; states are kept."""
        self.states.set_max_positions(positions)
        self.max_positions = positions
        self.rerecord_plans()

    def rerecord_plans(self, voices: int | None = None) -> None:
        """Record the existing plans again over the current buffers; `voices`: only plans for that
        many.
        """
        calls = list(self.recorded)
        self.recorded.clear()
        for length, count in calls:
            if voices in (None, count):
                self.plan(length, count)


class CodecStream:
    """One voice of a CodecDecoder on its own: decodes codes in any number of calls.

    `position` frames have been decoded since `reset`.
    """

    def __init__(self, decoder: CodecDecoder) -> None:
        self.decoder, self.config = decoder, decoder.config
        self.slot = decoder.acquire_slot()

    @property
    def position(self) -> int:
        """Frames decoded since the reset."""
        return self.decoder.positions[self.slot]

    def reset(self) -> None:
        """Return to position 0."""
        self.decoder.reset(self.slot)

    def decode(self, codes: NDArray[Any]) -> Samples:
        """Decode the next frames: codes [n, G] of any integer type -> float32 [n·hop] in [-1, 1].

        Raises UsageError for codes of another shape or range, NonFiniteError for a waveform that is
        not finite.
        """
        return self.submit(codes)()

    def submit(self, codes: NDArray[Any]) -> Callable[[], Samples]:
        """Start decoding codes [n, G]; the returned function waits for the samples and is called
        once.
        """
        wait = self.decoder.submit([self.slot], [codes])
        return lambda: check_waveform(wait()[0])

    def warm_up(self, codes: NDArray[Any]) -> None:
        """Advance past the frames of a reference, whose audio is discarded."""
        self.decoder.warm_up([self.slot], [codes])

    def chunked_decode(
        self,
        codes: NDArray[Any],
        chunk_size: int = UPSTREAM_CHUNK_SIZE,
        left_context_size: int = UPSTREAM_LEFT_CONTEXT_SIZE,
    ) -> Samples:
        """Decode as upstream's chunked_decode: `chunk_size` frames after `left_context_size`
        frames.

        It equals `decode` for at most `chunk_size` frames. It resets first.
        """
        hop, pieces = self.config.hop_length, []
        for start in range(0, max(1, len(codes)), chunk_size):
            before = min(left_context_size, start)
            self.reset()
            wave = self.decode(codes[start - before : start + chunk_size])
            pieces.append(wave[before * hop :])
        return np.concatenate(pieces)

    def save_state(self) -> int:
        """A slot with a copy of this stream's state, until `free_state` frees it."""
        slot = self.decoder.acquire_slot()
        self.decoder.copy(self.slot, slot)
        return slot

    def restore_state(self, slot: int) -> None:
        """Continue from a saved state, any number of times."""
        self.decoder.copy(slot, self.slot)

    def free_state(self, slot: int) -> None:
        """Free a saved state."""
        self.decoder.release_slot(slot)


class CodecEncoder:
    """Waveform to codes, for the reference of a cloned voice.

    Raises DeviceError if the backend cannot hold or compute a codec of these sizes, NonFiniteError
    for weights that are not finite.
    """

    def __init__(
        self,
        weights: CodecEncoderWeights,
        config: CodecConfig,
        backend: Backend,
        frames: int = ENCODER_CHUNK_FRAMES,
    ) -> None:
        check_finite(weights, "the codec's encoder")
        self.config, self.backend = config, backend
        self.weights: CodecEncoderWeights = ops.upload(backend, weights)
        self.states = StatePool(backend, config.encoder.transformer)
        self.row_samples = prod(config.encoder.strides)  # samples of a row, half a frame
        self.chunk_samples = frames * config.hop_length  # samples of a call
        self.max_rows = 0
        self.full_chunk: EncodePlan | None = None

    def encode(self, samples: Samples | Audio) -> NDArray[np.uint32]:
        """Encode mono samples [n] at the codec's sample rate to codes [ceil(n / hop), G].

        The last frame is padded with zeros, as upstream does. Raises UsageError for an array that
        is not one-dimensional or is empty, or audio of another rate; NonFiniteError for NaN or
        infinity in the samples or in the latents; DeviceMemoryError for a recording that is too
        long.
        """
        samples = check_reference_audio(samples, self.config.sample_rate, 1)
        count = -(-len(samples) // self.row_samples)
        if count > self.max_rows:
            self.reserve(count)
        pieces = []
        for start in range(0, len(samples), self.chunk_samples):
            part = samples[start : start + self.chunk_samples]
            pieces.append(self.plan(len(part)).run(part, start // self.row_samples))
        rows = np.concatenate([piece()[0] for piece in pieces])
        if not np.isfinite(rows).all():
            raise NonFiniteError("the codec's latents are not finite; its weights are damaged")
        return self.quantize(rows)

    def reserve(self, count: int) -> None:
        """Allocate KV caches and RoPE tables for `count` rows; plans are recorded again."""
        self.max_rows, self.full_chunk = 0, None
        rows = max(INITIAL_ENCODER_ROWS, 1 << (count - 1).bit_length())
        self.states.allocate_kv_caches(rows)
        self.states.set_max_positions(rows)
        self.max_rows = rows

    def plan(self, length: int) -> EncodePlan:
        """The plan for `length` samples: a full chunk's is kept, that of the last chunk is not."""
        if length < self.chunk_samples:
            return EncodePlan(self, length)
        if self.full_chunk is None:
            self.full_chunk = EncodePlan(self, length)
        return self.full_chunk

    def quantize(self, rows: NDArray[np.float32]) -> NDArray[np.uint32]:
        """Quantize all latents [T, d] to codes [ceil(T / 2), G]."""
        latents = self.backend.zeros(rows.shape)
        codes = self.backend.zeros((-(-len(rows) // 2), self.config.num_code_groups), np.uint32)
        self.backend.write(latents, rows)

        def trace() -> None:
            codec.rvq_encode(self.backend, self.weights, latents, codes)

        self.backend.record(trace, name="quantise").run()
        found: NDArray[np.uint32] = self.backend.read(codes)
        self.backend.release(latents, codes)
        return found


class EncodePlan:
    """A recorded plan for a chunk of `length` samples, up to the transformer's last layer."""

    def __init__(self, encoder: CodecEncoder, length: int) -> None:
        self.encoder, backend = encoder, encoder.backend
        w, config = encoder.weights, encoder.config.encoder
        count = -(-length // encoder.row_samples)
        self.samples = backend.zeros((length, w.conv_in.weight.shape[-1]))
        self.rows = backend.zeros((count, config.transformer.hidden_size))
        self.state = backend.zeros((1,), TALKER_STATE)
        streaming_state = encoder.states.streaming_state(self.state)

        def trace() -> None:
            latents = codec.encode(backend, w, config, streaming_state, self.samples)
            backend.store(latents, self.rows)

        self.plan = backend.record(trace, name="listen")

    def run(self, samples: Samples, position: int) -> Callable[[], tuple[NDArray[Any], ...]]:
        """Start encoding; the returned function waits for the latents [count, d]."""
        backend = self.encoder.backend
        columns = np.zeros(self.samples.shape, np.float32)
        columns[:, 0] = samples
        backend.write(self.samples, columns)
        state = np.zeros(1, TALKER_STATE)
        state["position"], state["length"] = position, self.rows.shape[0]
        backend.write(self.state, state)
        self.plan.run()
        return backend.snapshot(self.rows)
