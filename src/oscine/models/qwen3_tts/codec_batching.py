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

from oscine.engine.runner import BatchEntry
from oscine.engine.slots import PlanCache
from oscine.errors import NonFiniteError
from oscine.models.qwen3_tts.codec_runner import CodecDecoder, Samples, checked_wave
from oscine.models.qwen3_tts.config import CodecConfig
from oscine.models.qwen3_tts.guards import Leak, Repetition, Silence
from oscine.models.qwen3_tts.sequences import MOST_WAITING, Codes, Said, Utterance, differs

SMALL, LARGE = 4, 12  # frames of a call, after the first; a burst has as many as SMALL
MOST_REFERENCES = 4  # whose state after their codes is kept

Wait = Callable[[], Samples]


def call_frames(taken: int) -> int:
    """Frames of a voice's next call after `taken` frames."""
    if not taken:
        return 1
    return next(size for size in (LARGE, 8, SMALL) if size <= max(SMALL, taken // 4))


@dataclass(eq=False, slots=True)
class Voice:
    """An utterance that runs: frames that are read and not decoded, and what the guards know.

    slot: its place in the codec, if it is to sound. seen: frames that were read; of these `leaked`
    are its reference's, and `taken` went into calls of the codec. under_way: calls that are yet to
    be waited for. reason: why it has ended, once all is read.
    """

    entry: BatchEntry
    utterance: Utterance
    slot: int | None
    silence: Silence
    leak: Leak | None = None
    repetition: Repetition = field(default_factory=Repetition)
    early: list[Codes] = field(default_factory=list)  # may be the end of the reference
    waiting: list[Codes] = field(default_factory=list)  # for the codec, or for the reader
    seen: int = 0
    leaked: int = 0
    taken: int = 0
    under_way: int = 0
    reason: str | None = None

    @property
    def frames(self) -> int:
        """Frames that wait."""
        return sum(map(len, self.waiting))

    def take(self, count: int) -> Codes:
        """The first frames that wait."""
        frames = np.concatenate(self.waiting)
        self.waiting = [frames[count:]] if count < len(frames) else []
        self.taken += count
        return frames[:count]

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be decoded."""
        return self.reason is not None and not self.waiting and not self.under_way


class Voicing:
    """The codec of all running voices; `start` before their frames, `free` after them."""

    def __init__(self, codec: CodecDecoder, config: CodecConfig, device: str) -> None:
        self.codec, self.config, self.device = codec, config, device
        self.one_by_one = False  # a call of one voice each, so that its kernels are always the same
        self.pending: list[tuple[list[Voice], list[int], Wait]] = []  # calls under way, in order
        self.references = PlanCache[int](MOST_REFERENCES, codec.free)

    # -- voices -------------------------------------------------------------------------------

    def reserve(self, slots: int) -> None:
        """Have room for that many voices, and for references."""
        self.codec.reserve(slots + len(self.references))

    def release(self) -> None:
        """Give back the memory of all voices but one; none runs."""
        self.references.clear()
        self.codec.release()

    def start(self, entry: BatchEntry, utterance: Utterance) -> Voice:
        """A voice from its prompt on; its codec continues after the reference, if there is one."""
        utterance.begin_again()
        silence = Silence(self.config.rate, self.config.hop)
        voice = Voice(entry, utterance, None, silence)
        reference = utterance.reference
        if utterance.sounds:
            voice.slot = self.codec.take()
        if reference is not None:
            if voice.slot is not None:
                self.codec.copy(self.primed(reference), voice.slot)
            if utterance.guarded:
                voice.leak = Leak(reference)
        return voice

    def primed(self, reference: Codes) -> int:
        """A slot of the codec behind the codes of a reference."""

        def prime() -> int:
            slot = self.codec.take()
            self.codec.prime([slot], [reference])
            return slot

        return self.references.get(reference.tobytes(), prime)

    def free(self, voice: Voice) -> None:
        """It has ended or was given up."""
        if voice.slot is not None:
            self.codec.free(voice.slot)
            voice.slot = None

    # -- frames in ----------------------------------------------------------------------------

    def hear(self, voice: Voice, codes: Codes, reason: str | None) -> None:
        """The next frames [n, G] of a voice, and why there are no more."""
        utterance = voice.utterance
        if not utterance.agrees(voice.seen, codes):
            raise differs(self.device)
        voice.seen += len(codes)
        own = self.without_leak(voice, codes, reason is not None)
        if len(own):
            voice.waiting.append(own)
        if utterance.guarded and len(own) and voice.repetition.push(own):
            reason = "repetition"
        voice.reason = reason

    def without_leak(self, voice: Voice, codes: Codes, last: bool) -> Codes:
        """The frames that are the voice's own, once it is known which are its reference's."""
        if voice.leak is None:
            return codes
        voice.early.append(codes)
        leaked = voice.leak.push(codes)
        if leaked is None and not last:
            return codes[:0]
        codes, voice.early, voice.leak = np.concatenate(voice.early), [], None
        if leaked:
            if voice.slot is not None:
                self.codec.prime([voice.slot], [codes[:leaked]])
            voice.leaked = leaked
        return codes[leaked or 0 :]

    # -- sound out ----------------------------------------------------------------------------

    def decode(self, voices: Iterable[Voice]) -> None:
        """Start calls for what is due; voices whose calls are of one length share them."""
        left = [voice for voice in voices if voice.slot is not None]
        while left:
            groups: dict[int, list[Voice]] = {}
            for voice in left:
                count = self.due(voice)
                if count:
                    groups.setdefault(count, []).append(voice)
            for count, together in sorted(groups.items()):
                most = 1 if self.one_by_one else largest_power(self.codec.most // count)
                for start in range(0, len(together), most):
                    self.call(together[start : start + most], count)
            left = [voice for group in groups.values() for voice in group]

    def due(self, voice: Voice) -> int:
        """Frames of its next call; 0 where it waits for more."""
        count = call_frames(voice.taken)
        if voice.reason is not None:
            return min(count, voice.frames)
        return count if voice.frames >= count else 0

    def call(self, voices: Sequence[Voice], count: int) -> None:
        """Start decoding `count` frames of each."""
        slots = [voice.slot for voice in voices if voice.slot is not None]
        wait = self.codec.begin(slots, [voice.take(count) for voice in voices])
        for voice in voices:
            voice.under_way += 1
        self.pending.append((list(voices), [voice.leaked + voice.taken for voice in voices], wait))

    def deliver(self) -> Iterator[Voice]:
        """Hand over the samples of calls under way; yields the voices that have ended."""
        pending, self.pending = self.pending, []
        for voices, frames, wait in pending:
            waves = wait()
            for voice, made_of, wave in zip(voices, frames, waves, strict=True):
                voice.under_way -= 1
                if not voice.entry.removed and voice.slot is not None:
                    yield from self.heard(voice, made_of, wave)

    def heard(self, voice: Voice, frames: int, wave: Samples) -> Iterator[Voice]:
        """Hand over the next samples of a voice as far as they may be heard; its first `frames`
        frames are heard by then."""
        utterance = voice.utterance
        try:
            wave = checked_wave(wave)
        except NonFiniteError as error:
            utterance.fail(error)
            yield voice
            return
        if utterance.guarded:
            wave, ended = guarded(voice.silence, wave, self.config.hop)
            if ended:
                utterance.hand_over(wave, frames)
                utterance.finish(Said("silence", voice.seen))
                yield voice
                return
        utterance.hand_over(wave, frames)
        if voice.is_over:
            yield from self.finished(voice)
        elif self.is_slow(utterance):
            utterance.parked = True
            yield voice

    def finished(self, voice: Voice) -> Iterator[Voice]:
        """It has ended by itself, or where its frames repeat: what was held back is heard."""
        assert voice.reason is not None
        voice.utterance.hand_over(voice.silence.rest(), voice.seen)
        voice.utterance.finish(Said(voice.reason, voice.seen))
        yield voice

    def is_slow(self, utterance: Utterance) -> bool:
        """Whether its reader leaves so much untaken that its slot is better lent to others."""
        return not utterance.whole and utterance.untaken > MOST_WAITING * self.config.rate

    def hand_codes(self, voice: Voice) -> Iterator[Voice]:
        """Frames of a voice whose codes are wanted and no sound."""
        if voice.waiting:
            codes = voice.take(voice.frames)
            voice.utterance.hand_over(codes, voice.leaked + voice.taken)
        if voice.reason is not None:
            voice.utterance.finish(Said(voice.reason, voice.seen))
            yield voice


def guarded(silence: Silence, wave: Samples, hop: int) -> tuple[NDArray[Any], bool]:
    """What of a voice's next frames may be heard, frame by frame; whether it is silent for good."""
    passed: list[Samples] = []
    for start in range(0, len(wave), hop):
        passed.append(silence.push(wave[start : start + hop]))
        if silence.lasts:
            return np.concatenate(passed), True
    return np.concatenate(passed), False


def largest_power(count: int) -> int:
    """The largest power of two up to a number."""
    return 1 << max(0, count.bit_length() - 1)
