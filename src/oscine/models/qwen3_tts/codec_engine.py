"""The resident codec: plans for calls of a few lengths, and the memory that joins the calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.errors import NonFiniteError, UsageError
from oscine.models.qwen3_tts import codec
from oscine.models.qwen3_tts.codec import Past
from oscine.models.qwen3_tts.codec_weights import CodecDecoderWeights, CodecEncoderWeights
from oscine.models.qwen3_tts.config import CodecConfig, Stack
from oscine.models.qwen3_tts.reference import checked_samples
from oscine.models.qwen3_tts.rotary import rotary
from oscine.models.qwen3_tts.weights import check_finite
from oscine.ops import UTTERANCE, Backend, Cache, Plan, Rotary, Tensor, Utterances
from oscine.types import Audio

CALLS = (64, 16, 4, 1)  # frames of a call, for which there are plans; any number is cut into these
FIRST_REACH = 1024  # positions that tables are first made for: 82 s of speech
ENCODED_FRAMES = 25  # of a call of the encoder: 2 s
FIRST_ROWS = 512  # of the encoder's transformer that there is room for at first: 20 s
CHUNK, CONTEXT = 300, 25  # frames that upstream decodes at once, and of context before them

Samples = NDArray[np.float32]
Saved = tuple[int, tuple[NDArray[Any], ...]]


class Memory:
    """Slots of one stream through causal stages, made on first use; shapes: codec.Past."""

    def __init__(self, backend: Backend, stack: Stack) -> None:
        self.backend, self.stack = backend, stack
        self.slots: dict[str, Tensor] = {}
        self.caches: tuple[Cache, ...] = ()
        self.tables: Rotary | None = None
        self.place = Utterances(
            backend.slot((1,), UTTERANCE),
            backend.slot((1, 1, 1), np.uint32),
            backend.slot((1, 1), np.uint32),
        )

    def rows(self, name: str, count: int, width: int) -> Tensor:
        """The rows before a stage."""
        if name not in self.slots:
            self.slots[name] = self.backend.slot((count, width))
        return self.slots[name]

    def make_room(self, keys: int, positions: int) -> None:
        """Room for so many keys, and tables for so many positions; plans are to be made anew."""
        stack, old = self.stack, self.caches
        if not old or old[0].keys.shape[1] != keys:
            self.caches = ()  # also where there turns out to be no room
            self.backend.release(*(slot for c in old for slot in (c.keys, c.values)))
            shape = 1, keys, stack.key_width
            self.caches = tuple(
                Cache(self.backend.slot(shape), self.backend.slot(shape))
                for _ in range(stack.layers)
            )
        tables = rotary(positions, stack.head_width, stack.theta)
        self.tables = Rotary(self.backend.upload(tables.cos), self.backend.upload(tables.sin))

    def past(self) -> Past:
        """As the forward takes it."""
        assert self.tables is not None
        return Past(self.rows, self.caches, self.tables, self.place)

    def stand(self, position: int, length: int) -> None:
        """Where the next call's first row stands in the transformer, and how many it has."""
        row = np.zeros(1, UTTERANCE)
        row["position"], row["length"] = position, length
        self.backend.write(self.place.rows, row)

    def clear(self) -> None:
        """As at the beginning. Keys may stay: no row looks at what was not written since."""
        for slot in self.slots.values():
            self.backend.write(slot, np.zeros(slot.shape, np.float32))

    def all(self) -> tuple[Tensor, ...]:
        """Every slot that a stream is made of, in an order that does not change."""
        caches = (slot for cache in self.caches for slot in (cache.keys, cache.values))
        return *self.slots.values(), *caches


@dataclass(frozen=True, slots=True)
class Call:
    """A plan and what goes in and out."""

    plan: Plan
    codes: Tensor  # [n, G]
    wave: Tensor  # [n·hop, 1]


class CodecDecoder:
    """Codes to waveform, frame by frame or many at once: the samples are the same.

    `position` frames have been decoded since `reset`. Raises DeviceError if the backend cannot hold
    or compute a codec of these sizes.
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
        self.calls: dict[int, Call] = {}
        self.position = 0
        self.reach(FIRST_REACH)

    def reset(self) -> None:
        """Begin anew, in silence."""
        self.memory.clear()
        self.position = 0

    def decode(self, codes: NDArray[Any]) -> Samples:
        """The next frames, codes [n, G] of any integer type -> float32 [n·hop] in [-1, 1].

        Raises UsageError for codes of another shape or range, NonFiniteError for a waveform that is
        no number.
        """
        return self.begin(codes)()

    def begin(self, codes: NDArray[Any]) -> Callable[[], Samples]:
        """As decode, but only started: the returned function waits for the samples, once."""
        pieces = [self.backend.snapshot(call.wave) for call in self.run(codes)]

        def wait() -> Samples:
            wave = np.concatenate([piece()[0].reshape(-1) for piece in pieces])
            if not np.isfinite(wave).all():
                raise NonFiniteError("the codec's waveform is not finite; the weights are damaged")
            return np.clip(wave, -1.0, 1.0, out=wave)

        return wait

    def prime(self, codes: NDArray[Any]) -> None:
        """Have the frames of a reference behind it, whose audio nobody hears."""
        for _ in self.run(codes):
            pass

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

    def saved(self) -> Saved:
        """Where this stream stands; restore goes on from there as often as one likes."""
        return self.position, self.backend.snapshot(*self.memory.all())()

    def restore(self, saved: Saved) -> None:
        """Go on from where a stream stood."""
        self.position = saved[0]
        for slot, array in zip(self.memory.all(), saved[1], strict=True):
            self.backend.write(slot, array)

    # -- calls --------------------------------------------------------------------------------

    def run(self, codes: NDArray[Any]) -> Iterator[Call]:
        """Run the calls that frames are cut into; yields each once its work is under way."""
        codes = self.checked(codes)
        if self.position + len(codes) > self.positions:
            self.reach(2 * (self.position + len(codes)))
        done = 0
        while done < len(codes):
            length = next(n for n in self.lengths if n <= len(codes) - done)
            call = self.call(length)
            self.memory.stand(self.position, length)
            self.backend.write(call.codes, codes[done : done + length])
            call.plan.run()
            done += length
            self.position += length
            yield call

    def checked(self, codes: NDArray[Any]) -> NDArray[np.uint32]:
        """Codes as plans take them. Raises UsageError."""
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

    def prepare(self, *lengths: int) -> None:
        """Record plans now, while loading, so that the first call need not."""
        for length in lengths:
            self.call(length)

    def call(self, length: int) -> Call:
        """The plan of a length, recorded on first use."""
        if length not in self.calls:
            codes = self.backend.slot((length, self.config.groups), np.uint32)
            wave = self.backend.slot((length * self.config.hop, 1))
            self.calls[length] = Call(self.record(codes, wave), codes, wave)
        return self.calls[length]

    def record(self, codes: Tensor, wave: Tensor) -> Plan:
        """A plan from codes to wave."""
        past, config = self.memory.past(), self.config.decoder

        def trace() -> None:
            found = codec.decode(self.backend, self.w, config, past, codes)
            self.backend.keep(found, wave)

        return self.backend.record(trace, name="codec")

    def reach(self, positions: int) -> None:
        """Go up to so many frames since the reset; plans are made anew, what is past stays."""
        self.positions = positions
        self.memory.make_room(self.config.decoder.window - 1 + self.lengths[0], positions)
        calls = list(self.calls)
        self.calls.clear()
        self.prepare(*calls)


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
        self.memory.clear()
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
        self.memory.make_room(room, room)
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
        heard = self.backend.slot(rows.shape)
        codes = self.backend.slot((-(-len(rows) // 2), self.config.groups), np.uint32)
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
        self.samples = backend.slot((length, w.first.weight.shape[-1]))
        self.rows = backend.slot((count, config.stack.width))
        past = encoder.memory.past()

        def trace() -> None:
            found = codec.listen(backend, w, config, past, self.samples)
            backend.keep(found, self.rows)

        self.plan = backend.record(trace, name="listen")

    def run(self, samples: Samples, position: int) -> Callable[[], tuple[NDArray[Any], ...]]:
        """Start; the returned function waits for rows [count, d]."""
        backend = self.encoder.backend
        columns = np.zeros(self.samples.shape, np.float32)
        columns[:, 0] = samples
        backend.write(self.samples, columns)
        self.encoder.memory.stand(position, self.rows.shape[0])
        self.plan.run()
        return backend.snapshot(self.rows)
