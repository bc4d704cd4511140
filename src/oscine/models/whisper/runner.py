"""Whisper as the engine drives it: its memory, and windows encoded into places of it.

What rows of text do is in lanes.py. S slots, W places, C positions of text, d width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine import ops
from oscine.engine.sequence import EncoderInput
from oscine.engine.sequence import Sequence as AnySequence
from oscine.engine.slots import PlanCache
from oscine.errors import DeviceMemoryError, UsageError
from oscine.models.whisper import model
from oscine.models.whisper.lanes import MOST_ROWS, AlignLane, DetectLane, TextLane, mask_of
from oscine.models.whisper.sequences import Align, Decode, Detect, Request
from oscine.models.whisper.weights import WhisperWeights

MOST_PLANS = 8

LANES = {"text": TextLane, "detect": DetectLane, "align": AlignLane}


class Encoding:
    """A recorded pass of the encoder over `count` windows, and what goes in and out."""

    def __init__(self, runner: WhisperRunner, count: int) -> None:
        config, backend = runner.config, runner.backend
        self.backend = backend
        self.mel = backend.slot((count * config.window_frames, config.n_mels))
        self.audio = backend.slot((count * config.n_audio_ctx, config.n_audio_state))

        def trace() -> None:
            audio = model.encode(backend, runner.encoder, config, self.mel, count)
            backend.keep(audio, self.audio)

        self.plan = backend.record(trace, name="encode")

    def run(self, mels: Sequence[NDArray[np.float32]]) -> None:
        """Encode windows [2S, n_mels]; fewer than there is room for are followed by the last."""
        for number, mel in enumerate(mels):
            self.backend.write(self.mel, mel, number * len(mel))
        self.plan.run()

    def release(self) -> None:
        """Give back what only this pass uses."""
        self.backend.release(self.mel, self.audio)


class WhisperRunner:
    """Weights uploaded once, plans recorded once, memory for as many windows and rows as are used.

    Where the weights are float16, so are the keys and values of windows, on backends that gain by
    it. Raises DeviceError if the backend cannot hold or compute a model of these sizes.
    """

    def __init__(self, weights: WhisperWeights, backend: ops.Backend) -> None:
        self.config, self.backend = weights.config, backend
        self.device = backend.name
        self.timings: dict[str, float] = {}
        self.encode_batch = backend.encode_batch
        self.encoder = ops.upload(backend, weights.encoder)
        self.encodings: PlanCache[Encoding] = PlanCache(MOST_PLANS, Encoding.release)
        self.lanes: dict[Any, Any] = {}
        self.slots = self.places = 0
        self.kind: type = np.float32
        if weights.decoder is None:
            self.encoding(1)
            return
        self.decoder = ops.upload(backend, weights.decoder)
        if weights.decoder.embedding.dtype == np.float16 and backend.half_memory:
            self.kind = np.float16
        self.caches: list[ops.Cache] = []  # of each layer, [S, C, d]
        self.memory: list[ops.Tensor] = []  # of each layer, keys and values of windows [W, S', 2d]
        self.staged: list[ops.Tensor] = []  # likewise of one window, on its way to its place
        self.heard = backend.slot((self.config.n_audio_ctx, self.config.n_audio_state))
        self.remember: ops.Plan | None = None
        context = self.config.n_text_ctx
        self.tokens = backend.slot((MOST_ROWS, context), np.uint32)
        self.origins = backend.slot((MOST_ROWS, context), np.uint32)
        self.rules = backend.slot((MOST_ROWS,), ops.RULES)
        self.leads = backend.slot((MOST_ROWS,), ops.STATE)  # of groups, by their first slot
        self.mask_rows: dict[Any, int] = {}  # by suppression lists
        self.masked: dict[int, int] = {}  # the row of `masks` that each slot uses
        self.reserve(1, 1)
        self.lane(("text", 1, 0)).prepare()  # now, while loading can still choose another backend

    def lane(self, key: Any) -> Any:
        if key not in self.lanes:
            kind, *shape = key
            self.lanes[key] = LANES[kind](self, *shape)
        return self.lanes[key]

    def trace(self) -> dict[str, tuple[int, float]]:
        """What the backend measured of itself: ops.Backend.trace."""
        return self.backend.trace()

    # -- memory -------------------------------------------------------------------------------

    def reserve(self, slots: int, places: int, sequence: AnySequence[Any] | None = None) -> None:
        if slots <= self.slots and places <= self.places:
            return
        slots, places = max(slots, self.slots), max(places, self.places)
        self.check_room(slots - self.slots, places - self.places)
        made: list[ops.Tensor] = []
        try:
            memory = self.made_memory(places, made) if places > self.places else None
            cells = self.made_slots(slots, made) if slots > self.slots else None
        except DeviceMemoryError:
            self.backend.release(*made)
            raise
        self.forget_plans()
        if memory is not None:
            self.replace(self.memory, memory[0], self.places)
            self.backend.release(*self.staged)
            self.memory, self.staged = memory
            self.places = places
        if cells is not None:
            self.replace(self.cells(), cells, self.slots)
            self.take(cells)
            self.slots = slots

    def check_room(self, slots: int, places: int) -> None:
        """Raise DeviceMemoryError where more would take over half of what is known to be free."""
        _, free = self.backend.room()
        wanted = slots * self.slot_bytes + places * self.place_bytes
        if free is not None and wanted > free // 2:
            problem = (
                f"{wanted >> 20} MiB for more windows side by side are over half of the memory"
            )
            raise DeviceMemoryError(self.device, f"{problem} that is free")

    def batch_that_fits(self, width: int) -> int:
        """Windows to decode side by side, of `width` rows each: what gains and has room."""
        config, (largest, free) = self.config, self.backend.room()
        place = self.place_bytes // config.n_text_layer
        cache = 4 * width * config.n_text_state * config.n_text_ctx
        counts = [self.backend.good_batch // width, largest // place, largest // cache]
        if free is not None:  # a quarter: activations and other programs want some too
            counts.append(free // 4 // (self.place_bytes + width * self.slot_bytes))
        return max(1, min(counts))

    @property
    def slot_bytes(self) -> int:
        """What a row of text takes."""
        config = self.config
        cache = 8 * config.n_text_layer * config.n_text_ctx * config.n_text_state
        return cache + 4 * config.n_vocab

    @property
    def place_bytes(self) -> int:
        """What an encoded window takes."""
        config = self.config
        width = 2 * config.n_text_state * np.dtype(self.kind).itemsize
        return config.n_text_layer * config.n_audio_ctx * width

    def made_memory(
        self, places: int, made: list[ops.Tensor]
    ) -> tuple[list[ops.Tensor], list[ops.Tensor]]:
        """Keys and values of that many windows, and of one on its way where there are several."""
        layers, width = self.config.n_text_layer, 2 * self.config.n_text_state
        shape = places, self.config.n_audio_ctx, width
        for _ in range(layers):
            made.append(self.backend.slot(shape, self.kind))
        memory = made[-layers:]
        if places == 1:
            return memory, []
        for _ in range(layers):
            made.append(self.backend.slot((1, *shape[1:]), self.kind))
        return memory, made[-layers:]

    def made_slots(self, slots: int, made: list[ops.Tensor]) -> list[ops.Tensor]:
        """All that grows with the number of rows of text, as in `cells`."""
        config, first = self.config, len(made)
        for _ in range(2 * config.n_text_layer):
            made.append(self.backend.slot((slots, config.n_text_ctx, config.n_text_state)))
        made.append(self.backend.slot((slots, config.n_vocab), np.uint32))
        return made[first:]

    def cells(self) -> list[ops.Tensor]:
        """Caches and masks: [S, ...] each."""
        if not self.slots:
            return []
        caches = [tensor for cache in self.caches for tensor in (cache.keys, cache.values)]
        return [*caches, self.masks]

    def take(self, cells: list[ops.Tensor]) -> None:
        """Use these."""
        *caches, self.masks = cells
        self.caches = [ops.Cache(*pair) for pair in zip(caches[::2], caches[1::2], strict=True)]

    def replace(self, old: list[ops.Tensor], new: list[ops.Tensor], count: int) -> None:
        """Move the first `count` items of each tensor over, and give the old ones back."""
        for source, target in zip(old, new, strict=False):
            self.backend.copy(source, target, [(item, item) for item in range(count)])
        self.backend.release(*old)

    def forget_plans(self) -> None:
        """What is recorded over memory that is about to be replaced."""
        self.remember = None
        for lane in self.lanes.values():
            lane.forget_plans()

    def release(self, slots: int, places: int) -> None:
        if slots >= self.slots and places >= self.places:
            return
        self.forget_plans()
        self.lanes.clear()
        self.backend.release(*self.cells(), *self.memory, *self.staged)
        self.encodings.clear()
        self.slots = self.places = 0
        self.memory, self.staged = [], []
        self.mask_rows.clear()
        self.masked.clear()
        self.reserve(slots, places)

    def mask_row(self, slots: Sequence[int], request: Request) -> int:
        """The row of `masks` with a request's suppression lists, from now on used by these slots.

        There is a row a slot, and each slot uses one, so one is free for other lists.
        """
        for slot in slots:
            self.masked.pop(slot, None)
        key = request.suppress, request.suppress_first
        row = self.mask_rows.get(key)
        if row is None:
            used = set(self.masked.values())
            row = next(row for row in range(self.slots) if row not in used)
            self.mask_rows = {k: other for k, other in self.mask_rows.items() if other != row}
            self.mask_rows[key] = row
            self.backend.write(self.masks, mask_of(request, self.config.n_vocab), row)
        self.masked.update(dict.fromkeys(slots, row))
        return row

    # -- the encoder --------------------------------------------------------------------------

    def encode(self, inputs: Sequence[EncoderInput], places: Sequence[int]) -> None:
        config, count = self.config, self.backend.padded_lines(len(inputs))
        shape = config.n_audio_ctx, config.n_audio_state
        encoding = self.encoding(count)
        encoding.run([given.features for given in inputs])
        audio = self.backend.view(encoding.audio, (count, *shape))
        heard = self.backend.view(self.heard, (1, *shape))
        for number, place in enumerate(places):
            self.backend.copy(audio, heard, [(number, 0)])
            self.remembering().run()
            for staged, memory in zip(self.staged, self.memory, strict=False):
                self.backend.copy(staged, memory, [(0, place)])

    def remembering(self) -> ops.Plan:
        """From the encoder's output of one window to every layer's keys and values of it."""
        if self.remember is None:
            targets = self.staged or self.memory
            slots = [self.backend.view(slot, slot.shape[1:]) for slot in targets]
            self.remember = self.backend.record(
                lambda: model.remember(self.backend, self.decoder, self.heard, slots),
                name="remember",
            )
        return self.remember

    def encoding(self, count: int) -> Encoding:
        """The pass over that many windows."""
        return self.encodings.get(count, lambda: Encoding(self, count))

    def encode_alone(self, mel: NDArray[np.float32]) -> NDArray[np.float32]:
        """The encoder's output: mel [2S, n_mels] -> [S, d]."""
        encoding = self.encoding(1)
        encoding.run([mel])
        found: NDArray[np.float32] = self.backend.read(encoding.audio)
        return found

    # -- checks -------------------------------------------------------------------------------

    def check(self, sequence: AnySequence[Any]) -> None:
        """Refuse what kernels would read beside their arrays. Raises UsageError."""
        if sequence.audio is not None:
            self.check_mel(sequence.audio.features)
        if isinstance(sequence, Decode):
            self.check_request(sequence.request)
        elif isinstance(sequence, Detect):
            self.check_ids((sequence.start, *sequence.ids))
        elif isinstance(sequence, Align):
            self.check_align(sequence)

    def check_mel(self, mel: NDArray[np.float32]) -> None:
        """A window of another size would silently be read as something else."""
        expected = (self.config.window_frames, self.config.n_mels)
        if mel.shape != expected:
            raise UsageError(f"mel window must have shape {expected}, not {mel.shape}")

    def check_request(self, request: Request) -> None:
        """Refuse what the caches cannot hold."""
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

    def check_align(self, sequence: Align) -> None:
        """Refuse a prompt that the caches cannot hold."""
        if not 1 <= len(sequence.prompt) <= self.config.n_text_ctx:
            raise UsageError(
                f"{len(sequence.prompt)} tokens cannot be aligned; the model has room for "
                f"{self.config.n_text_ctx}"
            )
        self.check_ids((*sequence.prompt, sequence.end))

    def check_ids(self, ids: Sequence[int]) -> None:
        """Refuse what is no token of this model."""
        vocabulary = self.config.n_vocab
        if min(ids) < 0 or max(ids) >= vocabulary:
            wrong = next(id for id in ids if not 0 <= id < vocabulary)
            raise UsageError(f"{wrong} is no token; this model has 0 to {vocabulary - 1}")
