"""How pieces become one speech: seeds, joins, second tries, lost devices, and who may speak."""

from __future__ import annotations

import gc
import importlib.util
import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.errors import Cancelled, DeviceLostError, UsageError
from oscine.models.qwen3_tts.guards import CLICK_STEP
from oscine.models.qwen3_tts.voices import Voice

SPEC = importlib.util.spec_from_file_location("scripted", Path(__file__).with_name("scripted.py"))
assert SPEC is not None and SPEC.loader is not None
SCRIPTED = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SCRIPTED)
HOP_LENGTH, LEVELS, scripted = SCRIPTED.HOP_LENGTH, SCRIPTED.LEVELS, SCRIPTED.scripted

GOOD = [300, 310, 320, 330, 340]
LOUD = {"voice": "ryan"}


def good(request: Any, call: int) -> tuple[list[int], str]:
    return [code + call for code in GOOD], "end"


def firsts(samples: np.ndarray) -> list[int]:
    """First codes of the frames that are played."""
    return [
        round(float(v) * LEVELS)
        for v in np.abs(samples[: len(samples) // HOP_LENGTH * HOP_LENGTH : HOP_LENGTH])
    ]


def test_one_piece_is_what_the_model_says() -> None:
    model, engine = scripted(good)
    speech = model.speak("Hello there.", seed=7, **LOUD)
    assert firsts(speech.samples) == [code + 1 for code in GOOD]
    assert (speech.finish_reason, speech.seed, speech.pieces, speech.retries) == ("end", 7, 1, 0)
    assert speech.first_audio is not None and 0 < speech.first_audio <= speech.seconds
    assert speech.rate == 24_000 and speech.duration == 5 * 0.08
    assert (speech.model, speech.device) == ("custom_voice", "script")
    assert "codec" in speech.timings
    assert engine.requests[0].seed == 7


def test_a_stream_gives_the_same_as_it_comes() -> None:
    text = "One sentence is here. " * 30
    whole = scripted(good)[0].speak(text, seed=1, **LOUD)
    stream = scripted(good)[0].stream(text, seed=1, **LOUD)
    assert stream.finish_reason is None and stream.first_audio is None
    pieces = [next(stream)]
    assert len(pieces[0].samples) == HOP_LENGTH and stream.first_audio is not None
    assert stream.duration == 0.08
    pieces += list(stream)
    assert np.array_equal(np.concatenate([p.samples for p in pieces]), whole.samples)
    assert stream.finish_reason == "end" and stream.pieces == whole.pieces > 2
    assert list(stream) == []


def test_every_piece_has_the_same_seed_and_a_drawn_one_is_told() -> None:
    model, engine = scripted(good)
    speech = model.speak("One sentence is here. " * 30, **LOUD)
    assert {request.seed for request in engine.requests} == {speech.seed}
    assert model.speak("Hi.", **LOUD).seed != speech.seed


def test_joins_do_not_click_and_pause_as_long_as_is_due() -> None:
    def loud_then_quiet(request: Any, call: int) -> tuple[list[int], str]:
        return [300, 300], "end"

    model, _ = scripted(loud_then_quiet)
    speech = model.speak("First of all.\n\nSecond of all.", **LOUD)
    gap = speech.samples[2 * HOP_LENGTH : -2 * HOP_LENGTH]
    assert len(gap) == 12_000  # half a second, for a new paragraph
    steps = np.abs(np.diff(np.concatenate([speech.samples[[2 * HOP_LENGTH - 1]], gap])))
    assert steps.max() < 0.02 and not gap[200:-200].any()
    assert abs(gap[-1] - speech.samples[-2 * HOP_LENGTH]) < CLICK_STEP


def test_text_that_comes_in_parts_is_spoken_sentence_by_sentence() -> None:
    model, engine = scripted(good)
    written: list[str] = []

    def writer() -> Iterator[str]:
        for part in ("Hello the", "re. How ar", "e you? I am", " well."):
            written.append(part)
            yield part

    stream = model.stream(writer(), **LOUD)
    next(stream)
    assert len(written) == 2 and len(engine.requests) == 1
    assert stream.speech().finish_reason == "end" and len(engine.requests) == 3
    with pytest.raises(UsageError, match="no text to speak"):
        model.speak(iter(["", "  "]), **LOUD)
    with pytest.raises(UsageError, match="parts of a text must be str, not int"):
        model.speak([1], **LOUD)  # type: ignore[list-item]
    assert model.speak("Hi.", **LOUD).finish_reason == "end"  # the engine is free


# -- failures ---------------------------------------------------------------------------------

LONG = "Hello there, this is a sentence that is long enough for a loop to be noticed in it."
ENDLESS = [300 + (37 * i) % 600 for i in range(4000)]
LOOP = [300, 310, 320] * 1000
SHORT_PROMPT = 40  # rows: that of a word has fewer, that of LONG has more
SILENT = [400, 410] + [0] * 1000


def failing(first: list[int], then: list[int] | None = None) -> Any:
    def script(request: Any, call: int) -> tuple[list[int], str]:
        return (first if call == 1 or then is None else then), "end"

    return script


@pytest.mark.parametrize(
    ("frames", "reason"), [(ENDLESS, "length"), (LOOP, "repetition"), (SILENT, "silence")]
)
def test_what_goes_wrong_is_tried_once_more(frames: list[int], reason: str) -> None:
    model, engine = scripted(failing(frames, GOOD))
    speech = model.speak(LONG, seed=3, **LOUD)
    assert (speech.finish_reason, speech.retries) == ("end", 1)
    assert firsts(speech.samples) == GOOD
    assert engine.requests[0].seed == 3 != engine.requests[1].seed
    assert engine.runs[0].stopped


@pytest.mark.parametrize(
    ("frames", "reason"), [(ENDLESS, "length"), (LOOP, "repetition"), (SILENT, "silence")]
)
def test_what_goes_wrong_twice_is_told_and_the_rest_is_spoken(
    frames: list[int], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    def script(request: Any, call: int) -> tuple[list[int], str]:
        return (frames, "end") if request.prompt_length > SHORT_PROMPT else (GOOD, "end")

    with caplog.at_level(logging.WARNING):
        speech = scripted(script)[0].speak(LONG + "\n\nMore.", seed=3, **LOUD)
    assert (speech.finish_reason, speech.retries, speech.pieces) == (reason, 1, 2)
    assert speech.duration < 30  # of 320 s in the script
    assert firsts(speech.samples[-5 * HOP_LENGTH :]) == GOOD
    assert len(caplog.records) == 1 and "'Hello there" in caplog.text
    assert "…': stopped after" in caplog.text  # it is more than is quoted
    assert "another seed may do better" in caplog.text
    stream = scripted(failing(frames))[0].stream(LONG, seed=3, **LOUD)
    heard = np.concatenate([audio.samples for audio in stream])  # yielded audio is final
    assert (stream.finish_reason, stream.retries) == (reason, 0)
    assert firsts(heard[:HOP_LENGTH]) == frames[:1]


def test_silence_at_the_end_of_what_is_stopped_is_not_given_out() -> None:
    speech = scripted(failing(SILENT))[0].speak("Hello.", **LOUD)
    assert speech.duration < 0.7


def test_frames_that_were_asked_for_are_no_mistake() -> None:
    model, engine = scripted(failing(ENDLESS))
    speech = model.speak("Hello. " * 60, max_frames=7, **LOUD)
    assert (speech.finish_reason, speech.retries) == ("length", 0)
    assert len(speech.samples) == 7 * HOP_LENGTH and len(engine.requests) == 1
    speech = model.speak("Hello.\n\nHello.", max_seconds=0.8, **LOUD)
    assert len(speech.samples) == 10 * HOP_LENGTH
    model, engine = scripted(good)
    speech = model.speak("Hello.\n\nHello.\n\nHello.", max_frames=8, **LOUD)  # in all
    assert [len(run.firsts) for run in engine.runs] == [5, 3]


def test_without_guard_only_the_models_own_bound_holds() -> None:
    model, engine = scripted(failing(LOOP))
    speech = model.speak("Hello.", guard=False, **LOUD)
    assert speech.duration == 3000 * 0.08 and speech.retries == 0
    assert engine.requests[0].max_frames == model._config.generation.max_new_tokens - 1


# -- references -------------------------------------------------------------------------------


def test_a_reference_is_heard_by_the_codec_alone_and_its_leak_is_dropped() -> None:
    reference = [500 + 9 * i for i in range(20)]
    codes = np.repeat(np.array(reference, np.uint32)[:, None], 16, axis=1)
    leaked = [int(code) for code in codes[-4:, 0]]

    def script(request: Any, call: int) -> tuple[list[int], str]:
        return [*leaked, *GOOD], "end"

    model, engine = scripted(script, "base")
    voice = Voice("x", np.zeros(model._config.talker.hidden_size, np.float32), codes, "its text")
    speech = model.speak("Hello.\n\nAgain.", voice=voice)
    assert firsts(speech.samples[: 5 * HOP_LENGTH]) == GOOD
    assert engine.codec.heard == [*codes[:, 0].tolist(), *leaked, *GOOD]
    kept = model.speak("Hello.", voice=voice, guard=False)
    assert firsts(kept.samples) == [*leaked, *GOOD]
    alone = model.speak("Hello.", voice=voice, x_vector_only=True)
    assert firsts(alone.samples) == [*leaked, *GOOD]
    assert engine.codec.heard == [*leaked, *GOOD]


def test_all_of_the_text_comes_before_the_speech_unless_told_otherwise() -> None:
    """With every kind of voice: clones that are shown the text as they speak get faster."""
    codes = np.full((20, 16), 500, np.uint32)
    for kind in ("base", "custom_voice"):
        model, engine = scripted(good, kind)
        voice = Voice(
            "x", np.zeros(engine.config.talker.hidden_size, np.float32), codes, "its text"
        )
        for vector in (True, False) if kind == "base" else (None,):
            given = LOUD if vector is None else {"voice": voice, "x_vector_only": vector}
            text = "Hello there, this is a sentence of many more tokens than the reference is long."
            for streamed in (None, False, True):
                model.speak(text, streamed_text=streamed, **given)
            default, off, on = (len(each.prompt.trailing_text) for each in engine.requests[-3:])
            assert default == off == 1 < on


def test_a_run_that_ends_while_it_could_be_a_leak_is_kept() -> None:
    codes = np.repeat(np.arange(20, dtype=np.uint32)[:, None], 16, axis=1)
    model, _ = scripted(lambda request, call: ([10, 11, 12], "end"), "base")
    voice = Voice("x", np.zeros(model._config.talker.hidden_size, np.float32), codes, "its text")
    assert len(model.speak("Hello.", voice=voice).samples) == 3 * HOP_LENGTH


# -- the engine -------------------------------------------------------------------------------


@pytest.mark.parametrize("lose_at", [0, 1, 5])
def test_a_lost_device_is_made_again_and_nothing_is_said_twice(lose_at: int) -> None:
    text = "Hello there.\n\nMore of it."
    expected = scripted(lambda request, call: (ENDLESS[:9], "end"))[0].speak(text, **LOUD)
    model, engine = scripted(lambda request, call: (ENDLESS[:9], "end"))
    engine.lose_at = lose_at
    speech = model.speak(text, **LOUD)
    assert np.array_equal(speech.samples, expected.samples)
    assert len(engine.requests) <= 4  # both pieces, side by side, and both again
    before = len(engine.requests)
    engine.lose_at = lose_at
    stream = model.stream(text, **LOUD)
    heard = np.concatenate([audio.samples for audio in stream])
    assert np.array_equal(heard, expected.samples)
    assert len(engine.requests) == before + 3
    engine.lose_at, model.engine._rebuild = lose_at, None
    with pytest.raises(DeviceLostError):
        model.speak(text, **LOUD)


def test_who_stops_iterating_frees_the_engine() -> None:
    model, engine = scripted(failing(ENDLESS))
    gc.disable()  # it must not take a collection
    try:
        for _ in model.stream("Hello.", **LOUD):
            break
        assert engine.runs[-1].stopped
        stream = model.stream("Hello.", max_frames=9, **LOUD)
        next(stream)
        assert model.speak("Hi.", max_frames=2, **LOUD).duration == 0.16
        stream.close()
        stream.close()
        assert list(stream) == []
        with model.stream("Hello.", **LOUD) as stream:
            next(stream)
        assert stream.finish_reason is None
        assert model.speak("Hi.", max_frames=2, **LOUD).duration == 0.16
    finally:
        gc.enable()


def test_a_stream_that_never_began_holds_nothing() -> None:
    model, _ = scripted(good)
    waiting = model.stream("Hello.", **LOUD)
    assert model.speak("Hi.", **LOUD).finish_reason == "end"
    assert waiting.speech().finish_reason == "end"


def test_another_thread_can_close_a_stream_that_is_iterated_over() -> None:
    model, engine = scripted(failing(ENDLESS))
    stream = model.stream("Hello. " * 30, **LOUD)
    heard = 0
    for _ in stream:
        heard += 1
        if heard == 3:
            closer = threading.Thread(target=stream.close)
            closer.start()
            closer.join()
    assert heard == 3 and engine.runs[-1].stopped


def test_cancelling() -> None:
    model, engine = scripted(failing(ENDLESS))
    event = threading.Event()
    stream = model.stream("Hello.", cancel=event, **LOUD)
    next(stream)
    event.set()
    with pytest.raises(Cancelled) as caught:
        next(stream)
    assert engine.runs[-1].stopped and caught.value.partial is None
    asked: list[int] = []
    with pytest.raises(Cancelled):
        model.speak("Hello.", cancel=lambda: asked.append(1) or len(asked) > 3, **LOUD)
    assert model.speak("Hi.", max_frames=2, **LOUD).duration == 0.16


def test_an_error_in_the_writer_frees_the_engine() -> None:
    model, _ = scripted(good)

    def writer() -> Iterator[str]:
        yield "Hello there. And"
        raise RuntimeError("the writer broke")

    with pytest.raises(RuntimeError, match="broke"):
        model.speak(writer(), **LOUD)
    assert model.speak("Hi.", **LOUD).finish_reason == "end"


def test_very_long_texts_keep_nothing() -> None:
    model, _ = scripted(good)
    sentences = (f"This is sentence {i} of them. " for i in range(500))
    stream = model.stream(sentences, **LOUD)
    largest = 0
    for _ in stream:
        synthesis = stream._synthesis
        largest = max(largest, len(synthesis.tail), sys.getsizeof(synthesis.__dict__))
    assert stream.duration > 500 * 0.4 and largest < 0.7 * 24_000


def test_what_is_cut_short_by_a_limit_is_known(caplog: pytest.LogCaptureFixture) -> None:
    model, _ = scripted(failing(ENDLESS))
    stream = model.stream(LONG, max_seconds=1, **LOUD)
    stream.speech()
    assert (stream.finish_reason, stream.limited, caplog.text) == ("length", True, "")
    stream = model.stream(LONG, **LOUD)
    stream.speech()
    assert not stream.limited and "did not come to an end" in caplog.text


def test_how_much_of_the_text_is_spoken() -> None:
    model, _ = scripted(good)
    stream = model.stream("One sentence is here. " * 30, **LOUD)
    shares = [stream.share for _ in stream]
    assert shares == sorted(shares) and 0 < shares[0] < 0.1 and stream.share == 1
    assert model.stream(iter(["One."]), **LOUD).share is None


@pytest.mark.parametrize("seconds", [0.01, 0.3, 1, 1.5, 2, 3.33, 5])
@pytest.mark.parametrize("apart", [" ", "\n\n"])
def test_the_quiet_between_pieces_counts(seconds: float, apart: str) -> None:
    """At most the requested audio, and hardly less; `limited` reports the cut."""
    model, _ = scripted(failing(GOOD))
    text = apart.join(
        ["One sentence is here, which is long enough to be a piece of its own." * 3] * 9
    )
    whole = model.speak(text, **LOUD)
    assert whole.duration > 5.1
    stream = model.stream(text, max_seconds=seconds, **LOUD)
    speech = stream.speech()
    assert min(0.08, seconds) <= speech.duration <= max(seconds, 0.08)
    assert seconds - speech.duration < 0.08 + (0.2 if apart == " " else 0.5)
    assert (speech.finish_reason, stream.limited) == ("length", True)
    assert np.array_equal(speech.samples, whole.samples[: len(speech.samples)])
    longer = model.stream(text, max_seconds=whole.duration + 0.6, **LOUD)
    assert longer.speech().finish_reason == "end" and not longer.limited


def test_the_length_of_frames_is_the_codecs() -> None:
    """Seconds are counted in samples, whatever the configuration makes of a frame."""
    model, _ = scripted(failing(ENDLESS))
    codec = replace(model._config.codec, sample_rate=12_000)  # frames of 160 ms
    model._config = model.runner.config = replace(model._config, codec=codec)
    model.runner.utterance_executor.codec.config = codec
    assert model.speak("Hello.", max_seconds=1.6, **LOUD).duration == 1.6
    stream = model.stream("Hello.", **LOUD)
    slow = stream.speech().duration
    model, _ = scripted(failing(ENDLESS))
    assert abs(slow - model.speak("Hello.", **LOUD).duration) < 0.2
