"""Transcriptions and translations, as OpenAI's client asks for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import BadRequestError, NotFoundError, OpenAI

import oscine
from oscine.server.transcriptions import text_deltas

from .conftest import GOLDENS
from .running import Running

Serve = Callable[..., Running]


@pytest.fixture(scope="module")
def running(whisper: Any) -> Iterator[Running]:
    """A server with a model of random weights, whose text is short."""
    server = Running({"small": whisper})
    yield server
    server.close()


@pytest.fixture(scope="module")
def client(running: Running) -> OpenAI:
    return running.client()


@pytest.fixture
def ask(client: OpenAI, example: Path) -> Callable[..., Any]:
    """ask(**fields): the answer for our recording, with short windows."""

    def create(**fields: Any) -> Any:
        options = {"sample_len": 12, "vad_filter": False, **fields.pop("extra_body", {})}
        fields = {"model": "small", "temperature": 0.0, **fields}
        with example.open("rb") as file:
            return client.audio.transcriptions.create(file=file, extra_body=options, **fields)

    return create


@pytest.fixture(scope="module")
def expected(whisper: Any, example: Path) -> Any:
    """The library's transcript of the same recording with the same options."""
    return whisper.transcribe(example, sample_len=12, vad_filter=False)


def test_json_is_the_librarys_text(ask: Callable[..., Any], expected: Any) -> None:
    answer = ask()
    assert answer.text == expected.text.strip() != ""
    assert answer.usage.type == "duration" and answer.usage.seconds == 9
    assert [language.code for language in answer.languages] == [expected.language]


def test_text_srt_and_vtt(ask: Callable[..., Any], expected: Any) -> None:
    assert ask(response_format="text") == f"{expected.text.strip()}\n"
    srt, vtt = ask(response_format="srt"), ask(response_format="vtt")
    assert srt.startswith("1\n00:00:") and " --> " in srt
    assert vtt.startswith("WEBVTT\n\n00:") and "-->" in vtt


def test_media_types(running: Running, example: Path) -> None:
    for name, media_type in [
        ("json", "application/json"), ("verbose_json", "application/json"),
        ("text", "text/plain; charset=utf-8"), ("srt", "text/plain; charset=utf-8"),
        ("vtt", "text/vtt; charset=utf-8"),
    ]:  # fmt: skip
        fields = {"model": "small", "response_format": name, "sample_len": "4"}
        with example.open("rb") as file:
            answer = httpx2.post(
                f"{running.url}/v1/audio/transcriptions", data=fields, files={"file": file}
            )
        assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)


def test_verbose_json_has_segments_and_the_name_of_the_language(
    ask: Callable[..., Any], expected: Any
) -> None:
    answer = ask(response_format="verbose_json")
    assert answer.task == "transcribe" and answer.duration == pytest.approx(expected.duration)
    assert answer.language_code == expected.language and len(answer.language) > 2
    assert [each.text for each in answer.segments] == [each.text for each in expected.segments]
    assert [tuple(each.tokens) for each in answer.segments] == [
        each.tokens for each in expected.segments
    ]
    assert answer.words is None
    assert answer.x_oscine["device"] == "NumPy" and answer.x_oscine["real_time_factor"] > 0


@pytest.mark.parametrize("wanted", [["word"], ["word", "segment"]])
def test_words_are_beside_the_segments(
    ask: Callable[..., Any], whisper: Any, example: Path, wanted: list[str]
) -> None:
    options = {"sample_len": 12, "vad_filter": False, "word_timestamps": True}
    expected = whisper.transcribe(example, **options)
    answer = ask(response_format="verbose_json", timestamp_granularities=wanted)
    assert (answer.segments is not None) == ("segment" in wanted)
    words = [word for segment in expected.segments for word in segment.words]
    assert [(word.word, word.start) for word in answer.words] == [
        (word.word.strip(), word.start) for word in words
    ]


def test_deltas_add_up_to_the_text(ask: Callable[..., Any], expected: Any) -> None:
    events = list(ask(stream=True))
    deltas = [event.delta for event in events if event.type == "transcript.text.delta"]
    assert events[-1].type == "transcript.text.done" and len(events) == len(deltas) + 1
    assert "".join(deltas) == events[-1].text == expected.text.strip()
    usage = events[-1].usage
    assert usage.type == "tokens" and usage.input_tokens == 84
    assert usage.output_tokens == sum(len(each.tokens) for each in expected.segments)


@pytest.mark.parametrize(
    ("texts", "deltas"),
    [
        ([" One", " two "], ["One", " two"]),
        (["  ", " a \n", " b"], ["a", " \n b"]),
        ([" ", ""], []),
        (["x"], ["x"]),
    ],
)
def test_deltas_are_the_stripped_text(texts: list[str], deltas: list[str]) -> None:
    assert list(text_deltas(texts)) == deltas
    assert "".join(deltas) == "".join(texts).strip()


def test_a_stream_of_verbose_json_ends_with_its_segments(ask: Callable[..., Any]) -> None:
    last = list(ask(stream=True, response_format="verbose_json"))[-1]
    assert last.segments and last.segments[0]["text"] in f" {last.text}"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_translation(client: OpenAI, example: Path, whisper: Any) -> None:
    options = {"sample_len": 12, "vad_filter": False}
    with example.open("rb") as file:
        answer = client.audio.translations.create(
            file=file, model="small", response_format="verbose_json", extra_body=options
        )
    text = whisper.transcribe(example, task="translate", **options).text
    assert answer.text == text.strip()
    assert answer.task == "translate" and answer.language == "english"  # type: ignore[attr-defined]


def test_fields_reach_the_model(
    serve: Serve, whisper: Any, example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenAI's by what they mean here, ours by their names; text of a form has its type again."""
    seen: dict[str, Any] = {}
    stream = whisper.stream

    def note(audio: Any, *, cancel: Any, **options: Any) -> Any:
        seen.update(options)
        return stream(audio, cancel=cancel, **options)

    monkeypatch.setattr(whisper, "stream", note)
    running = serve({"small": whisper})
    with example.open("rb") as file:
        running.client().audio.transcriptions.create(
            file=file, model="small", language="de", prompt="Before.", temperature=0.5,
            keywords=["Wasserstein", "Ada"],
            chunking_strategy={
                "type": "server_vad", "threshold": 0.4, "silence_duration_ms": 300,
                "prefix_padding_ms": 100,
            },
            extra_body={
                "sample_len": 4, "best_of": 2, "suppress_tokens": "-1,7", "suppress_blank": False,
                "max_initial_timestamp": "none", "clip_timestamps": "0,4", "seed": 3,
            },
        )  # fmt: skip
    assert seen == {
        "language": "de", "initial_prompt": "Before.", "temperature": 0.5,
        "hotwords": "Wasserstein, Ada", "vad_threshold": "0.4",
        "vad_min_silence_duration_ms": "300", "vad_speech_pad_ms": "100",
        "sample_len": 4, "best_of": 2, "suppress_tokens": "-1,7", "suppress_blank": False,
        "max_initial_timestamp": None, "clip_timestamps": "0,4", "seed": 3,
        "max_audio_seconds": 14_400.0,
    }  # fmt: skip


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": "xml"}, "response_format", "unsupported_value"),
    ({"response_format": "diarized_json"}, "response_format", "unsupported_value"),
    ({"temperature": 1.5}, "temperature", "invalid_value"),
    ({"language": "klingon"}, "language", "invalid_value"),
    ({"timestamp_granularities": ["word"]}, "timestamp_granularities", "invalid_value"),
    ({"stream": True, "response_format": "srt"}, "stream", "invalid_value"),
    ({"include": ["logprobs"]}, "include", "unsupported_parameter"),
    ({"known_speaker_names": ["a"]}, "known_speaker_names", "unsupported_parameter"),
    ({"chunking_strategy": "never"}, "chunking_strategy", "invalid_value"),
    ({"chunking_strategy": {"type": "server_vad", "threshold": 2}}, "chunking_strategy", ""),
    ({"extra_body": {"beam_size": "many"}}, "beam_size", "invalid_value"),
    ({"extra_body": {"bean_size": 5}}, "bean_size", "unknown_parameter"),
    ({"extra_body": {"max_words": 5}}, "max_words", "invalid_value"),  # Parakeet's
    ({"extra_body": {"max_line_width": 20}}, "max_line_width", "invalid_value"),
    ({"prompt": "Before.", "extra_body": {"batch_size": 4}}, "prompt", "invalid_value"),
    ({"prompt": "a", "extra_body": {"initial_prompt": "b"}}, "initial_prompt", "invalid_value"),
    ({"stream": True, "extra_body": {"split_channels": True}}, "split_channels", ""),
    ({"extra_body": {"languages": ["de", "en"]}}, "languages", "unsupported_parameter"),
    ({"extra_body": {"nested": {"a": {"b": 1}}}}, "nested[a][b]", "unknown_parameter"),
]


@pytest.mark.parametrize(("fields", "param", "code"), WRONG, ids=[row[1] for row in WRONG])
def test_what_is_wrong_is_named(
    ask: Callable[..., Any], fields: dict[str, Any], param: str, code: str
) -> None:
    with pytest.raises(BadRequestError) as refused:
        ask(**fields)
    error: Any = refused.value
    assert error.param == param and error.type == "invalid_request_error"
    assert error.code == (code or "invalid_value") and param.partition("[")[0] in error.message


@pytest.mark.parametrize(
    ("name", "meant"),
    [("respons_format", "response_format"), ("beam_sise", "beam_size"), ("promt", "prompt")],
)
def test_a_misspelt_field_is_answered_with_the_nearest(
    ask: Callable[..., Any], name: str, meant: str
) -> None:
    with pytest.raises(BadRequestError) as refused:
        ask(extra_body={name: "5"})
    error: Any = refused.value
    assert error.param == name and f"did you mean {meant}?" in error.message


def test_options_of_subtitles(ask: Callable[..., Any]) -> None:
    srt = ask(response_format="srt", extra_body={"max_words_per_line": 1})
    lines = srt.split("\n\n")[0].splitlines()
    assert len(lines[2].split()) <= 1


def test_a_model_that_is_not_served(client: OpenAI, example: Path) -> None:
    for name in ("base", "/etc/passwd", "tts-1", str(example)):
        with example.open("rb") as file, pytest.raises(NotFoundError) as refused:
            client.audio.transcriptions.create(file=file, model=name)
        assert (refused.value.code, refused.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize(
    ("contents", "code"),
    [(b"", "empty_audio"), (b"no recording at all" * 99, "unsupported_audio")],
    ids=["empty", "text"],
)
def test_a_file_that_is_no_recording(client: OpenAI, contents: bytes, code: str) -> None:
    for stream in (False, True):
        with pytest.raises(BadRequestError) as refused:
            client.audio.transcriptions.create(
                file=("../../secret.wav", contents), model="small", stream=stream
            )
        assert (refused.value.code, refused.value.param) == (code, "file")
        assert "secret" not in refused.value.message


def test_the_suffix_of_a_file_is_of_no_consequence(
    client: OpenAI, example: Path, expected: Any
) -> None:
    answer = client.audio.transcriptions.create(
        file=("speech.mp3", example.read_bytes(), "video/mp4"), model="small",
        extra_body={"sample_len": 12, "vad_filter": False},
    )  # fmt: skip
    assert answer.text == expected.text.strip()


def test_openais_name_of_a_model(ask: Callable[..., Any], expected: Any) -> None:
    assert ask(model="whisper-1").text == expected.text.strip()


def test_a_family_takes_what_clients_always_send(serve: Serve, example: Path) -> None:
    """A Parakeet has no temperature, and refuses a prompt by OpenAI's name of it."""
    model = oscine.load(GOLDENS / "parakeet_tdt", "cpu")
    client = serve({"p": model}).client()
    recording = example.read_bytes()
    answer = client.audio.transcriptions.create(file=recording, model="p", temperature=0.0)
    assert answer.text == model.transcribe(example).text.strip()
    with pytest.raises(BadRequestError, match="prompt") as refused:
        client.audio.transcriptions.create(file=recording, model="p", prompt="Before.")
    assert refused.value.param == "prompt"


@pytest.mark.weights
def test_words_of_a_real_recording(serve: Serve, weights: dict[str, Path], example: Path) -> None:
    client = serve({"tiny.en": oscine.load(weights["tiny.en"], "cpu")}).client()
    with example.open("rb") as file:
        answer = client.audio.transcriptions.create(
            file=file, model="gpt-4o-transcribe", response_format="verbose_json",
            timestamp_granularities=["word"],
        )  # fmt: skip
    assert answer.text.startswith("This recording was made by a computer")
    assert [word.word for word in answer.words or ()][:3] == ["This", "recording", "was"]
    assert answer.language == "english"
    with example.open("rb") as file:
        events = list(client.audio.transcriptions.create(file=file, model="tiny.en", stream=True))
    assert [json.loads(event.to_json())["type"] for event in events] == [
        "transcript.text.delta", "transcript.text.delta", "transcript.text.done",
    ]  # fmt: skip
