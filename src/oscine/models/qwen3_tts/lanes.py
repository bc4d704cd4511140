"""The lane of utterances: frames of all running voices, burst by burst, and their sound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter

from oscine import ops
from oscine.engine.runner import Arrays, Look, Seat
from oscine.errors import NonFiniteError, OscineError
from oscine.models.qwen3_tts.codec_batching import Voice, Voicing
from oscine.models.qwen3_tts.embeddings import EmbeddingTables
from oscine.models.qwen3_tts.sequences import STOPS, Codes, Utterance
from oscine.models.qwen3_tts.talker_runner import Talker

BURST = 4  # frames between two looks at the codes; the next burst runs while the host looks

Clock = Callable[[str, float], None]  # books milliseconds of a stage to the model


class UtteranceLane:
    """Every voice of a model. Frames are read at a poll, and the codec then takes those of all
    voices; what it makes of them is handed over once the next burst is on its way.

    `clock`: the engine books all time as "frames"; the shares of prompts and of the codec are taken
    out of it.
    """

    stage, burst, width, most, looks_first = "frames", BURST, 1, 16, True

    def __init__(
        self, talker: Talker, tables: EmbeddingTables, voicing: Voicing, clock: Clock
    ) -> None:
        self.talker, self.tables, self.voicing, self.clock = talker, tables, voicing, clock
        self.voices: dict[Seat, Voice] = {}

    # -- as the engine drives it --------------------------------------------------------------

    def start(self, seats: Sequence[Seat]) -> None:
        """Run the prompts, and choose the first frame of each."""
        started = perf_counter()
        requests = [utterance_of(seat).request for seat in seats]
        prompts = self.tables.prompts([request.prompt for request in requests])
        for seat in seats:
            self.voices[seat] = self.voicing.start(seat, utterance_of(seat))
        self.talker.admit(
            [
                (seat.row, seat.slots[0], request, prompt)
                for seat, request, prompt in zip(seats, requests, prompts, strict=True)
            ]
        )
        self.book_apart("prompt", started, seats)

    def step(self, rows: int, seats: Sequence[Seat]) -> ops.Plan:
        """A frame more for the first `rows` rows."""
        return self.talker.step(rows)

    def outputs(self, rows: int, seats: Sequence[Seat]) -> tuple[ops.Tensor, ...]:
        """State of the rows, and the codes of the slots in use."""
        return self.talker.outputs(rows, 1 + max(seat.slots[0] for seat in seats))

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy state from row to row."""
        self.talker.move(moves)

    def stop(self, rows: Iterable[int]) -> None:
        """Mark rows as done; their voices were given up."""
        for seat in [seat for seat in self.voices if seat.over]:
            self.voicing.free(self.voices.pop(seat))
        self.talker.stop(list(rows))

    def collect(self, looks: Sequence[Look], arrays: Arrays) -> Iterator[Seat]:
        """Read the new frames of all voices, and start their sound."""
        rows, codes = arrays
        heard: list[Voice] = []
        for seat, row in looks:
            voice = self.voices.get(seat)
            if voice is None or voice.reason is not None:
                continue
            try:
                self.read(voice, rows[row], codes[seat.slots[0]])
            except OscineError as error:
                voice.utterance.fail(error)
                yield self.end(voice)
            else:
                heard.append(voice)
        started = perf_counter()
        self.voicing.decode(heard)
        self.book_apart("codec", started, list(self.voices))
        for voice in heard:
            if voice.slot is None:
                ended = list(self.voicing.hand_codes(voice))
            else:
                ended = list(self.voicing.finished(voice)) if voice.is_over else []
            if ended:
                yield self.end(voice)
            else:
                seat = voice.seat
                seat.spent = voice.reason is not None
        if not self.talker.backend.runs_ahead:
            yield from self.deliver()

    def deliver(self) -> Iterator[Seat]:
        """Hand over the sound of the frames that were read last."""
        started, seats = perf_counter(), list(self.voices)
        for voice in self.voicing.deliver():
            yield self.end(voice)
        self.book_apart("codec", started, seats)

    # -- voices -------------------------------------------------------------------------------

    def read(self, voice: Voice, state: ops.Tensor, codes: Codes) -> None:
        """The frames that a voice has chosen since the last look."""
        done, count = int(state["done"]), int(state["count"])
        if done == ops.STOP_NONFINITE:
            raise NonFiniteError.of_network("logits", self.talker.backend.name)
        self.voicing.hear(voice, codes[voice.seen : count].copy(), STOPS.get(done))

    def end(self, voice: Voice) -> Seat:
        """A voice leaves its rows, which may still run."""
        self.voices.pop(voice.seat, None)
        self.voicing.free(voice)
        self.talker.stop([voice.seat.row])
        return voice.seat

    # -- time ---------------------------------------------------------------------------------

    def book_apart(self, stage: str, started: float, seats: Sequence[Seat]) -> None:
        """Book the time since `started`, in equal shares, under a stage of its own."""
        passed = 1000 * (perf_counter() - started)
        for seat in seats:
            for name, spent in ((stage, passed), (self.stage, -passed)):
                seat.sequence.caller.clock(name, spent / len(seats))
                self.clock(name, spent / len(seats))


def utterance_of(seat: Seat) -> Utterance:
    """What a seat of this lane has."""
    assert isinstance(seat.sequence, Utterance)
    return seat.sequence
