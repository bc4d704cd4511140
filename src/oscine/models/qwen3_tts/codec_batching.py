"""Decodes the frames of running voices to audio, in batches of equal chunks.

A frame lasts 80 ms. The first frame of a voice is decoded at once, then chunks grow with the audio
that was delivered: a voice generated at several times real time has the more audio buffered the
longer it has run, and larger chunks take less time a frame. A chunk has at most a quarter of the
delivered frames, 4 to 12, so that no voice underruns on a device that generates at least 1.25
seconds of audio a second. Chunk sizes depend on no clock, and not on whether a text is streamed:
equal frames are split into equal chunks under any load, so that only the number of voices in a
chunk can change how samples are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oscine.engine.plan_cache import PlanCache
from oscine.engine.runner import BatchEntry
from oscine.errors import NonFiniteError
from oscine.models.qwen3_tts.codec_runner import CodecDecoder, Samples, check_waveform
from oscine.models.qwen3_tts.config import CodecConfig
from oscine.models.qwen3_tts.guards import ReferenceLeakDetector, RepetitionDetector, SilenceGate
from oscine.models.qwen3_tts.sequences import (
    MAX_BUFFERED_S,
    Codes,
    Utterance,
    UtteranceResult,
    speech_changed,
)

SMALL_CHUNK, LARGE_CHUNK = 4, 12  # frames after the first; a burst has SMALL_CHUNK frames
MAX_CACHED_REFERENCES = 4  # references whose codec state is kept

Wait = Callable[[], Samples]


def next_chunk_size(decoded: int) -> int:
    """Frames of a voice's next chunk after `decoded` frames."""
    if not decoded:
        return 1
    return next(
        size for size in (LARGE_CHUNK, 8, SMALL_CHUNK) if size <= max(SMALL_CHUNK, decoded // 4)
    )


@dataclass(eq=False, slots=True)
class ActiveVoice:
    """A running utterance: frames that are read and not yet decoded, and the state of its guards.

    slot: its codec slot, if it returns audio. num_read: frames that were read; of these
    `num_leaked` are its reference's, and `num_taken` were submitted to the codec. chunks_in_flight:
    submitted chunks that were not waited for. reason: why it ended, once all frames are read.
    """

    entry: BatchEntry
    utterance: Utterance
    slot: int | None
    silence_gate: SilenceGate
    leak_detector: ReferenceLeakDetector | None = None
    repetition_detector: RepetitionDetector = field(default_factory=RepetitionDetector)
    undecided: list[Codes] = field(default_factory=list)  # may be the end of the reference
    pending: list[Codes] = field(default_factory=list)  # for the codec, or for the reader of codes
    num_read: int = 0
    num_leaked: int = 0
    num_taken: int = 0
    chunks_in_flight: int = 0
    reason: str | None = None

    @property
    def num_pending(self) -> int:
        """Frames that are not yet decoded."""
        return sum(map(len, self.pending))

    def take(self, count: int) -> Codes:
        """Remove and return the first pending frames."""
        frames = np.concatenate(self.pending)
        self.pending = [frames[count:]] if count < len(frames) else []
        self.num_taken += count
        return frames[:count]

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to decode."""
        return self.reason is not None and not self.pending and not self.chunks_in_flight


class CodecBatcher:
    """Batches the codec over all running voices: `start` before a voice's frames, `free` after
    them.
    """

    def __init__(self, codec: CodecDecoder, config: CodecConfig, device: str) -> None:
        self.codec, self.config, self.device = codec, config, device
        self.one_voice_per_chunk = False  # so that its kernels are always the same
        self.in_flight: list[tuple[list[ActiveVoice], list[int], Wait]] = []  # in order
        self.reference_slots = PlanCache[int](MAX_CACHED_REFERENCES, codec.release_slot)

    # -- voices -------------------------------------------------------------------------------

    def reserve(self, slots: int) -> None:
        """Reserve slots for that many voices, and for references."""
        self.codec.reserve(slots + len(self.reference_slots))

    def release(self) -> None:
        """Free the memory of all voices but one; none may be running."""
        self.reference_slots.clear()
        self.codec.release()

    def start(self, entry: BatchEntry, utterance: Utterance) -> ActiveVoice:
        """Start a voice from its prompt; its codec continues after the reference, if there
        is one.
        """
        utterance.rewind()
        silence = SilenceGate(self.config.sample_rate, self.config.hop_length)
        voice = ActiveVoice(entry, utterance, None, silence)
        reference = utterance.reference
        if utterance.returns_audio:
            voice.slot = self.codec.acquire_slot()
        if reference is not None:
            if voice.slot is not None:
                self.codec.copy(self.reference_slot(reference), voice.slot)
            if utterance.guard:
                voice.leak_detector = ReferenceLeakDetector(reference)
        return voice

    def reference_slot(self, reference: Codes) -> int:
        """A codec slot with the state after a reference's codes."""

        def warm_up() -> int:
            slot = self.codec.acquire_slot()
            self.codec.warm_up([slot], [reference])
            return slot

        return self.reference_slots.get(reference.tobytes(), warm_up)

    def free(self, voice: ActiveVoice) -> None:
        """Free the slot of a voice that ended or was cancelled."""
        if voice.slot is not None:
            self.codec.release_slot(voice.slot)
            voice.slot = None

    # -- frames in ----------------------------------------------------------------------------

    def add_frames(self, voice: ActiveVoice, codes: Codes, reason: str | None) -> None:
        """Add the next frames [n, G] of a voice, and why there are no more."""
        utterance = voice.utterance
        if not utterance.matches_previous_run(voice.num_read, codes):
            raise speech_changed(self.device)
        voice.num_read += len(codes)
        own = self.drop_leak(voice, codes, reason is not None)
        if len(own):
            voice.pending.append(own)
        if utterance.guard and len(own) and voice.repetition_detector.push(own):
            reason = "repetition"
        voice.reason = reason

    def drop_leak(self, voice: ActiveVoice, codes: Codes, last: bool) -> Codes:
        """The frames that belong to the voice, once it is known which are leaked from its
        reference.
        """
        if voice.leak_detector is None:
            return codes
        voice.undecided.append(codes)
        leaked = voice.leak_detector.push(codes)
        if leaked is None and not last:
            return codes[:0]
        codes, voice.undecided, voice.leak_detector = np.concatenate(voice.undecided), [], None
        if leaked:
            if voice.slot is not None:
                self.codec.warm_up([voice.slot], [codes[:leaked]])
            voice.num_leaked = leaked
        return codes[leaked or 0 :]

    # -- sound out ----------------------------------------------------------------------------

    def decode(self, voices: Iterable[ActiveVoice]) -> None:
        """Submit all chunks that are due; voices whose chunks have one size share a batch."""
        left = [voice for voice in voices if voice.slot is not None]
        while left:
            groups: dict[int, list[ActiveVoice]] = {}
            for voice in left:
                count = self.next_chunk(voice)
                if count:
                    groups.setdefault(count, []).append(voice)
            for count, together in sorted(groups.items()):
                most = (
                    1
                    if self.one_voice_per_chunk
                    else floor_power_of_two(self.codec.max_frames // count)
                )
                for start in range(0, len(together), most):
                    self.submit(together[start : start + most], count)
            left = [voice for group in groups.values() for voice in group]

    def next_chunk(self, voice: ActiveVoice) -> int:
        """Frames of a voice's next chunk; 0 if it must wait for more."""
        count = next_chunk_size(voice.num_taken)
        if voice.reason is not None:
            return min(count, voice.num_pending)
        return count if voice.num_pending >= count else 0

    def submit(self, voices: Sequence[ActiveVoice], count: int) -> None:
        """Start decoding `count` frames of each voice."""
        slots = [voice.slot for voice in voices if voice.slot is not None]
        wait = self.codec.submit(slots, [voice.take(count) for voice in voices])
        for voice in voices:
            voice.chunks_in_flight += 1
        self.in_flight.append(
            (list(voices), [voice.num_leaked + voice.num_taken for voice in voices], wait)
        )

    def deliver(self) -> Iterator[ActiveVoice]:
        """Deliver the samples of the chunks in flight; yields the voices that ended."""
        pending, self.in_flight = self.in_flight, []
        for voices, frames, wait in pending:
            waves = wait()
            for voice, made_of, wave in zip(voices, frames, waves, strict=True):
                voice.chunks_in_flight -= 1
                if not voice.entry.removed and voice.slot is not None:
                    yield from self.deliver_wave(voice, made_of, wave)

    def deliver_wave(self, voice: ActiveVoice, frames: int, wave: Samples) -> Iterator[ActiveVoice]:
        """Deliver a voice's next samples as far as its guard allows; they end its first `frames`
        frames.
        """
        utterance = voice.utterance
        try:
            wave = check_waveform(wave)
        except NonFiniteError as error:
            utterance.fail(error)
            yield voice
            return
        if utterance.guard:
            wave, ended = pass_silence_gate(voice.silence_gate, wave, self.config.hop_length)
            if ended:
                utterance.deliver(wave, frames)
                utterance.finish(UtteranceResult("silence", voice.num_read))
                yield voice
                return
        utterance.deliver(wave, frames)
        if voice.is_finished:
            yield from self.finish(voice)
        elif self.is_reader_slow(utterance):
            utterance.preempted = True
            yield voice

    def finish(self, voice: ActiveVoice) -> Iterator[ActiveVoice]:
        """Finish a voice that ended, by itself or in a loop, and deliver the silence that was held
        back.
        """
        assert voice.reason is not None
        voice.utterance.deliver(voice.silence_gate.flush(), voice.num_read)
        voice.utterance.finish(UtteranceResult(voice.reason, voice.num_read))
        yield voice

    def is_reader_slow(self, utterance: Utterance) -> bool:
        """Whether so much audio is unread that the slot is better used for other utterances."""
        return (
            not utterance.unpaced and utterance.buffered > MAX_BUFFERED_S * self.config.sample_rate
        )

    def deliver_codes(self, voice: ActiveVoice) -> Iterator[ActiveVoice]:
        """Deliver the frames of a voice that returns codes; yields the voice if it ended."""
        if voice.pending:
            codes = voice.take(voice.num_pending)
            voice.utterance.deliver(codes, voice.num_leaked + voice.num_taken)
        if voice.reason is not None:
            voice.utterance.finish(UtteranceResult(voice.reason, voice.num_read))
            yield voice


def pass_silence_gate(silence: SilenceGate, wave: Samples, hop: int) -> tuple[NDArray[Any], bool]:
    """The samples that pass a voice's silence gate, frame by frame; whether it is silent
    for good.
    """
    passed: list[Samples] = []
    for start in range(0, len(wave), hop):
        passed.append(silence.push(wave[start : start + hop]))
        if silence.is_too_long:
            return np.concatenate(passed), True
    return np.concatenate(passed), False


def floor_power_of_two(count: int) -> int:
    """The largest power of two up to a number."""
    return 1 << max(0, count.bit_length() - 1)
