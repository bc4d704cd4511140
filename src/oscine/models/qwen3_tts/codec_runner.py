"""The resident codec: plans for a few sizes of calls, and the memory of voices that joins calls."""

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
from oscine.ops import TALKER_STATE, Backend, Cache, Plan, RopeTable, TalkerState, Tensor
from oscine.types import Audio

#: Frames of a call, for which there are plans; any number is cut into these. A voice that is played
#: while it is made takes the small ones, more frames the longer its audio lasts that is still to be
#: played; a whole text takes the large ones.
CHUNK_SIZES = (64, 16, 12, 8, 4, 2, 1)
MAX_BATCH_FRAMES = 192  # of all voices in a call, which bounds the memory that its stages take
INITIAL_POSITIONS = 1024  # positions that tables are first made for: 82 s of speech
ENCODER_CHUNK_FRAMES = 25  # of a call of the encoder: 2 s
INITIAL_ENCODER_ROWS = 512  # of the encoder's transformer that there is room for at first: 20 s
UPSTREAM_CHUNK_SIZE, UPSTREAM_LEFT_CONTEXT_SIZE = (
    300,
    25,
)  # frames that upstream decodes at once, and of context before them

Samples = NDArray[np.float32]


def max_batch_frames(config: CodecConfig, max_tensor_bytes: int) -> int:
    """Frames of all voices in a call: MOST_FRAMES, fewer where a tensor would be too large.

    The last stages are the widest; a tenth is left for the rows before them.
    """
    frame = (
        4 * config.hop_length * (config.decoder.decoder_dim >> len(config.decoder.upsample_rates))
    )
    return max(1, min(MAX_BATCH_FRAMES, max_tensor_bytes * 9 // (10 * frame)))


def check_waveform(wave: Samples) -> Samples:
    """A voice's samples in [-1, 1]. Raises NonFiniteError for non-finite values."""
    if not np.isfinite(wave).all():
        raise NonFiniteError("the codec's waveform is not finite; the weights are damaged")
    return np.clip(wave, -1.0, 1.0)


class StatePool:
    """What causal stages keep of `slots` voices, made on first use; shapes: codec.Past."""

    def __init__(self, backend: Backend, stack: TransformerConfig) -> None:
        self.backend, self.stack = backend, stack
        self.slots = 1
        self.conv_states: dict[str, Tensor] = {}
        self.kv_caches: tuple[Cache, ...] = ()
        self.rope: RopeTable | None = None

    def conv_state(self, name: str, count: int, width: int) -> Tensor:
        """The rows before a stage."""
        if name not in self.conv_states:
            self.conv_states[name] = self.backend.zeros((self.slots, count, width))
        return self.conv_states[name]

    def allocate_kv_caches(self, keys: int) -> None:
        """Room for that many keys of each voice, all of them new; plans are then out of date."""
        old, self.kv_caches = self.kv_caches, ()  # also where there turns out to be no room
        self.backend.release(*(slot for c in old for slot in (c.keys, c.values)))
        shape = self.slots, keys, self.stack.kv_size
        self.kv_caches = tuple(
            Cache(self.backend.zeros(shape), self.backend.zeros(shape))
            for _ in range(self.stack.num_hidden_layers)
        )

    def set_max_positions(self, positions: int) -> None:
        """Tables for that many positions; plans are then out of date."""
        tables = rope_table(positions, self.stack.head_dim, self.stack.rope_theta)
        self.rope = RopeTable(self.backend.upload(tables.cos), self.backend.upload(tables.sin))

    def resize(self, slots: int) -> None:
        """Places for that many voices; the first of them stay; plans are then out of date.

        Raises DeviceMemoryError or MemoryError where there is no room; all is then as before.
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
        self.kv_caches = tuple(Cache(*pair) for pair in zip(caches[::2], caches[1::2], strict=True))
        self.slots = slots

    def copy(self, source: int, target: int) -> None:
        """All of one voice to another place, on the device."""
        for tensor in self.tensors():
            self.backend.copy(tensor, tensor, [(source, target)])

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that voices have a place in."""
        caches = (tensor for cache in self.kv_caches for tensor in (cache.keys, cache.values))
        return *self.conv_states.values(), *caches

    def bytes_per_slot(self) -> int:
        """What a voice takes, once a plan is recorded; all of it is float32."""
        return sum(4 * prod(tensor.shape[1:]) for tensor in self.tensors())

    def streaming_state(self, rows: Tensor) -> StreamingState:
        """As the forward takes it, for voices whose state is `rows`."""
        assert self.rope is not None
        unused = self.backend.zeros((1, 1, 1), np.uint32)
        return StreamingState(
            self.conv_state, self.kv_caches, self.rope, TalkerState(rows, unused, unused)
        )


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """A plan for B voices of n frames each, and what goes in and out."""

    plan: Plan
    state: Tensor  # [B] of TALKER_STATE
    codes: Tensor  # [B·n, G]
    wave: Tensor  # [B·n·hop, 1]


class CodecDecoder:
    """Codes to waveform, for many voices, each at a position of its own.

    A voice has a slot: `take` finds one and `free` gives it back; there are as many as are needed.
    Frame by frame or many at once, alone or beside others: its samples are the same. `positions`:
    frames that each slot has had since it was taken or reset. Raises DeviceError if the backend
    cannot hold or compute a codec of these sizes.
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
            raise ValueError("calls must include one frame")
        self.weights: CodecDecoderWeights = ops.upload(backend, weights)
        self.states = StatePool(backend, config.decoder.transformer)
        self.states.allocate_kv_caches(config.decoder.sliding_window - 1 + self.chunk_sizes[0])
        self.max_frames = max_batch_frames(config, backend.memory_limits()[0])
        self.recorded: dict[tuple[int, int], DecodePlan] = {}
        self.positions, self.free_slots = [0], [0]
        self.set_max_positions(INITIAL_POSITIONS)

    # -- voices -------------------------------------------------------------------------------

    def acquire_slot(self) -> int:
        """A slot for one more voice, which begins in silence."""
        if not self.free_slots:
            self.reserve(2 * self.states.slots)
        slot = self.free_slots.pop()
        self.reset(slot)
        return slot

    def reserve(self, slots: int) -> None:
        """Have that many slots in all. Raises DeviceMemoryError, after which all is as before."""
        before = self.states.slots
        if slots > before:
            self.states.resize(slots)
            self.positions += [0] * (slots - before)
            self.free_slots += reversed(range(before, slots))
            self.recorded.clear()

    def release(self) -> None:
        """Give back the memory of all slots but one; no voice has any."""
        if self.states.slots > 1:
            self.states.resize(1)
            self.positions, self.free_slots = [0], [0]
            self.rerecord_plans(voices=1)  # so that the next voice need not wait for it

    def release_slot(self, slot: int) -> None:
        """Give back a slot; calls that are under way keep what they need of it."""
        self.free_slots.append(slot)

    def reset(self, slot: int) -> None:
        """Begin again, in silence: a voice at position 0 reads nothing of what its slot holds."""
        self.positions[slot] = 0

    def copy(self, source: int, target: int) -> None:
        """Let the voice in `target` continue from where the one in `source` is now."""
        self.states.copy(source, target)
        self.positions[target] = self.positions[source]

    def decode(self, slots: Sequence[int], codes: Sequence[NDArray[Any]]) -> Samples:
        """The next frames of several voices, codes [B, n, G] of any integer type -> float32
        [B, n·hop] in [-1, 1].

        Raises UsageError for codes of another shape or range, NonFiniteError for a waveform that is
        no number, ValueError for a slot that comes twice.
        """
        return np.stack([check_waveform(wave) for wave in self.submit(slots, codes)()])

    def submit(self, slots: Sequence[int], codes: Sequence[NDArray[Any]]) -> Callable[[], Samples]:
        """As decode, but only started: the returned function waits for the samples, once.

        They are as the network gives them: `checked_wave` takes those of a voice.
        """
        pieces = [self.backend.snapshot(call.wave) for call in self.run_chunks(slots, codes)]

        def wait() -> Samples:
            voices = self.backend.bucket_rows(len(slots))
            waves = [piece()[0].reshape(voices, -1)[: len(slots)] for piece in pieces]
            return np.concatenate(waves, axis=1)

        return wait

    def warm_up(self, slots: Sequence[int], codes: Sequence[NDArray[Any]]) -> None:
        """Have voices continue after frames whose audio is not wanted, such as a reference's."""
        for _ in self.run_chunks(slots, codes):
            pass

    # -- calls --------------------------------------------------------------------------------

    def run_chunks(
        self, slots: Sequence[int], codes: Sequence[NDArray[Any]]
    ) -> Iterator[DecodePlan]:
        """Run the calls that frames are cut into; yields each once its work is under way."""
        stacked = np.stack([self.check_codes(own) for own in codes])
        (count, frames, _), done = stacked.shape, 0
        if len(set(slots)) != count:
            raise ValueError(f"{count} voices need as many slots, not {list(slots)}")
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
        """Where the voices are, of TALKER_STATE; the rest of the `voices` rows are void."""
        rows = np.zeros(voices, TALKER_STATE)
        rows["done"], rows["length"] = 1, length
        rows["done"][: len(slots)], rows["slot"][: len(slots)] = 0, slots
        rows["position"][: len(slots)] = [self.positions[slot] for slot in slots]
        return rows

    def check_codes(self, codes: NDArray[Any]) -> NDArray[np.uint32]:
        """A voice's codes as plans take them. Raises UsageError."""
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
        """Record plans now, while loading, so that the first call need not."""
        for length in lengths:
            self.plan(length, voices)

    def plan(self, length: int, voices: int = 1) -> DecodePlan:
        """The plan of that many frames of that many voices, recorded on first use."""
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
        """A plan from codes to wave."""
        past, config = self.states.streaming_state(state), self.config.decoder

        def trace() -> None:
            found = codec.decode(self.backend, self.weights, config, past, codes)
            self.backend.store(found, wave)

        return self.backend.record(trace, name="codec")

    def set_max_positions(self, positions: int) -> None:
        """Go up to that many frames since the reset; what is past stays."""
        self.states.set_max_positions(positions)
        self.max_positions = positions
        self.rerecord_plans()

    def rerecord_plans(self, voices: int | None = None) -> None:
        """The plans there are, over other memory; `voices`: only those of calls for that many."""
        calls = list(self.recorded)
        self.recorded.clear()
        for length, count in calls:
            if voices in (None, count):
                self.plan(length, count)


class CodecStream:
    """One voice of a CodecDecoder, by itself: codes to waveform, as often as one likes.

    `position` frames have been decoded since `reset`.
    """

    def __init__(self, decoder: CodecDecoder) -> None:
        self.decoder, self.config = decoder, decoder.config
        self.slot = decoder.acquire_slot()

    @property
    def position(self) -> int:
        """Frames since the reset."""
        return self.decoder.positions[self.slot]

    def reset(self) -> None:
        """Begin again, in silence."""
        self.decoder.reset(self.slot)

    def decode(self, codes: NDArray[Any]) -> Samples:
        """The next frames, codes [n, G] of any integer type -> float32 [n·hop] in [-1, 1].

        Raises UsageError for codes of another shape or range, NonFiniteError for a waveform that is
        no number.
        """
        return self.submit(codes)()

    def submit(self, codes: NDArray[Any]) -> Callable[[], Samples]:
        """As decode, but only started: the returned function waits for the samples, once."""
        wait = self.decoder.submit([self.slot], [codes])
        return lambda: check_waveform(wait()[0])

    def warm_up(self, codes: NDArray[Any]) -> None:
        """Continue after the frames of a reference, whose audio is not wanted."""
        self.decoder.warm_up([self.slot], [codes])

    def chunked_decode(
        self,
        codes: NDArray[Any],
        chunk_size: int = UPSTREAM_CHUNK_SIZE,
        left_context_size: int = UPSTREAM_LEFT_CONTEXT_SIZE,
    ) -> Samples:
        """As upstream decodes: `size` frames at once, each after only `context` frames before it.

        Equal to decode where there are at most `size` frames. Resets first.
        """
        hop, pieces = self.config.hop_length, []
        for start in range(0, max(1, len(codes)), chunk_size):
            before = min(left_context_size, start)
            self.reset()
            wave = self.decode(codes[start - before : start + chunk_size])
            pieces.append(wave[before * hop :])
        return np.concatenate(pieces)

    def save_state(self) -> int:
        """A slot that keeps where this stream is, until it is forgotten."""
        slot = self.decoder.acquire_slot()
        self.decoder.copy(self.slot, slot)
        return slot

    def restore_state(self, slot: int) -> None:
        """Continue from what `saved` keeps, as often as one likes."""
        self.decoder.copy(slot, self.slot)

    def free_state(self, slot: int) -> None:
        """Give back what `saved` keeps."""
        self.decoder.release_slot(slot)


class CodecEncoder:
    """Waveform to codes: what a cloned voice's reference becomes.

    Raises DeviceError if the backend cannot hold or compute a codec of these sizes, NonFiniteError
    for weights that are no numbers.
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
        self.row_samples = prod(config.encoder.strides)  # samples of a row of the transformer
        self.chunk_samples = frames * config.hop_length  # samples of a call
        self.max_rows = 0
        self.full_chunk: EncodePlan | None = None

    def encode(self, samples: Samples | Audio) -> NDArray[np.uint32]:
        """Mono samples [n] at the codec's rate -> codes [ceil(n / hop), G].

        A last frame that the recording does not fill is completed with zeros, as upstream has it.
        Raises UsageError for an array that is not one-dimensional or empty, or audio of another
        rate; NonFiniteError for NaN or infinity in it, or in what is made of it; DeviceMemoryError
        for a recording too long.
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
            raise NonFiniteError("the codec's encoder makes no numbers; its weights are damaged")
        return self.quantize(rows)

    def reserve(self, count: int) -> None:
        """Room for so many rows of the transformer; plans are made anew."""
        self.max_rows, self.full_chunk = 0, None
        rows = max(INITIAL_ENCODER_ROWS, 1 << (count - 1).bit_length())
        self.states.allocate_kv_caches(rows)
        self.states.set_max_positions(rows)
        self.max_rows = rows

    def plan(self, length: int) -> EncodePlan:
        """The plan of a call: that of whole calls is kept, the last one of a recording is not."""
        if length < self.chunk_samples:
            return EncodePlan(self, length)
        if self.full_chunk is None:
            self.full_chunk = EncodePlan(self, length)
        return self.full_chunk

    def quantize(self, rows: NDArray[np.float32]) -> NDArray[np.uint32]:
        """All rows of the transformer [T, d] -> codes [ceil(T / 2), G]."""
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
    """A call of the encoder over `length` samples, up to the transformer's last layer."""

    def __init__(self, encoder: CodecEncoder, length: int) -> None:
        self.encoder, backend = encoder, encoder.backend
        w, config = encoder.weights, encoder.config.encoder
        count = -(-length // encoder.row_samples)
        self.samples = backend.zeros((length, w.conv_in.weight.shape[-1]))
        self.rows = backend.zeros((count, config.transformer.hidden_size))
        self.state = backend.zeros((1,), TALKER_STATE)
        past = encoder.states.streaming_state(self.state)

        def trace() -> None:
            found = codec.encode(backend, w, config, past, self.samples)
            backend.store(found, self.rows)

        self.plan = backend.record(trace, name="listen")

    def run(self, samples: Samples, position: int) -> Callable[[], tuple[NDArray[Any], ...]]:
        """Start; the returned function waits for rows [count, d]."""
        backend = self.encoder.backend
        columns = np.zeros(self.samples.shape, np.float32)
        columns[:, 0] = samples
        backend.write(self.samples, columns)
        state = np.zeros(1, TALKER_STATE)
        state["position"], state["length"] = position, self.rows.shape[0]
        backend.write(self.state, state)
        self.plan.run()
        return backend.snapshot(self.rows)
