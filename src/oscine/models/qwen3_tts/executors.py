"""The batch executor of utterances: generates frames of all running voices and decodes them to
audio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter

from oscine import ops
from oscine.engine.runner import Arrays, BatchEntry, SnapshotRow
from oscine.errors import NonFiniteError, OscineError
from oscine.models.qwen3_tts.codec_batching import ActiveVoice, CodecBatcher
from oscine.models.qwen3_tts.embeddings import EmbeddingTables
from oscine.models.qwen3_tts.sequences import FINISH_REASONS, Codes, Utterance
from oscine.models.qwen3_tts.talker_runner import TalkerRunner

STEPS_PER_POLL = 4  # the next burst runs while the host reads the codes of the last

Clock = Callable[[str, float], None]  # books milliseconds of a stage to the model


class UtteranceExecutor:
    """Runs every voice of a model.

    Frames are read at each poll. The codec then starts decoding those of all voices, and the
    samples are delivered after the next burst has been submitted. `clock`: the engine books all
    time as "frames"; the shares of prefills and of the codec are booked under stages of their own.
    """

    stage, steps_per_poll, group_size = "frames", STEPS_PER_POLL, 1
    prefill_batch, poll_after_prefill = 16, True

    def __init__(
        self, talker: TalkerRunner, tables: EmbeddingTables, batcher: CodecBatcher, clock: Clock
    ) -> None:
        self.talker, self.tables, self.codec, self.clock = talker, tables, batcher, clock
        self.voices: dict[BatchEntry, ActiveVoice] = {}

    # -- as the engine drives it --------------------------------------------------------------

    def start(self, entries: Sequence[BatchEntry]) -> None:
        """Prefill the prompts and sample the first frame of each."""
        started = perf_counter()
        requests = [utterance_of(entry).request for entry in entries]
        prompts = self.tables.build_prompts([request.prompt for request in requests])
        for entry in entries:
            self.voices[entry] = self.codec.start(entry, utterance_of(entry))
        self.talker.admit(
            [
                (entry.row, entry.slots[0], request, prompt)
                for entry, request, prompt in zip(entries, requests, prompts, strict=True)
            ]
        )
        self.book_stage("prompt", started, entries)

    def step_plan(self, rows: int, entries: Sequence[BatchEntry]) -> ops.Plan:
        """The plan that generates one frame for the first `rows` rows."""
        return self.talker.step_plan(rows)

    def outputs(self, rows: int, entries: Sequence[BatchEntry]) -> tuple[ops.Tensor, ...]:
        """The state of the rows, and the codes of the slots in use."""
        return self.talker.outputs(rows, 1 + max(entry.slots[0] for entry in entries))

    def move_rows(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy state from row to row."""
        self.talker.move(moves)

    def stop_rows(self, rows: Iterable[int]) -> None:
        """Mark rows as done whose voices were cancelled."""
        for entry in [entry for entry in self.voices if entry.removed]:
            self.codec.free(self.voices.pop(entry))
        self.talker.stop(list(rows))

    def collect(self, snapshot_rows: Sequence[SnapshotRow], arrays: Arrays) -> Iterator[BatchEntry]:
        """Read the new frames of all voices and start decoding them; yields the ended entries."""
        rows, codes = arrays
        decoded: list[ActiveVoice] = []
        for entry, row in snapshot_rows:
            voice = self.voices.get(entry)
            if voice is None or voice.reason is not None:
                continue
            try:
                self.read_frames(voice, rows[row], codes[entry.slots[0]])
            except OscineError as error:
                voice.utterance.fail(error)
                yield self.finish_voice(voice)
            else:
                decoded.append(voice)
        started = perf_counter()
        self.codec.decode(decoded)
        self.book_stage("codec", started, list(self.voices))
        for voice in decoded:
            if voice.slot is None:
                ended = list(self.codec.deliver_codes(voice))
            else:
                ended = list(self.codec.finish(voice)) if voice.is_finished else []
            if ended:
                yield self.finish_voice(voice)
            else:
                entry = voice.entry
                entry.rows_done = voice.reason is not None
        if not self.talker.backend.is_async:
            yield from self.deliver()

    def deliver(self) -> Iterator[BatchEntry]:
        """Deliver the audio of the frames that were read last; yields the ended entries."""
        started, entries = perf_counter(), list(self.voices)
        for voice in self.codec.deliver():
            yield self.finish_voice(voice)
        self.book_stage("codec", started, entries)

    # -- voices -------------------------------------------------------------------------------

    def read_frames(self, voice: ActiveVoice, state: ops.Tensor, codes: Codes) -> None:
        """Read the frames that a voice has generated since the last poll."""
        done, count = int(state["done"]), int(state["count"])
        if done == ops.STOP_NONFINITE:
            raise NonFiniteError.of_network("logits", self.talker.backend.name)
        self.codec.add_frames(voice, codes[voice.num_read : count].copy(), FINISH_REASONS.get(done))

    def finish_voice(self, voice: ActiveVoice) -> BatchEntry:
        """Remove a voice from its row, which may still be running."""
        self.voices.pop(voice.entry, None)
        self.codec.free(voice)
        self.talker.stop([voice.entry.row])
        return voice.entry

    # -- time ---------------------------------------------------------------------------------

    def book_stage(self, stage: str, started: float, entries: Sequence[BatchEntry]) -> None:
        """Book the time since `started` under a stage of its own, in equal shares."""
        passed = 1000 * (perf_counter() - started)
        for entry in entries:
            for name, spent in ((stage, passed), (self.stage, -passed)):
                entry.sequence.caller.add_time(name, spent / len(entries))
                self.clock(name, spent / len(entries))


def utterance_of(entry: BatchEntry) -> Utterance:
    """The utterance of an entry of this executor's batch."""
    assert isinstance(entry.sequence, Utterance)
    return entry.sequence
