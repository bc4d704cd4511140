"""The resident engine: encode windows, then bursts of steps that the device drives itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.errors import DeviceMemoryError, NonFiniteError, UsageError
from oscine.models.whisper import model
from oscine.models.whisper.align import Aligner
from oscine.models.whisper.lines import Lines, Shape
from oscine.models.whisper.repetition import Loops
from oscine.models.whisper.request import Alignment, Check, Decoded, Request
from oscine.models.whisper.weights import WhisperWeights

log = logging.getLogger(__name__)

BURST = 16  # steps between two looks at the state; the next burst runs while the host looks


class Decoder:
    """Weights uploaded once, plans recorded once, as many windows and lines as were asked for.

    Raises DeviceError if the backend cannot hold or compute a model of these sizes.
    """

    def __init__(self, weights: WhisperWeights, backend: ops.Backend) -> None:
        self.config, self.backend = weights.config, backend
        self.device = backend.name
        halved = weights.decoder is not None and weights.decoder.embedding.dtype == np.float16
        self.half_memory = halved and backend.half_memory
        self.timings: dict[str, float] = {}
        config = self.config
        self.encoder = ops.upload(backend, weights.encoder)
        self.together = backend.encode_batch  # windows in a pass of the encoder, where they fit
        mel = backend.slot((1, config.window_frames, config.n_mels))
        self.mels = {1: mel}  # of a pass of so many windows
        self.audio = backend.slot((config.n_audio_ctx, config.n_audio_state))
        self.alone: ops.Plan | None = None  # the encoder without the decoder's memory
        self.passes: dict[int, ops.Plan] = {}  # of so many windows, into the first of the memory
        self.memory: list[ops.Tensor] = []  # of each layer, keys and values of all windows
        self.held: object = None  # names what is in it; None: nothing that can be used again
        self.caches: list[ops.Cache] = []
        self.recorded: dict[Shape, Lines] = {}
        self.aligner: Aligner | None = None
        if weights.decoder is not None:
            self.weights = ops.upload(backend, weights.decoder)
            self.reserve(1, 1)
            self.lines(Shape(1))  # now, while loading can still choose another backend

    @property
    def windows(self) -> int:
        """How many encoded windows there is room for."""
        return int(self.memory[0].shape[0]) if self.memory else 0

    @property
    def most_lines(self) -> int:
        """How many lines there is room for."""
        return int(self.caches[0].keys.shape[0]) if self.caches else 0

    def reserve(self, windows: int, lines: int) -> None:
        """Make room for so many windows and lines, if there is less.

        Plans are made anew then, and more windows begin empty. Where the weights are float16, the
        keys and values of several windows are too, on backends that gain by it: a step of a batch
        does little but read them. One window's are float32 as long as no batch was reserved, and
        NumPy's always: a token of a batch may differ from theirs at a near tie. Raises
        DeviceMemoryError where the device has not that much; what there was is kept.
        """
        layers, width = self.config.n_text_layer, self.config.n_text_state
        context = self.config.n_text_ctx
        memory = self.memory
        keys: list[ops.Tensor] = []
        values: list[ops.Tensor] = []
        try:
            if windows > self.windows:
                kind = np.float16 if self.half_memory and windows > 1 else np.float32
                memory = self.slots(layers, (windows, self.config.n_audio_ctx, 2 * width), kind)
            if lines > self.most_lines:
                keys = self.slots(layers, (lines, context, width))
                values = self.slots(layers, (lines, context, width))
        except DeviceMemoryError:
            self.backend.release(*(memory if memory is not self.memory else ()), *keys)
            raise
        if memory is self.memory and not keys:
            return
        self.forget_plans()
        if memory is not self.memory:
            self.backend.release(*self.memory)
            self.memory, self.held = memory, None
            self.passes.clear()
            self.prepare(1)  # now, while loading can still choose another backend
        if keys:
            self.backend.release(*(slot for c in self.caches for slot in (c.keys, c.values)))
            self.caches = [ops.Cache(*pair) for pair in zip(keys, values, strict=True)]

    def batch_that_fits(self) -> int:
        """Windows for a batch, from the memory that the backend tells of; at least one.

        A quarter of what is free, as activations and other programs want some too.
        """
        config, (largest, free) = self.config, self.backend.room()
        width, item = config.n_text_state, 2 if self.half_memory else 4
        memory, cache = 2 * width * config.n_audio_ctx * item, 4 * width * config.n_text_ctx
        counts = [self.backend.good_batch, largest // memory, largest // cache]
        if free is not None:
            counts.append(free // 4 // (config.n_text_layer * (memory + 2 * cache)))
        return max(1, min(counts))

    def slots(
        self, count: int, shape: tuple[int, ...], kind: type = np.float32
    ) -> list[ops.Tensor]:
        """So many slots of one shape, or none: DeviceMemoryError."""
        made: list[ops.Tensor] = []
        try:
            for _ in range(count):
                made.append(self.backend.slot(shape, kind))
        except DeviceMemoryError:
            self.backend.release(*made)
            raise
        return made

    def forget_plans(self) -> None:
        """Plans that hold memory or caches about to be replaced."""
        for recorded in self.recorded.values():
            recorded.release()
        self.recorded.clear()
        if self.aligner is not None:
            self.aligner.release()
            self.aligner = None

    def trace_windows(self, mel: ops.Tensor) -> None:
        """Mels [N, 2S, n_mels] to every layer's cross keys and values of the first N windows."""
        count = mel.shape[0]
        mels = self.first(mel, count)
        audio = model.encode(self.backend, self.encoder, self.config, mels, count)
        memory = [self.first(slot, count) for slot in self.memory]
        model.remember(self.backend, self.weights, audio, memory)

    def trace_encoder(self) -> None:
        """Mel to the encoder's output."""
        mel = self.first(self.mels[1], 1)
        audio = model.encode(self.backend, self.encoder, self.config, mel)
        self.backend.keep(audio, self.audio)

    def first(self, slot: ops.Tensor, count: int) -> ops.Tensor:
        """The first windows of a slot [W, rows, width], one behind another: [count·rows, width]."""
        _, rows, width = slot.shape
        return self.backend.view(slot, (count * rows, width))

    def prepare(self, count: int) -> None:
        """Have the encoder's pass of so many windows recorded. Raises DeviceMemoryError."""
        if count in self.passes:
            return
        mel = self.mels.get(count)
        if mel is None:
            mel = self.backend.slot((count, *self.mels[1].shape[1:]))
        self.passes[count] = self.backend.record(partial(self.trace_windows, mel), name="encode")
        self.mels[count] = mel

    def pass_sizes(self, windows: int) -> list[int]:
        """Windows of each pass that encodes so many, the largest first.

        Powers of two, as each size is kernels of its own. A size that the device has no room for
        is halved, from now on.
        """
        sizes: list[int] = []
        while (rest := windows - sum(sizes)) > 0:
            size = min(self.together, 1 << rest.bit_length() - 1)
            try:
                self.prepare(size)
            except DeviceMemoryError as problem:
                if size == 1:
                    raise
                self.together = size // 2
                log.info("%s; windows are encoded %d at a time", problem, self.together)
            else:
                sizes.append(size)
        return sizes

    def encode(self, mels: Sequence[NDArray[np.float32]]) -> None:
        """Encode windows: each a complete mel [2S, n_mels], at most as many as are reserved.

        Some go through the encoder together, where the backend gains by it and has room.
        """
        started, self.held, start = perf_counter(), None, len(mels)
        for mel in mels:
            self.check_mel(mel)
        # A pass fills the first places; whatever belongs elsewhere is copied on from there.
        for count in reversed(self.pass_sizes(len(mels))):
            start -= count
            for index in range(count):
                self.backend.write(self.mels[count], mels[start + index], at=index)
            self.passes[count].run()
            if start:
                pairs = [(index, start + index) for index in range(count)]
                for slot in self.memory:
                    self.backend.copy(slot, slot, pairs)
        self.backend.snapshot(self.mels[1])()  # wait, so that the time is its own
        self.clock("encode", started)

    def encode_audio(self, mel: NDArray[np.float32]) -> NDArray[np.float32]:
        """The encoder alone: mel [2S, n_mels] -> [S, d]."""
        self.check_mel(mel)
        if self.alone is None:
            self.alone = self.backend.record(self.trace_encoder, name="encode")
        self.backend.write(self.mels[1], mel)
        self.alone.run()
        encoded: NDArray[np.float32] = self.backend.read(self.audio)
        return encoded

    def check_mel(self, mel: NDArray[np.float32]) -> None:
        """A window of another size would silently be read as something else."""
        expected = (self.config.window_frames, self.config.n_mels)
        if mel.shape != expected:
            raise UsageError(f"mel window must have shape {expected}, not {mel.shape}")

    def decode(
        self,
        requests: Sequence[Request],
        check: Check | None = None,
        windows: Sequence[int] = (),
    ) -> tuple[tuple[Decoded, ...], ...]:
        """Decode encoded windows side by side; for each request its rows, or its beams.

        `windows`: for each request, which of the encoded windows; (): the first for all. Requests
        differ in prompt, seed and limit alone. As many as there is room for go together, the others
        after them. `check(emitted, budget)` is called at least once a burst
        and may raise to stop. Raises NonFiniteError if the logits hold NaN or infinity, UsageError
        for a prompt that leaves no room, an id that is no token, a window that is not there.
        """
        windows = windows or [0] * len(requests)
        for request, window in zip(requests, windows, strict=True):
            self.check_request(request)
            self.check_window(window)
            if not request.alike(requests[0]):
                raise ValueError("requests of one batch must have the same rules")
        self.reserve(1, requests[0].width)
        together = self.most_lines // requests[0].width
        started = perf_counter()
        found: list[tuple[Decoded, ...]] = []
        for start in range(0, len(requests), together):
            end = start + together
            found += self.side_by_side(requests[start:end], windows[start:end], check)
        self.clock("decode", started)
        return tuple(found)

    def side_by_side(
        self, requests: Sequence[Request], windows: Sequence[int], check: Check | None
    ) -> tuple[tuple[Decoded, ...], ...]:
        """Requests that there is room for at once."""
        first = requests[0]
        groups = self.backend.padded_lines(len(requests))
        if groups * first.width > self.most_lines:
            groups = len(requests)
        pool = first.pool if first.beams > 1 else 0
        lines = self.lines(Shape(groups, first.width, pool, first.penalised))
        lines.prefill(requests, windows)
        slots, limit = lines.slots(), max(request.limit for request in requests)
        loops = Loops(first.end)
        pending = self.backend.snapshot(*slots)
        while True:
            lines.step.run(BURST)
            ahead = self.backend.snapshot(*slots)
            rows, *rest = pending()
            if check is not None:
                check(int(rows["count"].max()), limit)
            if first.stop_loops:
                rows = loops.stopped(rows, rest[0])
            if rows["done"].all():
                break
            pending = ahead
        if (rows["done"] == ops.STOP_NONFINITE).any():
            raise NonFiniteError.of_network("logits", self.device)
        return lines.results((rows, *rest), len(requests))

    def align(self, prompt: Sequence[int], end: int, frames: int, window: int = 0) -> Alignment:
        """Where the tokens of a prompt look in an encoded window, and how likely each is.

        `prompt`: all tokens, forced one after another; `end`: the first id that is not text;
        `frames`: positions of 20 ms that hold sound. Overwrites what was being decoded.
        """
        started = perf_counter()
        if not 1 <= len(prompt) <= self.config.n_text_ctx:
            raise UsageError(
                f"{len(prompt)} tokens cannot be aligned; the model has room for "
                f"{self.config.n_text_ctx}"
            )
        self.check_ids((*prompt, end))
        self.check_window(window)
        if self.aligner is None:
            self.aligner = Aligner(self)
        found = self.aligner.run(prompt, end, min(frames, self.config.n_audio_ctx), window)
        self.clock("align", started)
        return found

    def check_request(self, request: Request) -> None:
        """Refuse what the caches cannot hold, and what kernels would read beside their arrays."""
        room = self.config.n_text_ctx - len(request.prompt)
        if not request.prompt or room < 1:
            raise UsageError(
                f"a prompt must have 1 to {self.config.n_text_ctx - 1} tokens, "
                f"not {len(request.prompt)}"
            )
        if not 1 <= request.limit <= room:
            raise UsageError(
                f"{request.limit} new tokens after a prompt of {len(request.prompt)} "
                f"do not fit; the model has room for {room}"
            )
        named = (*request.prompt, request.end, request.no_speech)
        self.check_ids((*named, *request.suppress, *request.suppress_first))
        if not 0 <= request.sot < len(request.prompt):
            raise UsageError(f"row {request.sot} of a prompt of {len(request.prompt)} is none")

    def check_ids(self, ids: Sequence[int]) -> None:
        """Refuse what is no token of this model."""
        vocabulary = self.config.n_vocab
        if min(ids) < 0 or max(ids) >= vocabulary:
            wrong = next(id for id in ids if not 0 <= id < vocabulary)
            raise UsageError(f"{wrong} is no token; this model has 0 to {vocabulary - 1}")

    def check_window(self, window: int) -> None:
        """Refuse a window that there is no room for."""
        if not 0 <= window < max(1, self.windows):
            raise UsageError(f"there is no window {window}; there is room for {self.windows}")

    def detect(
        self, request: Request, ids: Sequence[int], window: int = 0
    ) -> tuple[int, NDArray[np.float32]]:
        """The likeliest of `ids` after the request's prompt, and the share of each [len(ids)].

        The request suppresses all other ids, so the choice is made on the device.
        """
        self.check_request(request)
        self.check_window(window)
        self.check_ids(ids)
        lines = self.lines(Shape(1))
        lines.prefill([request], [window])
        rows, logits = self.backend.snapshot(lines.state.rows, lines.logits)()
        if rows["done"][0] == ops.STOP_NONFINITE:
            raise NonFiniteError.of_network("logits", self.device)
        scores = logits[0, list(ids)]
        shares = np.exp(scores - scores.max())
        return int(rows["token"][0]), shares / shares.sum()

    def lines(self, shape: Shape) -> Lines:
        """The lines of a shape, made on first use."""
        if shape not in self.recorded:
            self.recorded[shape] = Lines(self, shape)
        return self.recorded[shape]

    def trace(self) -> dict[str, tuple[int, float]]:
        """What the backend measured of itself: ops.Backend.trace."""
        return self.backend.trace()

    def clock(self, stage: str, started: float) -> None:
        """Add to the stage's milliseconds."""
        self.timings[stage] = self.timings.get(stage, 0.0) + 1000 * (perf_counter() - started)
