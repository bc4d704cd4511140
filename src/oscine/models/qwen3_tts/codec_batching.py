"""Frames of running voices to sound: what each voice has to say next, decoded with the others'.

A frame lasts 80 ms. The first of a voice is decoded as soon as it is there, then calls of the codec
grow with what has been handed over: a voice at several times real time has the more audio ahead of
its playback the longer it has spoken, and larger calls take less time a frame. A call has at most a
quarter of the frames that were handed over, 4 to 12, so that a voice is not late where the device
makes 1.25 seconds of audio a second or more. The rule looks at no clock, nor at whether a text is
streamed: the same frames are cut into the same calls under any load, so that nothing but the number
of voices in a call may change how samples are rounded.
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

SMALL_CHUNK, LARGE_CHUNK = 4, 12  # frames of a call, after the first; a burst has as many as SMALL
MAX_CACHED_REFERENCES = 4  # whose state after their codes is kept

Wait = Callable[[], Samples]


def next_chunk_size(decoded: int) -> int:
    """Frames of a voice's next call after `taken` frames."""
    if not decoded:
        return 1
    return next(
        size for size in (LARGE_CHUNK, 8, SMALL_CHUNK) if size <= max(SMALL_CHUNK, decoded // 4)
    )


@dataclass(eq=False, slots=True)
class ActiveVoice:
    """An utterance that runs: frames that are read and not decoded, and what the guards know.

    slot: its place in the codec, if it is to sound. seen: frames that were read; of these `leaked`
    are its reference's, and `taken` went into calls of the codec. under_way: calls that are yet to
    be waited for. reason: why it has ended, once all is read.
    """

    entry: BatchEntry
    utterance: Utterance
    slot: int | None
    silence_gate: SilenceGate
    leak_detector: ReferenceLeakDetector | None = None
    repetition_detector: RepetitionDetector = field(default_factory=RepetitionDetector)
    undecided: list[Codes] = field(default_factory=list)  # may be the end of the reference
    pending: list[Codes] = field(default_factory=list)  # for the codec, or for the reader
    num_read: int = 0
    num_leaked: int = 0
    num_taken: int = 0
    chunks_in_flight: int = 0
    reason: str | None = None

    @property
    def num_pending(self) -> int:
        """Frames that wait."""
        return sum(map(len, self.pending))

    def take(self, count: int) -> Codes:
        """The first frames that wait."""
        frames = np.concatenate(self.pending)
        self.pending = [frames[count:]] if count < len(frames) else []
        self.num_taken += count
        return frames[:count]

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to be decoded."""
        return self.reason is not None and not self.pending and not self.chunks_in_flight


class CodecBatcher:
    """The codec of all running voices; `start` before their frames, `free` after them."""

    def __init__(self, codec: CodecDecoder, config: CodecConfig, device: str) -> None:
        self.codec, self.config, self.device = codec, config, device
        self.one_voice_per_chunk = (
            False  # a call of one voice each, so that its kernels are always the same
        )
        self.in_flight: list[
            tuple[list[ActiveVoice], list[int], Wait]
        ] = []  # calls under way, in order
        self.reference_slots = PlanCache[int](MAX_CACHED_REFERENCES, codec.release_slot)

    # -- voices -------------------------------------------------------------------------------

    def reserve(self, slots: int) -> None:
        """Have room for that many voices, and for references."""
        self.codec.reserve(slots + len(self.reference_slots))

    def release(self) -> None:
        """Give back the memory of all voices but one; none runs."""
        self.reference_slots.clear()
        self.codec.release()

    def start(self, entry: BatchEntry, utterance: Utterance) -> ActiveVoice:
        """A voice from its prompt on; its codec continues after the reference, if there is one."""
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
        """A slot of the codec behind the codes of a reference."""

        def prime() -> int:
            slot = self.codec.acquire_slot()
            self.codec.warm_up([slot], [reference])
            return slot

        return self.reference_slots.get(reference.tobytes(), prime)

    def free(self, voice: ActiveVoice) -> None:
        """It has ended or was given up."""
        if voice.slot is not None:
            self.codec.release_slot(voice.slot)
            voice.slot = None

    # -- frames in ----------------------------------------------------------------------------

    def add_frames(self, voice: ActiveVoice, codes: Codes, reason: str | None) -> None:
        """The next frames [n, G] of a voice, and why there are no more."""
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
        """The frames that are the voice's own, once it is known which are its reference's."""
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
        """Start calls for what is due; voices whose calls are of one length share them."""
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
        """Frames of its next call; 0 where it waits for more."""
        count = next_chunk_size(voice.num_taken)
        if voice.reason is not None:
            return min(count, voice.num_pending)
        return count if voice.num_pending >= count else 0

    def submit(self, voices: Sequence[ActiveVoice], count: int) -> None:
        """Start decoding `count` frames of each."""
        slots = [voice.slot for voice in voices if voice.slot is not None]
        wait = self.codec.submit(slots, [voice.take(count) for voice in voices])
        for voice in voices:
            voice.chunks_in_flight += 1
        self.in_flight.append(
            (list(voices), [voice.num_leaked + voice.num_taken for voice in voices], wait)
        )

    def deliver(self) -> Iterator[ActiveVoice]:
        """Hand over the samples of calls under way; yields the voices that have ended."""
        pending, self.in_flight = self.in_flight, []
        for voices, frames, wait in pending:
            waves = wait()
            for voice, made_of, wave in zip(voices, frames, waves, strict=True):
                voice.chunks_in_flight -= 1
                if not voice.entry.removed and voice.slot is not None:
                    yield from self.deliver_wave(voice, made_of, wave)

    def deliver_wave(self, voice: ActiveVoice, frames: int, wave: Samples) -> Iterator[ActiveVoice]:
        """Hand over the next samples of a voice as far as they may be heard; its first `frames`
        frames are heard by then."""
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
        """It has ended by itself, or where its frames repeat: what was held back is heard."""
        assert voice.reason is not None
        voice.utterance.deliver(voice.silence_gate.flush(), voice.num_read)
        voice.utterance.finish(UtteranceResult(voice.reason, voice.num_read))
        yield voice

    def is_reader_slow(self, utterance: Utterance) -> bool:
        """Whether its reader leaves so much untaken that its slot is better lent to others."""
        return (
            not utterance.unpaced and utterance.buffered > MAX_BUFFERED_S * self.config.sample_rate
        )

    def deliver_codes(self, voice: ActiveVoice) -> Iterator[ActiveVoice]:
        """Frames of a voice whose codes are wanted and no sound."""
        if voice.pending:
            codes = voice.take(voice.num_pending)
            voice.utterance.deliver(codes, voice.num_leaked + voice.num_taken)
        if voice.reason is not None:
            voice.utterance.finish(UtteranceResult(voice.reason, voice.num_read))
            yield voice


def pass_silence_gate(silence: SilenceGate, wave: Samples, hop: int) -> tuple[NDArray[Any], bool]:
    """What of a voice's next frames may be heard, frame by frame; whether it is silent for good."""
    passed: list[Samples] = []
    for start in range(0, len(wave), hop):
        passed.append(silence.push(wave[start : start + hop]))
        if silence.is_too_long:
            return np.concatenate(passed), True
    return np.concatenate(passed), False


def floor_power_of_two(count: int) -> int:
    """The largest power of two up to a number."""
    return 1 << max(0, count.bit_length() - 1)
