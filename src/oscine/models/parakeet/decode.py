"""The resident engine: encode utterances in buckets of length, then let the device walk frames."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.errors import DeviceMemoryError, UsageError
from oscine.models.parakeet import model
from oscine.models.parakeet.boost import Phrases
from oscine.models.parakeet.lines import CtcLines, Lines, Shape, TransducerLines
from oscine.models.parakeet.request import Band, Check, Decoded, Span
from oscine.models.parakeet.weights import EncoderWeights, ParakeetWeights
from oscine.ops import ARC, NODE, Boost

MOST_SHAPES = 12  # whose plans are kept; each holds its encodings


class Decoder:
    """Weights uploaded once, plans recorded once a shape.

    head: "ctc" to decode with the CTC head of a model that has a transducer too. Raises DeviceError
    if the backend cannot hold or compute a model of these sizes, UsageError for a head that is
    missing.
    """

    def __init__(
        self, weights: ParakeetWeights, backend: ops.Backend, head: str | None = None
    ) -> None:
        self.config, self.backend = weights.config, backend
        self.device = backend.name
        self.timings: dict[str, float] = {}
        self.ctc = self.transducer = None
        if weights.transducer is not None and head != "ctc":
            self.transducer = ops.upload(backend, weights.transducer)
        elif weights.ctc is not None:
            self.ctc = ops.upload(backend, weights.ctc)
        else:
            raise UsageError(f"{weights.path.name} has no {head or 'transducer or CTC'} head")
        self.encoder: EncoderWeights = ops.upload(backend, weights.encoder)
        self.distances: list[ops.Tensor] = []  # of each layer, [2M - 1, d]
        self.reach = 0  # M
        self.recorded: dict[Shape, Lines] = {}
        self.encoders: dict[tuple[Shape, Band], Encoding] = {}
        self.current: Lines | None = None
        self.lengths: tuple[int, ...] = ()  # encoder frames of what is encoded
        self.boost: Boost | None = None
        self.phrases: Phrases | None = None
        # Now, while loading can still choose another backend.
        self.prepare(self.shape((1,)), self.config.context)

    # -- encoding -----------------------------------------------------------------------------

    def encode(self, mels: Sequence[NDArray[np.float32]], band: Band = None) -> tuple[int, ...]:
        """Encode utterances side by side, each a mel [n, n_mels]; returns encoder frames of each.

        band: frames before and after a frame that it attends to; None: all. Raises UsageError for a
        mel of another width, or an empty one.
        """
        started = perf_counter()
        for mel in mels:
            if mel.ndim != 2 or mel.shape[1] != self.config.n_mels or not len(mel):
                raise UsageError(f"a mel must be [1.., {self.config.n_mels}], not {mel.shape}")
        lengths = tuple(-(-len(mel) // self.config.factor) for mel in mels)
        encoding = self.prepared(self.shape(lengths), band)
        encoding.run(mels)
        self.current, self.lengths = encoding.lines, lengths
        self.backend.snapshot(encoding.frames)()  # wait, so that the time is its own
        self.clock("encode", started)
        return lengths

    def take(self, encoded: Sequence[NDArray[np.float32]]) -> None:
        """What encode would leave, from encodings [T, d] that exist already."""
        lengths = tuple(len(rows) for rows in encoded)
        lines = self.lines(self.shape(lengths))
        padded = np.zeros(
            (lines.shape.utterances, lines.shape.frames, self.config.width), np.float32
        )
        for place, rows in zip(padded, encoded, strict=False):
            place[: len(rows)] = rows
        self.backend.write(lines.encoded, padded)
        self.current, self.lengths = lines, lengths

    def encoded(self) -> tuple[NDArray[np.float32], ...]:
        """What was encoded last: [T, d] of each utterance."""
        lines = self.encoded_lines()
        rows = self.backend.read(lines.encoded).reshape(
            lines.shape.utterances, -1, self.config.width
        )
        return tuple(piece[:length] for piece, length in zip(rows, self.lengths, strict=False))

    def encoded_lines(self) -> Lines:
        """The lines that hold encodings; ValueError before there are any."""
        if self.current is None:
            raise ValueError("nothing has been encoded")
        return self.current

    # -- decoding -----------------------------------------------------------------------------

    def decode(
        self,
        spans: Sequence[Span] | None = None,
        phrases: Phrases | None = None,
        carry: bool = False,
        check: Check | None = None,
    ) -> tuple[Decoded, ...]:
        """What the encoded utterances say: of each span, by default of each utterance as a whole.

        At most one span an utterance. phrases: what to listen for. carry: also return what the next
        piece of the same audio begins with. `check(seen, frames)` is called at least once a burst
        and may raise to stop. Raises NonFiniteError if a logit is not finite.
        """
        started = perf_counter()
        lines = self.encoded_lines()
        if spans is None:
            spans = [Span(index, 0, length) for index, length in enumerate(self.lengths)]
        for span in spans:
            inside = 0 <= span.utterance < len(self.lengths)
            if not inside or not 0 <= span.start <= span.stop <= self.lengths[span.utterance]:
                raise UsageError(f"no such encoded frames: {span.start} to {span.stop}")
            if span.carried is not None:
                nodes = len(phrases.nodes) if phrases else span.carried.node + 1  # else not read
                span.carried.check(self.config.labels, nodes)
        boost = None if phrases is None else self.listen_for(phrases)
        found = lines.decode(spans, boost, carry, check)
        self.clock("decode", started)
        return found

    def listen_for(self, phrases: Phrases) -> Boost:
        """The phrases on the device, in memory that is made anew only when it gets too small."""
        if self.ctc is not None:
            raise UsageError("this model's CTC head cannot listen for phrases")
        if self.phrases is not phrases:
            phrases.check()
        counts = len(phrases.nodes), max(1, len(phrases.arcs))
        held = (0, 0)
        if self.boost is not None:
            held = self.boost.nodes.shape[0], self.boost.arcs.shape[0]
        if counts[0] > held[0] or counts[1] > held[1]:
            nodes, arcs = (1 << (count - 1).bit_length() for count in counts)
            self.boost = Boost(self.backend.zeros((nodes,), NODE), self.backend.zeros((arcs,), ARC))
            self.phrases = None
        assert self.boost is not None
        if self.phrases is not phrases:
            self.backend.write(self.boost.nodes, phrases.nodes)
            self.backend.write(self.boost.arcs, phrases.arcs)
            self.phrases = phrases
        return self.boost

    # -- shapes -------------------------------------------------------------------------------

    def shape(self, lengths: Sequence[int]) -> Shape:
        """A shape for utterances so long: as they are, or padded where recording costs."""
        longest = max(lengths, default=1) or 1
        return Shape(self.backend.padded_lines(len(lengths)), self.backend.padded_frames(longest))

    def lines(self, shape: Shape) -> Lines:
        """The lines of a shape, made on first use; those used longest ago make room."""
        lines = self.recorded.pop(shape, None)
        if lines is None:
            if len(self.recorded) >= MOST_SHAPES:
                self.forget(next(iter(self.recorded)))
            if self.transducer is not None:
                lines = TransducerLines(self, shape, self.transducer)
            else:
                assert self.ctc is not None
                lines = CtcLines(self, shape, self.ctc)
        self.recorded[shape] = lines
        return lines

    def prepared(self, shape: Shape, band: Band) -> Encoding:
        """As prepare; where memory is short, other shapes give back what they hold."""
        try:
            return self.prepare(shape, band)
        except DeviceMemoryError:
            others = [other for other in self.recorded if other != shape]
            if not others:
                raise
        for other in others:
            self.forget(other)
        return self.prepare(shape, band)

    def prepare(self, shape: Shape, band: Band) -> Encoding:
        """The plans of a shape, made on first use. Raises DeviceMemoryError, DeviceError."""
        return self.encoding(self.lines(shape), band)

    def forget(self, shape: Shape) -> None:
        """Give back what a shape holds."""
        lines = self.recorded.pop(shape)
        if lines is self.current:
            self.current = None
        lines.release()
        for key in [key for key in self.encoders if key[0] == shape]:
            self.encoders.pop(key).release()

    def encoding(self, lines: Lines, band: Band) -> Encoding:
        """The plan of the encoder for a shape, made on first use."""
        reach = lines.shape.frames if band is None else max(band) + 1
        if reach > self.reach:
            self.measure(self.backend.padded(reach))
        key = lines.shape, band
        if key not in self.encoders:
            self.encoders[key] = Encoding(self, lines, band)
        return self.encoders[key]

    def measure(self, reach: int) -> None:
        """Every layer's projected distances, up to `reach` frames apart; plans are made anew."""
        for encoding in self.encoders.values():
            encoding.release()
        self.encoders.clear()
        self.backend.release(*self.distances)
        self.distances, self.reach = [], 0
        shape = 2 * reach - 1, self.config.width
        self.distances = [self.backend.zeros(shape) for _ in range(self.config.layers)]
        self.reach = reach

        def trace() -> None:
            found = model.positions(self.backend, self.encoder, self.config, reach)
            for projected, slot in zip(found, self.distances, strict=True):
                self.backend.keep(projected, slot)

        self.backend.record(trace, name="positions").run()

    def hears_phrases(self) -> bool:
        """Whether it can listen for phrases: a CTC head cannot."""
        return self.ctc is None

    def trace(self) -> dict[str, tuple[int, float]]:
        """What the backend measured of itself: ops.Backend.trace."""
        return self.backend.trace()

    def clock(self, stage: str, started: float) -> None:
        """Add to the stage's milliseconds."""
        self.timings[stage] = self.timings.get(stage, 0.0) + 1000 * (perf_counter() - started)


class Encoding:
    """The encoder's plan for a shape: mel to the encodings of its lines."""

    def __init__(self, decoder: Decoder, lines: Lines, band: Band) -> None:
        self.decoder, self.lines, self.band = decoder, lines, band
        config, shape, backend = decoder.config, lines.shape, decoder.backend
        self.mel = backend.zeros((shape.rows * config.factor, config.n_mels))
        self.frames = backend.zeros((shape.utterances,), np.uint32)
        self.plan = backend.record(self.trace, name="encode")

    def trace(self) -> None:
        """All of the encoder."""
        d = self.decoder
        encoded = model.encode(
            d.backend, d.encoder, d.config, self.mel, self.frames, d.distances, self.band
        )
        d.backend.keep(encoded, self.lines.encoded)

    def run(self, mels: Sequence[NDArray[np.float32]]) -> None:
        """Write the mels, each at its place, and encode."""
        shape, backend = self.lines.shape, self.decoder.backend
        rows = shape.frames * self.decoder.config.factor
        padded = np.zeros((shape.utterances, rows, self.mel.shape[1]), np.float32)
        frames = np.zeros(shape.utterances, np.uint32)
        for index, mel in enumerate(mels):
            padded[index, : len(mel)] = mel
            frames[index] = len(mel)
        backend.write(self.mel, padded)
        backend.write(self.frames, frames)
        self.plan.run()

    def release(self) -> None:
        """Give back what only this plan uses."""
        self.decoder.backend.release(self.mel, self.frames)
