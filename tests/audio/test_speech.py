"""Speech detection: what counts as speech, what is kept, where recordings are split."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscine.audio.features import WhisperFeatures
from oscine.audio.io import decode, open_source
from oscine.audio.speech import GRID_SAMPLES, SpeechMap, detect_speech, split_at_silence
from oscine.audio.timeline import InMemory, Timeline
from oscine.audio.vad import CHUNK_SAMPLES, Span, VadOptions

SILENCE = np.zeros(16_000, np.float32)
SHARP = VadOptions(min_silence_duration_ms=400, speech_pad_ms=100)


@pytest.fixture(scope="module")
def spoken(example) -> np.ndarray:
    """8 seconds of speech, float32 at 16 kHz."""
    return decode(example).samples


@pytest.fixture(scope="module")
def gapped(spoken) -> np.ndarray:
    """Silence, speech, silence, speech, silence: 3 s each of silence."""
    rest = np.tile(SILENCE, 3)
    return np.concatenate([rest, spoken, rest, spoken, rest])


def all_of(recording) -> np.ndarray:
    return np.concatenate([*recording.blocks(), np.zeros(0, np.float32)])


def test_without_listening_all_is_kept(spoken):
    speech = detect_speech(open_source(spoken), vad=None)
    assert speech.spans is None
    assert speech.probabilities is None
    assert speech.timeline.is_identity
    assert speech.duration == len(spoken) / 16_000
    assert speech.samples == len(spoken)
    assert np.array_equal(all_of(speech.recording), spoken)
    assert speech.speech_seconds(0, 99) == 0.0
    assert speech.seconds_outside([]) == 0.0


@pytest.mark.parametrize("cached_seconds", [0, 600])
def test_speech_between_silences(gapped, spoken, cached_seconds):
    speech = detect_speech(open_source(gapped), vad=VadOptions(), cached_seconds=cached_seconds)
    first, second = speech.spans
    length = len(spoken) / 16_000
    for span, start in ((first, 3), (second, 6 + length)):
        assert span.start / 16_000 == pytest.approx(start, abs=0.25)
        assert span.end / 16_000 == pytest.approx(start + length, abs=0.6)  # its own
    line = speech.timeline
    assert len(line.pieces) == 2
    assert all(start % GRID_SAMPLES == 0 for start, _ in line.pieces)
    assert all(end % GRID_SAMPLES == 0 for _, end in line.pieces)
    kept = np.concatenate([gapped[start:end] for start, end in line.pieces])
    assert np.array_equal(all_of(speech.recording), kept)
    assert line.original_time(line.duration, end=True) == pytest.approx(6 + 2 * length, abs=0.6)


def test_recordings_up_to_the_limit_are_read_once_and_longer_ones_again(gapped):
    class Counted:
        name = "counted"
        readings = 0

        def blocks(self, rate: int = 16_000) -> Iterator[np.ndarray]:
            self.readings += 1
            yield from np.array_split(gapped, 9)

    for cached_seconds, readings in ((600, 1), (1, 2)):
        source = Counted()
        speech = detect_speech(source, vad=VadOptions(), cached_seconds=cached_seconds)
        assert speech.recording.name == "counted"
        all_of(speech.recording)
        assert source.readings == readings


def test_check_is_called_once_a_block_and_may_stop(gapped):
    class Stop(Exception):  # noqa: N818  # no error
        pass

    calls = []

    def check() -> None:
        calls.append(None)
        if len(calls) == 3:
            raise Stop

    with pytest.raises(Stop):
        detect_speech(open_source(gapped), vad=VadOptions(), check=check)


def tone(seconds: float, hertz: float = 440, level: float = 0.5) -> np.ndarray:
    return level * np.sin(2 * np.pi * hertz * np.arange(int(16_000 * seconds)) / 16_000)


def noise(seconds: float, level: float) -> np.ndarray:
    return level * np.random.default_rng(3).standard_normal(int(16_000 * seconds))


@pytest.mark.parametrize(
    "samples",
    [np.zeros(480_000), tone(30), tone(30, level=0.01), noise(30, 0.1), noise(30, 0.001),
     noise(30, 1e-5), noise(5, 3.0), np.zeros(0), np.zeros(1), np.ones(1), np.full(40_000, 0.3)],
    ids=["silence", "tone", "faint tone", "noise", "faint noise", "the last bit", "loud noise",
         "nothing", "one sample of silence", "one sample", "direct current"],
)  # fmt: skip
def test_what_is_no_speech(samples):
    speech = detect_speech(open_source(samples.astype(np.float32)), vad=VadOptions())
    assert speech.spans == []
    assert speech.timeline.duration == 0.0
    assert not len(all_of(speech.recording))
    assert speech.speech_seconds(0, 99) == 0.0
    assert speech.seconds_outside([(0, 1)]) == 0.0
    assert WhisperFeatures(speech.recording, 80, 3000).frames == 0
    assert split_at_silence(speech, 0, 0, 3000) == []


@pytest.mark.parametrize("level", [1.0, 0.05, 0.001, 5000.0])
@pytest.mark.parametrize("milliseconds", [300, 500, 990])
def test_a_word_alone_is_speech_at_any_level(spoken, level, milliseconds):
    length = milliseconds * 16
    heard = [
        bool(detect_speech(open_source(spoken[at : at + length] * level), vad=VadOptions()).spans)
        for at in range(0, 6 * 16_000, 8000)
    ]
    assert sum(heard) >= len(heard) - 1  # one may fall into a pause


@pytest.mark.parametrize("milliseconds", [300, 600, 900])
def test_words_cut_out_of_a_recording_are_kept(shared_audio, milliseconds):
    samples = decode(shared_audio / "jfk.flac").samples
    # Middles of words as faster-whisper (base) times them: fellow, your, country, you, ask, do.
    for middle in (1.39, 5.64, 6.0, 7.21, 8.16, 9.45):
        start = int((middle - milliseconds / 2000) * 16_000)
        clip = samples[start : start + 16 * milliseconds]
        speech = detect_speech(open_source(clip), vad=VadOptions())
        low, high = speech.timeline.span_at(speech.duration / 2)
        assert low <= max(0.0, speech.duration / 2 - 0.2), middle
        assert high >= min(speech.duration, speech.duration / 2 + 0.1), middle


def test_a_faint_recording_has_the_spans_of_a_loud_one(gapped):
    loud = detect_speech(open_source(gapped), vad=VadOptions())
    for cached_seconds in (0, 600):
        faint = detect_speech(
            open_source(gapped * 0.002), vad=VadOptions(), cached_seconds=cached_seconds
        )
        assert len(faint.spans) == 2
        for a, b in zip(loud.spans, faint.spans, strict=True):
            assert abs(a.start - b.start) <= 2 * CHUNK_SAMPLES
            assert abs(a.end - b.end) <= 2 * CHUNK_SAMPLES


def made_up(
    levels: list[tuple[float, int]], options: VadOptions = SHARP, **given_line
) -> SpeechMap:
    """Speech with given probabilities; all of it is kept unless a time line says otherwise."""
    heard = np.array([level for level, count in levels for _ in range(count)], np.float32)
    samples = len(heard) * CHUNK_SAMPLES
    line = given_line.get("timeline") or Timeline.identity(samples)
    spans = [Span(0, samples)] if samples else []
    held = InMemory("made up", np.zeros(0, np.float32))
    return SpeechMap(samples / 16_000, samples, spans, heard, line, held, options)


def test_seconds_of_speech_leave_pauses_out():
    second = 16_000 / CHUNK_SAMPLES  # 31.25 chunks
    speech = made_up([(0.9, 125), (0.0, 125), (0.9, 5), (0.0, 4), (0.9, 116)])  # 4, 4, 4 s
    assert speech.speech_seconds(0, 12) == pytest.approx(8)
    assert speech.speech_seconds(0, 4) == pytest.approx(4)
    assert speech.speech_seconds(4, 8) == 0
    assert speech.speech_seconds(3, 9) == pytest.approx(2)
    assert speech.speech_seconds(-5, 99) == pytest.approx(8)
    assert speech.speech_seconds(5, 5) == speech.speech_seconds(6, 5) == 0
    assert speech.seconds_outside([]) == pytest.approx(8)
    assert speech.seconds_outside([(0, 4), (8, 12)]) == pytest.approx(0)
    assert speech.seconds_outside([(8, 10), (0, 3), (1, 2), (2, 3.5)]) == pytest.approx(2.5)
    assert second == 31.25


@given(
    levels=st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(1, 60)), max_size=12),
    intervals=st.lists(st.tuples(st.floats(-1, 12), st.floats(0, 5)), max_size=6),
    cut=st.floats(0, 12),
)
@settings(max_examples=100, deadline=None)
def test_speech_seconds_add_up(levels, intervals, cut):
    speech = made_up(levels)
    total = speech.speech_seconds(0, speech.duration)
    assert 0 <= total <= speech.duration + 1e-9
    cut = min(cut, speech.duration)
    parts = speech.speech_seconds(0, cut) + speech.speech_seconds(cut, speech.duration)
    assert parts == pytest.approx(total)
    missed = speech.seconds_outside([(start, start + length) for start, length in intervals])
    assert 0 <= missed <= total + 1e-9
    assert missed >= total - sum(length for _, length in intervals) - 1e-9
    assert speech.seconds_outside([(0, speech.duration)]) == pytest.approx(0)


@given(
    levels=st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(1, 40)), max_size=12),
    edges=st.lists(st.floats(0, 1), max_size=6, unique=True),
    start=st.floats(0, 1),
    longest=st.integers(1, 700),
    listened=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_windows_follow_each_other(levels, edges, start, longest, listened):
    samples = sum(count for _, count in levels) * CHUNK_SAMPLES
    places = sorted(int(edge * samples) for edge in edges)
    spans = [Span(*places[i : i + 2]) for i in range(0, len(places) - 1, 2)]
    line = Timeline(spans, samples) if spans else None
    speech = made_up(levels, timeline=line)
    if not listened:
        speech = SpeechMap(speech.duration, samples, None, None, speech.timeline, speech.recording)
    end = speech.timeline.trimmed_samples // 160
    first = int(start * end)
    windows = split_at_silence(speech, first, end, longest)
    if first == end:
        assert windows == []
        return
    assert windows[0][0] == first
    assert windows[-1][1] == end
    assert all(before[1] == after[0] for before, after in pairwise(windows))
    sizes = [high - low for low, high in windows]
    assert 0 < min(sizes) <= max(sizes) <= longest
    if len(windows) > 1:
        assert min(sizes) >= longest // 3
    if not listened:
        assert max(sizes) - min(sizes) <= 1


def test_windows_are_cut_in_a_long_silence_near_their_end():
    # 30 s; silences: short at 18 s, 1 s in the middle of 24 to 25 s, short at 29 s.
    levels = [(0.9, 562), (0.1, 8), (0.9, 180), (0.2, 31), (0.9, 125), (0.1, 8), (0.9, 400)]
    (_, cut), (again, _) = split_at_silence(made_up(levels), 0, 4000, 3000)
    assert cut == again == pytest.approx(2450, abs=4)


def test_a_good_silence_in_the_last_fifth_is_preferred():
    # 30 s; silences: 3 s at 20 to 23 s, 1.1 s at 27 s; the same with 0.6 s there.
    for chunks, expected in ((35, 2756), (19, 2150)):
        levels = [(0.9, 625), (0.1, 94), (0.9, 125), (0.1, chunks), (0.9, 600)]
        (_, cut), *_ = split_at_silence(made_up(levels), 0, 4000, 3000)
        assert cut == pytest.approx(expected, abs=4)


def test_windows_without_silence_are_cut_where_speech_is_least_probable():
    levels = [(0.9, 800), (0.6, 1), (0.9, 600)]
    (_, cut), _ = split_at_silence(made_up(levels), 0, 4000, 3000)
    assert cut == pytest.approx(800.5 * 3.2, abs=1)


def test_what_was_cut_out_counts_as_silence():
    # Speech all along but for a short pause at 24 s; 27 to 29 s were cut out: joint at 27 s.
    levels = [(0.9, 750), (0.1, 10), (0.9, 84), (0.1, 62), (0.9, 600)]
    samples = sum(count for _, count in levels) * CHUNK_SAMPLES
    line = Timeline([Span(0, 844 * CHUNK_SAMPLES), Span(906 * CHUNK_SAMPLES, samples)], samples)
    (_, cut), *_ = split_at_silence(made_up(levels, timeline=line), 0, 4000, 3000)
    assert cut == round(844 * 3.2)


def test_no_word_is_cut_in_real_speech(gapped):
    speech = detect_speech(open_source(gapped), vad=SHARP)
    end = speech.timeline.trimmed_samples // 160
    for longest in (500, 700, 1500):
        for _, cut in split_at_silence(speech, 0, end, longest)[:-1]:
            place = speech.timeline.original_time(cut / 100)
            around = gapped[int(place * 16_000) - 160 : int(place * 16_000) + 160]
            assert np.sqrt((around**2).mean()) < 0.5 * np.sqrt((gapped**2).mean())


def test_windows_of_no_length():
    with pytest.raises(ValueError, match="windows of 0 frames"):
        split_at_silence(made_up([(0.9, 30)]), 0, 90, 0)


@pytest.mark.usefixtures("one_thread")
def test_memory_does_not_grow_with_length(spoken):
    class Long:
        """Speech and silence by turns, made as it is read."""

        name = "long"
        piece = np.concatenate([spoken, np.tile(SILENCE, 4)])

        def __init__(self, turns: int) -> None:
            self.turns = turns

        def blocks(self, rate: int = 16_000) -> Iterator[np.ndarray]:
            for _ in range(self.turns):
                yield self.piece

    def peak(turns: int) -> int:
        tracemalloc.start()
        try:
            speech = detect_speech(Long(turns), vad=VadOptions(), cached_seconds=20)
            features = WhisperFeatures(speech.recording, 80, 3000, cached_seconds=20)
            assert len(speech.spans) == turns
            ends = split_at_silence(speech, 0, features.frames, 3000)
            for low, high in ends:
                features.window(low, high - low)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(4)  # tables and imports
    # 400 s more are 25 MB of samples, 13 MB of features.
    assert peak(40) < peak(8) + 1_000_000


def test_all_may_be_kept_and_windows_still_be_cut_at_pauses() -> None:
    """As batches without the filter do: nothing is left out, and no sentence is cut in two."""
    samples = np.zeros(60 * 16000, np.float32)
    speech = detect_speech(open_source(samples), vad=VadOptions(), keep_all=True)
    assert speech.spans is None and speech.timeline.is_identity
    assert speech.probabilities is not None and len(speech.probabilities) == 1875
    windows = split_at_silence(speech, 0, 6000, 3000)
    assert windows[0][0] == 0 and windows[-1][1] == 6000
