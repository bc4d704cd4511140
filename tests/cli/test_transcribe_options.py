"""Every option of `oscine transcribe` does what its help says, or is refused by name.

REACHES, REFUSED, SHOWN and ELSEWHERE name all of them together: one that is added without a test
here fails `test_every_option_has_its_test`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from oscine import threads
from oscine.cli import run
from oscine.cli.option_names import flag_of
from oscine.cli.transcribe import app, temperature_schedule
from oscine.errors import UsageError
from oscine.models.parakeet.options import OPTIONS as PARAKEET
from oscine.options import options_of
from oscine.options.transcribe import DEFAULT_TEMPERATURES, TranscribeOptions

Recordings = Callable[..., list[str]]
Capture = pytest.CaptureFixture[bytes]

WORDS = "--word_timestamps True"
PROMPT = "--initial_prompt Hello"

#: What of an option gets to the model: the arguments, and the option's value there.
REACHES: dict[str, list[tuple[str, Any]]] = {
    "language": [
        ("--language German", "de"),
        ("-l fr", "fr"),
        ("--language en-US", "en"),
        ("--language Deutsch", "de"),
        ("--language iw", "he"),
        ("--language auto", None),
    ],
    "multilingual": [("--multilingual", True), ("--multilingual False", False)],
    "language_detection_segments": [("--language_detection_segments 2", 2)],
    "language_detection_threshold": [
        ("--language_detection_threshold 0.8", 0.8),
        ("--language_detection_threshold None", None),
    ],
    "task": [("--task=translate", "translate")],
    "audio_track": [
        ("--audio-track 2", 2),
        ("--audio_track eng", "eng"),
        ("--audio-track German", "German"),
        ("--audio-track None", None),
    ],
    "split_channels": [("--split_channels True", True)],
    "max_audio_seconds": [("--max_audio_seconds 3600", 3600.0), ("--max-audio-seconds=None", None)],
    "clip_timestamps": [
        ("--clip_timestamps 1,2", ((1.0, 2.0),)),
        ("--clip_timestamps 00:01:10.5,1:11", ((70.5, 71.0),)),
    ],
    "without_timestamps": [("--without_timestamps True", True)],
    "word_timestamps": [(WORDS, True), ("--word-timestamps", True)],
    "prepend_punctuations": [(f"{WORDS} --prepend_punctuations ¡", "¡")],
    "append_punctuations": [(f"{WORDS} --append_punctuations ?", "?")],
    "initial_prompt": [
        ("--initial_prompt --not_an_option", "--not_an_option"),
        (f"{PROMPT} --carry_initial_prompt True --batch_size 4", "Hello"),
    ],
    "carry_initial_prompt": [(f"{PROMPT} --carry_initial_prompt True", True)],
    "hotwords": [("--hotwords oscine", "oscine"), ("--hotwords oscine --batch_size 8", "oscine")],
    "condition_on_previous_text": [
        ("--condition_on_previous_text False", False),
        ("--no-condition-on-previous-text", False),
        ("--condition_on_previous_text True", True),
        ("--batch_size 8", None),
    ],
    "prefix": [("--prefix So", "So")],
    "temperature": [
        ("--temperature 0.4", (0.4, 0.6, 0.8, 1.0)),
        ("--temperature 0.4 --temperature-increment-on-fallback None", (0.4,)),
    ],
    "best_of": [("--best_of 2", 2), ("--best_of None", None)],
    "beam_size": [("--beam_size 5", 5), ("--beam_size None", None)],
    "patience": [("--beam_size 5 --patience 2", 2.0)],
    "length_penalty": [("--beam_size 5 --length_penalty 0.5", 0.5)],
    "repetition_penalty": [("--repetition_penalty 1.2", 1.2)],
    "no_repeat_ngram_size": [("--no_repeat_ngram_size 3", 3)],
    "seed": [("--seed 7", 7)],
    "suppress_tokens": [("--suppress_tokens -1,5", (-1, 5))],
    "suppress_blank": [("--suppress_blank=False", False)],
    "max_initial_timestamp": [("--max_initial_timestamp None", None)],
    "sample_len": [("--sample_len 100", 100)],
    "compression_ratio_threshold": [("--compression_ratio_threshold None", None)],
    "logprob_threshold": [("--logprob-threshold -2", -2.0)],
    "no_speech_threshold": [("--no_speech_threshold None", None)],
    "hallucination_silence_threshold": [(f"{WORDS} --hallucination_silence_threshold 2", 2.0)],
    "vad_filter": [
        ("--vad_filter True", True),
        ("--vad_filter False", False),
        ("--no-vad-filter", False),
        ("--no-vad", False),
    ],
    "vad_threshold": [("--vad_threshold 0.4", 0.4)],
    "vad_neg_threshold": [("--vad_neg_threshold 0.2", 0.2)],
    "vad_min_speech_duration_ms": [("--vad_min_speech_duration_ms 100", 100)],
    "vad_max_speech_duration_s": [("--vad_max_speech_duration_s 30", 30.0)],
    "vad_min_silence_duration_ms": [("--vad_min_silence_duration_ms 160", 160)],
    "vad_speech_pad_ms": [("--vad_speech_pad_ms 0", 0)],
    "batch_size": [
        ("--batch_size 8", 8),
        ("--batch_size auto", "auto"),
        ("--batch_size None", None),
    ],
}

#: What is refused before anything is loaded, and the words that say so.
REFUSED: dict[str, list[tuple[str, str]]] = {
    "audio_track": [
        (f"--audio-track={value}", "--audio-track must be") for value in ("0", "-1", "1.5", "")
    ],
    "model_dir": [("--model_dir x", "set the environment variable OSCINE_HOME")],
    "patience": [("--patience 2", "--patience needs --beam-size above 1")],
    "length_penalty": [("--length_penalty 2", "--length-penalty must be 0 to 1")],
    "beam_size": [("--beam_size 17", "--beam-size must be at most 16")],
    "multilingual": [("--multilingual --language en", "multilingual finds the language")],
    "carry_initial_prompt": [("--carry_initial_prompt", "--carry-initial-prompt needs --initial-")],
    "prepend_punctuations": [("--prepend_punctuations x", "needs --word-timestamps")],
    "append_punctuations": [("--append_punctuations x", "needs --word-timestamps")],
    "hallucination_silence_threshold": [
        ("--hallucination_silence_threshold 2", "needs --word-timestamps"),
        (
            f"{WORDS} --batch_size 2 --hallucination_silence_threshold 2",
            "does not go with --batch-size 2",
        ),
    ],
    "condition_on_previous_text": [
        ("--batch_size 8 --condition_on_previous_text True", "does not go with --batch-size 8")
    ],
    "initial_prompt": [(f"{PROMPT} --batch_size auto", "does not go with --batch-size auto")],
    "batch_size": [("--batch_size 65", "--batch-size must be a number from 1 to 64 or auto")],
    "vad_threshold": [("--no-vad --vad_threshold 0.4", "--vad-threshold needs --vad-filter")],
    "vad_speech_pad_ms": [("--no-vad --vad_speech_pad_ms 1", "--vad-speech-pad-ms needs --vad")],
    "threads": [("--threads 1025", "--threads must be a whole number from 0 to 1024")],
    **{
        name: [
            (f"{WORDS} --{name} {value}", f"{flag_of(name)} is for subtitles; add --output-"),
            (f"-f srt --{name} {value}", f"{flag_of(name)} needs --word-timestamps"),
        ]
        for name, value in {
            "max_line_width": "9", "max_words_per_line": "1", "highlight_words": "True",
        }.items()
    },
    "clause_breaks": [
        (f"{WORDS} -f srt --clause_breaks", "--clause-breaks needs --max-line-width"),
        ("--max_line_width 9 --clause_breaks", "is for subtitles; add --output-format"),
    ],
    "min_cue_time": [
        ("--min_cue_time 1", "--min-cue-time is for subtitles; add --output-format"),
        ("-f srt --min_cue_time -1", "--min-cue-time must be 0 to 60 seconds, not -1"),
        (f"{WORDS} -f vtt --highlight_words True --min_cue_time 1", "go with --highlight-words"),
    ],
    "max_cps": [
        ("--max_cps 17", "--max-cps is for subtitles; add --output-format"),
        ("-f srt --max_cps 0", "--max-cps must be 1 to 1000 characters a second, not 0"),
        (f"{WORDS} -f vtt --highlight_words True --max_cps 17", "go with --highlight-words"),
    ],
    "max_line_count": [
        (f"{WORDS} -f srt --max_line_count 2", "--max-line-count needs --max-line-width"),
        (
            f"{WORDS} -f vtt --max_line_width 9 --max_words_per_line 2",
            "--max-words-per-line does not go with --max-line-width",
        ),
    ],
}  # fmt: skip

#: What can be seen in the output.
SHOWN: dict[str, tuple[str, str]] = {
    "clause_breaks": (
        f"{WORDS} -f srt --max_line_width 8 --max_line_count 1 --clause_breaks",
        "Olá,\n\n2\n00:00:01,000 --> 00:00:01,333\n世界 ->\n\n3",
    ),
    "min_cue_time": ("-f srt --min_cue_time 0.9", "00:00:00,000 --> 00:00:00,900\nOlá,"),
    "max_cps": ("-f srt --max_cps 5", "00:00:00,000 --> 00:00:00,800\nOlá,"),
    "output_format": ("--output_format tsv", "start\tend\ttext\n0\t500\tOlá,\n1000\t1500\t世界"),
    "word_timestamps": (f"{WORDS} -f json", '"words": [{"word": " Ol'),
    "max_line_width": (f"{WORDS} -f srt --max_line_width 5", ",500\n世界\n->\nx.\n"),
    "max_line_count": (
        f"{WORDS} -f vtt --max_line_width 8 --max_line_count 1",
        "00:00.000 --> 00:01.167\nOlá, 世界\n\n00:01.167 --> 00:01.500\n--&gt; x.\n\n",
    ),
    "max_words_per_line": (
        f"{WORDS} -f srt --max_words_per_line 2",
        "2\n00:00:01,000 --> 00:00:01,333\n世界 ->\n\n3\n00:00:01,333 --> 00:00:01,500\nx.\n\n",
    ),
    "highlight_words": (
        f"{WORDS} -f vtt --highlight_words True",
        "00:01.333 --> 00:01.500\n世界 --&gt; <u>x.</u>\n\n",
    ),
    "split_channels": (
        "--split_channels True",
        "Channel 2: 世界 --> x.\nChannel 1: Olá,\n",  # in order of time
    ),
}

SEGMENTS = ("max_words", "silence_gap", "max_duration")
#: Options whose tests are functions below or in test_transcribe.py.
ELSEWHERE = {
    "recursive": "test_a_tree_is_mirrored_into_the_output_folder",
    "skip_existing": "test_recordings_with_results_are_skipped",
    "overwrite": "test_a_result_that_was_edited_is_kept",
    "watch": "test_what_arrives_is_transcribed_once",
    "files": "test_several_recordings_go_beside_themselves",
    "output_dir": "test_an_output_folder_is_made",
    "verbose": "test_verbose_shows_what_is_known_of_a_segment",
    "model": "test_what_is_loaded",
    "device": "test_what_is_loaded",
    "dtype": "test_what_is_loaded",
    "fp16": "test_what_is_loaded",
    "offline": "test_what_is_loaded",
    "deterministic": "test_what_is_loaded",
    "memory": "test_what_is_loaded",
    "threads": "test_threads",
    "temperature_increment_on_fallback": "test_temperature_steps",
    "live": "test_words_come_as_they_are_said",
    "latency": "test_words_come_as_they_are_said",
    **dict.fromkeys(SEGMENTS, "test_segments_of_parakeet"),
}


def transcribe(*arguments: str) -> int:
    return run(["transcribe", "--model", "weights", *arguments])


def cases(table: dict[str, list[Any]]) -> list[Any]:
    return [
        pytest.param(name, arguments.split(" "), expected, id=f"{name}-{number}")
        for name, rows in table.items()
        for number, (arguments, expected) in enumerate(rows)
    ]


def test_every_option_has_its_test() -> None:
    command: Any = typer.main.get_command(app)
    names = {option.name for option in command.params}
    assert {*REACHES, *REFUSED, *SHOWN, *ELSEWHERE} == names - {"help"}
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in ELSEWHERE.values() if f"def {name}(" not in tests] == []
    # What the Python API takes, the command takes.
    assert set(options_of(TranscribeOptions)) <= {*REACHES, *REFUSED, *SEGMENTS}
    assert all([*REACHES.values(), *REFUSED.values()])


@pytest.mark.parametrize(("name", "arguments", "value"), cases(REACHES))
def test_options_reach_the_model(
    model: Any,
    recordings: Recordings,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    arguments: list[str],
    value: Any,
) -> None:
    monkeypatch.setattr("oscine.audio.io.check_contents", lambda *_: None)  # one track is there
    assert transcribe(*arguments, *recordings("a.wav")) == 0
    assert getattr(TranscribeOptions.of(**model.asked[0]), name) == value


def test_defaults_are_those_of_the_python_api(model: Any, recordings: Recordings) -> None:
    assert transcribe(*recordings("a.wav")) == 0
    assert TranscribeOptions.of(**model.asked[0]) == TranscribeOptions()


@pytest.mark.parametrize(("name", "arguments", "problem"), cases(REFUSED))
def test_what_cannot_be_done_is_refused_by_name(
    model: Any,
    recordings: Recordings,
    capsysbinary: Capture,
    name: str,
    arguments: list[str],
    problem: str,
) -> None:
    assert transcribe(*recordings("a.wav"), *arguments) == 2
    out, error = capsysbinary.readouterr()
    assert (out, error.count(b"\n"), model.loaded) == (b"", 1, [])
    assert problem in error.decode()


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_written_shows_it(
    model: Any, recordings: Recordings, capsysbinary: Capture, name: str
) -> None:
    arguments, text = SHOWN[name]
    assert transcribe(*recordings("a.wav")) == 0
    assert text not in capsysbinary.readouterr().out.decode()
    assert transcribe(*recordings("a.wav"), *arguments.split(" ")) == 0
    assert text in capsysbinary.readouterr().out.decode()


@pytest.mark.parametrize("name", ["srt", "vtt"])
def test_a_layout_is_for_subtitles_among_all_formats(
    model: Any, recordings: Recordings, name: str
) -> None:
    arguments = f"{WORDS} -f all --max_words_per_line 1".split(" ")
    assert transcribe(*recordings("a.wav"), *arguments) == 0
    assert Path(f"a.{name}").read_text("utf-8").count(" --> ") == 4
    assert Path("a.txt").read_text("utf-8") == "Olá,\n世界 --> x.\n"
    assert len(json.loads(Path("a.json").read_text("utf-8"))["segments"]) == 2


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        ("", ("weights", "auto", "auto", False)),
        ("--fp16 False", ("weights", "auto", "f32", False)),
        ("--fp16 True", ("weights", "auto", "f16", False)),
        ("--dtype f16 --offline", ("weights", "auto", "f16", True)),
        ("--deterministic", ("weights", "auto", "auto", False, "same")),
        ("--memory 1.5GiB", ("weights", "auto", "auto", False, "1.5GiB")),
        ("--fp16 False --dtype f32 --device cpu", ("weights", "cpu", "f32", False)),
    ],
)
def test_what_is_loaded(
    model: Any, recordings: Recordings, arguments: str, loaded: tuple[Any, ...]
) -> None:
    assert transcribe(*arguments.split(), *recordings("a.wav")) == 0
    assert model.loaded == [loaded]


@pytest.mark.parametrize(
    ("arguments", "variable", "count"),
    [
        ("--threads 3", "2", 3),
        ("--threads None", "2", 2),
        ("", "2", 2),
        ("--threads 0", "2", min(threads.available_cores(), threads.MAX_DEFAULT_THREADS)),
    ],
)
def test_threads(
    model: Any,
    recordings: Recordings,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    variable: str,
    count: int,
) -> None:
    monkeypatch.setenv("OSCINE_THREADS", variable)
    threads.count.cache_clear()
    assert transcribe(*arguments.split(), *recordings("a.wav")) == 0
    assert threads.count() == threads.pool().size == count


def test_a_wrong_number_of_threads_in_the_environment(
    model: Any, recordings: Recordings, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    monkeypatch.setenv("OSCINE_THREADS", "many")
    threads.count.cache_clear()
    assert transcribe(*recordings("a.wav")) == 2
    assert capsysbinary.readouterr().err == (
        b"oscine: OSCINE_THREADS must be a whole number from 0 to 1024, not 'many'\n"
    )
    assert model.loaded == []


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("max_words", "--max_words 7", 7),
        ("silence_gap", "--silence-gap 0.5", 0.5),
        ("silence_gap", "--silence_gap inf", float("inf")),
        ("max_duration", "--max-duration 5", 5.0),
        ("max_duration", "--max-duration None", None),
    ],
)
def test_segments_of_parakeet(
    model: Any, recordings: Recordings, name: str, arguments: str, value: Any
) -> None:
    assert transcribe(*arguments.split(), *recordings("a.wav")) == 0
    assert getattr(PARAKEET.of(**model.asked[0]), name) == value


def test_segments_of_parakeet_are_checked_before_anything_is_loaded(
    model: Any, recordings: Recordings, capsysbinary: Capture
) -> None:
    assert transcribe(*recordings("a.wav"), "--max-words", "0") == 2
    assert model.loaded == []
    assert b"--max-words must be a whole number from 1" in capsysbinary.readouterr().err


def test_defaults_are_those_of_parakeet(model: Any, recordings: Recordings) -> None:
    assert transcribe(*recordings("a.wav")) == 0
    assert PARAKEET.of(**model.asked[0]) == TranscribeOptions()


def test_temperature_steps() -> None:
    assert temperature_schedule(0.0, 0.2) == DEFAULT_TEMPERATURES
    assert temperature_schedule(0.5, 0.3) == (0.5, 0.8)
    assert temperature_schedule(1.5, 0.2) == (1.5,)
    assert temperature_schedule(0.3, None) == (0.3,)
    for step in (-0.1, 0.0, 1e-9, float("nan"), float("inf")):
        with pytest.raises(UsageError, match=r"must be at least 0\.01"):
            temperature_schedule(0.0, step)


def test_help_names_every_option(capsysbinary: Capture) -> None:
    assert run(["transcribe", "--help"]) == 0
    text = capsysbinary.readouterr().out.decode()
    for name in {*REACHES, *REFUSED, *SHOWN, *ELSEWHERE} - {"files"}:
        assert f"--{name.replace('_', '-')}" in text
    assert "--no-vad\n" in text
