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
from oscine.models.qwen3_tts.codec import Past
from oscine.models.qwen3_tts.codec_weights import CodecDecoderWeights, CodecEncoderWeights
from oscine.models.qwen3_tts.config import CodecConfig, Stack
from oscine.models.qwen3_tts.reference_audio import checked_samples
from oscine.models.qwen3_tts.rope import rotary
from oscine.models.qwen3_tts.weights import check_finite
from oscine.ops import TALKER_STATE, Backend, Cache, Plan, RopeTable, TalkerState, Tensor
from oscine.types import Audio

#: Frames of a call, for which there are plans; any number is cut into these. A voice that is played
#: while it is made takes the small ones, more frames the longer its audio lasts that is still to be
#: played; a whole text takes the large ones.
CALLS = (64, 16, 12, 8, 4, 2, 1)
MOST_FRAMES = 192  # of all voices in a call, which bounds the memory that its stages take
FIRST_REACH = 1024  # positions that tables are first made for: 82 s of speech
ENCODED_FRAMES = 25  # of a call of the encoder: 2 s
FIRST_ROWS = 512  # of the encoder's transformer that there is room for at first: 20 s
CHUNK, CONTEXT = 300, 25  # frames that upstream decodes at once, and of context before them

Samples = NDArray[np.float32]


def most_frames(config: CodecConfig, largest: int) -> int:
    """Frames of all voices in a call: MOST_FRAMES, fewer where a tensor would be too large.

    The last stages are the widest; a tenth is left for the rows before them.
    """
    frame = 4 * config.hop * (config.decoder.channels >> len(config.decoder.rates))
    return max(1, min(MOST_FRAMES, largest * 9 // (10 * frame)))


def checked_wave(wave: Samples) -> Samples:
    """A voice's samples in [-1, 1]. Raises NonFiniteError for non-finite values."""
    if not np.isfinite(wave).all():
        raise NonFiniteError("the codec's waveform is not finite; the weights are damaged")
    return np.clip(wave, -1.0, 1.0)


class Memory:
    """What causal stages keep of `slots` voices, made on first use; shapes: codec.Past."""

    def __init__(self, backend: Backend, stack: Stack) -> None:
        self.backend, self.stack = backend, stack
        self.slots = 1
        self.stages: dict[str, Tensor] = {}
        self.caches: tuple[Cache, ...] = ()
        self.tables: RopeTable | None = None

    def rows(self, name: str, count: int, width: int) -> Tensor:
        """The rows before a stage."""
        if name not in self.stages:
            self.stages[name] = self.backend.zeros((self.slots, count, width))
        return self.stages[name]

    def make_room(self, keys: int) -> None:
        """Room for that many keys of each voice, all of them new; plans are then out of date."""
        old, self.caches = self.caches, ()  # also where there turns out to be no room
        self.backend.release(*(slot for c in old for slot in (c.keys, c.values)))
        shape = self.slots, keys, self.stack.key_width
        self.caches = tuple(
            Cache(self.backend.zeros(shape), self.backend.zeros(shape))
            for _ in range(self.stack.layers)
        )

    def reach(self, positions: int) -> None:
        """Tables for that many positions; plans are then out of date."""
        tables = rotary(positions, self.stack.head_width, self.stack.theta)
        self.tables = RopeTable(self.backend.upload(tables.cos), self.backend.upload(tables.sin))

    def resize(self, slots: int) -> None:
        """Places for that many voices; the first of them stay; plans are then out of date.

        Raises DeviceMemoryError or MemoryError where there is no room; all is then as before.
        """
        old, new = self.all(), list[Tensor]()
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
        caches = new[len(self.stages) :]
        self.stages = dict(zip(self.stages, new, strict=False))
        self.caches = tuple(Cache(*pair) for pair in zip(caches[::2], caches[1::2], strict=True))
        self.slots = slots

    def copy(self, source: int, target: int) -> None:
        """All of one voice to another place, on the device."""
        for tensor in self.all():
            self.backend.copy(tensor, tensor, [(source, target)])

    def all(self) -> tuple[Tensor, ...]:
        """Every tensor that voices have a place in."""
        caches = (tensor for cache in self.caches for tensor in (cache.keys, cache.values))
        return *self.stages.values(), *caches

    def bytes_of(self) -> int:
        """What a voice takes, once a plan is recorded; all of it is float32."""
        return sum(4 * prod(tensor.shape[1:]) for tensor in self.all())

    def past(self, rows: Tensor) -> Past:
        """As the forward takes it, for voices whose state is `rows`."""
        assert self.tables is not None
        unused = self.backend.zeros((1, 1, 1), np.uint32)
        return Past(self.rows, self.caches, self.tables, TalkerState(rows, unused, unused))


@dataclass(frozen=True, slots=True)
class Call:
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
        calls: Sequence[int] = CALLS,
    ) -> None:
        self.config, self.backend = config, backend
        self.lengths = sorted(calls, reverse=True)
        if self.lengths[-1] != 1:
            raise ValueError("calls must include one frame")
        self.w: CodecDecoderWeights = ops.upload(backend, weights)
        self.memory = Memory(backend, config.decoder.stack)
        self.memory.make_room(config.decoder.window - 1 + self.lengths[0])
        self.most = most_frames(config, backend.memory_limits()[0])
        self.calls: dict[tuple[int, int], Call] = {}
        self.positions, self.unused = [0], [0]
        self.reach(FIRST_REACH)

    # -- voices -------------------------------------------------------------------------------

    def take(self) -> int:
        """A slot for one more voice, which begins in silence."""
        if not self.unused:
            self.reserve(2 * self.memory.slots)
        slot = self.unused.pop()
        self.reset(slot)
        return slot

    def reserve(self, slots: int) -> None:
        """Have that many slots in all. Raises DeviceMemoryError, after which all is as before."""
        before = self.memory.slots
        if slots > before:
            self.memory.resize(slots)
            self.positions += [0] * (slots - before)
            self.unused += reversed(range(before, slots))
            self.calls.clear()

    def release(self) -> None:
        """Give back the memory of all slots but one; no voice has any."""
        if self.memory.slots > 1:
            self.memory.resize(1)
            self.positions, self.unused = [0], [0]
            self.record_again(voices=1)  # so that the next voice need not wait for it

    def free(self, slot: int) -> None:
        """Give back a slot; calls that are under way keep what they need of it."""
        self.unused.append(slot)

    def reset(self, slot: int) -> None:
        """Begin again, in silence: a voice at position 0 reads nothing of what its slot holds."""
        self.positions[slot] = 0

    def copy(self, source: int, target: int) -> None:
        """Let the voice in `target` continue from where the one in `source` is now."""
        self.memory.copy(source, target)
        self.positions[target] = self.positions[source]

    def decode(self, slots: Sequence[int], codes: Sequence[NDArray[Any]]) -> Samples:
        """The next frames of several voices, codes [B, n, G] of any integer type -> float32
        [B, n·hop] in [-1, 1].

        Raises UsageError for codes of another shape or range, NonFiniteError for a waveform that is
        no number, ValueError for a slot that comes twice.
        """
        return np.stack([checked_wave(wave) for wave in self.begin(slots, codes)()])

    def begin(self, slots: Sequence[int], codes: Sequence[NDArray[Any]]) -> Callable[[], Samples]:
        """As decode, but only started: the returned function waits for the samples, once.

        They are as the network gives them: `checked_wave` takes those of a voice.
        """
        pieces = [self.backend.snapshot(call.wave) for call in self.run(slots, codes)]

        def wait() -> Samples:
            voices = self.backend.bucket_rows(len(slots))
            waves = [piece()[0].reshape(voices, -1)[: len(slots)] for piece in pieces]
            return np.concatenate(waves, axis=1)

        return wait

    def prime(self, slots: Sequence[int], codes: Sequence[NDArray[Any]]) -> None:
        """Have voices continue after frames whose audio is not wanted, such as a reference's."""
        for _ in self.run(slots, codes):
            pass

    # -- calls --------------------------------------------------------------------------------

    def run(self, slots: Sequence[int], codes: Sequence[NDArray[Any]]) -> Iterator[Call]:
        """Run the calls that frames are cut into; yields each once its work is under way."""
        taken = np.stack([self.checked(own) for own in codes])
        (count, frames, _), done = taken.shape, 0
        if len(set(slots)) != count:
            raise ValueError(f"{count} voices need as many slots, not {list(slots)}")
        furthest = max(self.positions[slot] for slot in slots) + frames
        if furthest > self.reached:
            self.reach(2 * furthest)
        voices = self.backend.bucket_rows(count)
        while done < frames:
            most = min(frames - done, max(1, self.most // voices))
            length = next(n for n in self.lengths if n <= most)
            call = self.call(length, voices)
            self.backend.write(call.state, self.state(slots, length, voices))
            self.backend.write(call.codes, taken[:, done : done + length])
            call.plan.run()
            done += length
            for slot in slots:
                self.positions[slot] += length
            yield call

    def state(self, slots: Sequence[int], length: int, voices: int) -> NDArray[Any]:
        """Where the voices are, of TALKER_STATE; the rest of the `voices` rows are void."""
        rows = np.zeros(voices, TALKER_STATE)
        rows["done"], rows["length"] = 1, length
        rows["done"][: len(slots)], rows["slot"][: len(slots)] = 0, slots
        rows["position"][: len(slots)] = [self.positions[slot] for slot in slots]
        return rows

    def checked(self, codes: NDArray[Any]) -> NDArray[np.uint32]:
        """A voice's codes as plans take them. Raises UsageError."""
        codes, groups, entries = np.asarray(codes), self.config.groups, self.config.codes
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

    def prepare(self, *lengths: int, voices: int = 1) -> None:
        """Record plans now, while loading, so that the first call need not."""
        for length in lengths:
            self.call(length, voices)

    def call(self, length: int, voices: int = 1) -> Call:
        """The plan of that many frames of that many voices, recorded on first use."""
        if (length, voices) not in self.calls:
            frames, slot = voices * length, self.backend.zeros
            state, codes = (
                slot((voices,), TALKER_STATE),
                slot((frames, self.config.groups), np.uint32),
            )
            wave = slot((frames * self.config.hop, 1))
            self.calls[length, voices] = Call(self.record(state, codes, wave), state, codes, wave)
        return self.calls[length, voices]

    def record(self, state: Tensor, codes: Tensor, wave: Tensor) -> Plan:
        """A plan from codes to wave."""
        past, config = self.memory.past(state), self.config.decoder

        def trace() -> None:
            found = codec.decode(self.backend, self.w, config, past, codes)
            self.backend.store(found, wave)

        return self.backend.record(trace, name="codec")

    def reach(self, positions: int) -> None:
        """Go up to that many frames since the reset; what is past stays."""
        self.memory.reach(positions)
        self.reached = positions
        self.record_again()

    def record_again(self, voices: int | None = None) -> None:
        """The plans there are, over other memory; `voices`: only those of calls for that many."""
        calls = list(self.calls)
        self.calls.clear()
        for length, count in calls:
            if voices in (None, count):
                self.call(length, count)


class CodecStream:
    """One voice of a CodecDecoder, by itself: codes to waveform, as often as one likes.

    `position` frames have been decoded since `reset`.
    """

    def __init__(self, decoder: CodecDecoder) -> None:
        self.decoder, self.config = decoder, decoder.config
        self.slot = decoder.take()

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
        return self.begin(codes)()

    def begin(self, codes: NDArray[Any]) -> Callable[[], Samples]:
        """As decode, but only started: the returned function waits for the samples, once."""
        wait = self.decoder.begin([self.slot], [codes])
        return lambda: checked_wave(wait()[0])

    def prime(self, codes: NDArray[Any]) -> None:
        """Continue after the frames of a reference, whose audio is not wanted."""
        self.decoder.prime([self.slot], [codes])

    def chunked(self, codes: NDArray[Any], size: int = CHUNK, context: int = CONTEXT) -> Samples:
        """As upstream decodes: `size` frames at once, each after only `context` frames before it.

        Equal to decode where there are at most `size` frames. Resets first.
        """
        hop, pieces = self.config.hop, []
        for start in range(0, max(1, len(codes)), size):
            before = min(context, start)
            self.reset()
            wave = self.decode(codes[start - before : start + size])
            pieces.append(wave[before * hop :])
        return np.concatenate(pieces)

    def saved(self) -> int:
        """A slot that keeps where this stream is, until it is forgotten."""
        kept = self.decoder.take()
        self.decoder.copy(self.slot, kept)
        return kept

    def restore(self, kept: int) -> None:
        """Continue from what `saved` keeps, as often as one likes."""
        self.decoder.copy(kept, self.slot)

    def forget(self, kept: int) -> None:
        """Give back what `saved` keeps."""
        self.decoder.free(kept)


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
        frames: int = ENCODED_FRAMES,
    ) -> None:
        check_finite(weights, "the codec's encoder")
        self.config, self.backend = config, backend
        self.w: CodecEncoderWeights = ops.upload(backend, weights)
        self.memory = Memory(backend, config.encoder.stack)
        self.row = prod(config.encoder.ratios)  # samples of a row of the transformer
        self.most = frames * config.hop  # samples of a call
        self.room = 0
        self.whole: EncoderCall | None = None

    def encode(self, samples: Samples | Audio) -> NDArray[np.uint32]:
        """Mono samples [n] at the codec's rate -> codes [ceil(n / hop), G].

        A last frame that the recording does not fill is completed with zeros, as upstream has it.
        Raises UsageError for an array that is not one-dimensional or empty, or audio of another
        rate; NonFiniteError for NaN or infinity in it, or in what is made of it; DeviceMemoryError
        for a recording too long.
        """
        samples = checked_samples(samples, self.config.rate, 1)
        count = -(-len(samples) // self.row)
        if count > self.room:
            self.make_room(count)
        pieces = []
        for start in range(0, len(samples), self.most):
            part = samples[start : start + self.most]
            pieces.append(self.encoder_call(len(part)).run(part, start // self.row))
        rows = np.concatenate([piece()[0] for piece in pieces])
        if not np.isfinite(rows).all():
            raise NonFiniteError("the codec's encoder makes no numbers; its weights are damaged")
        return self.describe(rows)

    def make_room(self, count: int) -> None:
        """Room for so many rows of the transformer; plans are made anew."""
        self.room, self.whole = 0, None
        room = max(FIRST_ROWS, 1 << (count - 1).bit_length())
        self.memory.make_room(room)
        self.memory.reach(room)
        self.room = room

    def encoder_call(self, length: int) -> EncoderCall:
        """The plan of a call: that of whole calls is kept, the last one of a recording is not."""
        if length < self.most:
            return EncoderCall(self, length)
        if self.whole is None:
            self.whole = EncoderCall(self, length)
        return self.whole

    def describe(self, rows: NDArray[np.float32]) -> NDArray[np.uint32]:
        """All rows of the transformer [T, d] -> codes [ceil(T / 2), G]."""
        heard = self.backend.zeros(rows.shape)
        codes = self.backend.zeros((-(-len(rows) // 2), self.config.groups), np.uint32)
        self.backend.write(heard, rows)

        def trace() -> None:
            codec.quantise(self.backend, self.w, heard, codes)

        self.backend.record(trace, name="quantise").run()
        found: NDArray[np.uint32] = self.backend.read(codes)
        self.backend.release(heard, codes)
        return found


class EncoderCall:
    """A call of the encoder over `length` samples, up to the transformer's last layer."""

    def __init__(self, encoder: CodecEncoder, length: int) -> None:
        self.encoder, backend = encoder, encoder.backend
        w, config = encoder.w, encoder.config.encoder
        count = -(-length // encoder.row)
        self.samples = backend.zeros((length, w.first.weight.shape[-1]))
        self.rows = backend.zeros((count, config.stack.width))
        self.state = backend.zeros((1,), TALKER_STATE)
        past = encoder.memory.past(self.state)

        def trace() -> None:
            found = codec.listen(backend, w, config, past, self.samples)
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
