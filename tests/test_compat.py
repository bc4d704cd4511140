"""Scripts for faster-whisper and openai-whisper run with another import line: docs/compat.md."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import pickle
import re
from collections.abc import Iterator, Mapping
from inspect import isgenerator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.audio.mel import log_mel
from oscine.compat import arguments, faster_whisper, whisper
from oscine.compat.faster_whisper import BatchedInferencePipeline, WhisperModel
from oscine.errors import AudioError, DeviceError, OscineError, UsageError
from oscine.models.whisper.executors import DecodingExecutor

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "compat.md").read_text("utf-8")
GOLDENS = ROOT / "tests" / "goldens"
NOISE = np.random.default_rng(0).normal(0, 0.1, 5 * 16000).astype(np.float32)

#: The examples of the READMEs; only the import line, the model's name and the file are others.
IMPORT = "from oscine.compat.faster_whisper import WhisperModel, BatchedInferencePipeline\n"
PRINTED = """
for segment in segments:
    print("[%.2fs -> %.2fs] %s" % (segment.start, segment.end, segment.text))
"""
FIRST = (
    IMPORT
    + """
model_size = "base"

# Run on GPU with FP16
model = WhisperModel(model_size, device="cuda", compute_type="float16")

# or run on GPU with INT8
# model = WhisperModel(model_size, device="cuda", compute_type="int8_float16")
# or run on CPU with INT8
# model = WhisperModel(model_size, device="cpu", compute_type="int8")

segments, info = model.transcribe("spoken.wav", beam_size=5)

print("Detected language '%s' with probability %f" % (info.language, info.language_probability))
"""
    + PRINTED
)
COLLECTED = """
segments, _ = model.transcribe("spoken.wav")
segments = list(segments)  # The transcription will actually run here.
"""
BATCH = (
    IMPORT
    + """
model = WhisperModel("base", device="cuda", compute_type="float16")
batched_model = BatchedInferencePipeline(model=model)
segments, info = batched_model.transcribe("spoken.wav", batch_size=16)
"""
    + PRINTED
)
DISTIL = (
    IMPORT
    + """
model_size = "tiny.en"

model = WhisperModel(model_size, device="cuda", compute_type="float16")
segments, info = model.transcribe("spoken.wav", beam_size=5, language="en", """
    + "condition_on_previous_text=False)\n"
    + PRINTED
)
WORDS = """
segments, _ = model.transcribe("spoken.wav", word_timestamps=True)

for segment in segments:
    for word in segment.words:
        print("[%.2fs -> %.2fs] %s" % (word.start, word.end, word.word))
"""
VAD = """
segments, _ = model.transcribe("spoken.wav", vad_filter=True)
segments, _ = model.transcribe(
    "spoken.wav",
    vad_filter=True,
    vad_parameters=dict(min_silence_duration_ms=500),
)
"""
LOGGING = """
import logging

logging.basicConfig()
logging.getLogger("faster_whisper").setLevel(logging.DEBUG)
"""
WHISPER = """
from oscine.compat import whisper

model = whisper.load_model("base")
result = model.transcribe("spoken.wav")
print(result["text"])
"""
LOW_LEVEL = """
from oscine.compat import whisper

model = whisper.load_model("base")

# load audio and pad/trim it to fit 30 seconds
audio = whisper.load_audio("spoken.wav")
audio = whisper.pad_or_trim(audio)

# make log-Mel spectrogram and move to the same device as the model
mel = whisper.log_mel_spectrogram(audio, n_mels=model.dims.n_mels).to(model.device)

# detect the spoken language
_, probs = model.detect_language(mel)
print(f"Detected language: {max(probs, key=probs.get)}")

# decode the audio
options = whisper.DecodingOptions()
result = whisper.decode(model, mel, options)

# print the recognized text
print(result.text)
"""
HEARD = "This recording was made by a computer, and you are reading what it said."


MODELS: dict[str, Any] = {}  # each is opened once


@pytest.fixture
def opened(weights: dict[str, Path]) -> Iterator[list[tuple[str, ...]]]:
    """What oscine.load is asked for; it opens the model on the CPU."""
    calls: list[tuple[str, ...]] = []

    def load(name: str, device: str, dtype: str, *, offline: bool) -> Any:
        calls.append((str(name), device, dtype))
        if name not in MODELS:
            MODELS[name] = oscine.load(name, "cpu")
        return MODELS[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arguments, "load", load)
        patch.chdir(ROOT / "examples")
        yield calls


@pytest.fixture
def base(opened: Any) -> WhisperModel:
    return WhisperModel("base", device="cpu")


@pytest.mark.weights
@pytest.mark.parametrize(
    ("example", "printed"),
    [
        (FIRST, ["Detected language 'en' with probability 0.9", f"4.12s]  {HEARD}"]),
        (FIRST + COLLECTED + WORDS + VAD + LOGGING, [HEARD, "s]  recording\n"]),
        (BATCH, [HEARD]),
        (DISTIL, ["This recording was made by a computer"]),
        (WHISPER, [f" {HEARD} It is a very short one, because nobody likes to wait.\n"]),
        (LOW_LEVEL, ["Detected language: en\n", f"\n{HEARD} It is a very short one"]),
    ],
)
def test_the_examples_of_the_readmes_run(
    opened: list[tuple[str, ...]], example: str, printed: list[str], capsys: Any
) -> None:
    exec(compile(example, "README", "exec"), {})
    logging.getLogger("faster_whisper").setLevel(logging.NOTSET)
    told = capsys.readouterr().out
    assert all(each in told for each in printed), told
    wanted = ("gpu", "f16") if "cuda" in example else ("auto", "auto")
    assert opened[0][1:] == wanted


def test_segments_are_made_as_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    start = DecodingExecutor.start

    def counted(*arguments: Any) -> Any:
        decoded.append(arguments)
        return start(*arguments)

    monkeypatch.setattr(DecodingExecutor, "start", counted)
    every = {"temperature": 0, "no_speech_threshold": None, "without_timestamps": True}
    segments, info = SMALL.transcribe(np.tile(NOISE, 4), **every)
    assert isgenerator(segments) and not decoded
    assert info.language and info.duration == 20.0
    assert next(segments).id == 1 and len(decoded) == 1
    assert len(list(segments)) + 1 == len(decoded) > 2


@pytest.mark.weights
def test_results_have_the_fields_of_faster_whisper(base: WhisperModel) -> None:
    segments, info = base.transcribe("spoken.wav", word_timestamps=True, vad_filter=True)
    first, second = segments
    assert (first.id, second.id, first.seek, first.temperature) == (1, 2, 0, 0.0)
    assert isinstance(first.tokens, list) and -1 < first.avg_logprob < 0
    assert 0 <= first.no_speech_prob < 0.1 and first.compression_ratio > 1
    assert first.start <= first.words[0].start < first.words[-1].end <= first.end
    assert "".join(word.word for word in first.words) == first.text
    assert all(0 <= word.probability <= 1 for word in first.words)
    assert list(dataclasses.asdict(first)) == list(first._asdict())
    assert first._asdict()["words"][0] == first.words[0]._asdict()
    probabilities = [share for _, share in info.all_language_probs]
    assert info.all_language_probs[0] == ("en", info.language_probability)
    assert probabilities == sorted(probabilities, reverse=True) and len(probabilities) == 99
    assert info.duration == pytest.approx(8.3, abs=0.1) == info.duration_after_vad
    assert info.vad_options == faster_whisper.VadOptions()
    assert info.transcription_options.beam_size == 5
    assert base.detect_language("spoken.wav")[:2] == ("en", info.language_probability)
    _, given = base.transcribe("spoken.wav", language="English")
    assert (given.language, given.language_probability) == ("en", 1)
    assert given.all_language_probs is None


@pytest.mark.weights
def test_results_have_the_keys_of_openai_whisper(opened: Any, capsys: Any) -> None:
    model = whisper.load_model("base")
    result = model.transcribe("spoken.wav", word_timestamps=True, verbose=True, fp16=False)
    assert list(result) == ["text", "segments", "language"] and result["language"] == "en"
    first = result["segments"][0]
    assert list(first) == [
        *("id", "seek", "start", "end", "text", "tokens", "temperature", "avg_logprob"),
        *("compression_ratio", "no_speech_prob", "words"),
    ]
    assert list(first["words"][0]) == ["word", "start", "end", "probability"]
    told = capsys.readouterr()
    assert told.out.startswith("Detected language: English\n[00:00.000 --> 00:0")
    assert len(told.out.splitlines()) == 1 + len(result["segments"])
    assert whisper.transcribe(model, "spoken.wav", language="en", verbose=False)["segments"]
    told = capsys.readouterr()
    assert told.out == "" and "100%" in told.err


@pytest.mark.weights
def test_what_was_left_out_by_vad_is_told(base: WhisperModel, caplog: Any) -> None:
    spoken = whisper.load_audio("spoken.wav")
    sound = np.concatenate([spoken, np.zeros(10 * 16000, np.float32), spoken])
    with caplog.at_level(logging.INFO, "faster_whisper"):
        segments, info = base.transcribe(sound, vad_filter=True, language="en")
    assert info.duration - info.duration_after_vad == pytest.approx(10, abs=1.5)
    assert any("VAD filter removed 00:" in message for message in caplog.messages)
    assert [s.text.strip() for s in segments].count(HEARD) == 2
    _, clipped = base.transcribe(sound, vad_filter=True, clip_timestamps=[0, 3])
    assert clipped.vad_options is None  # as faster-whisper


@pytest.mark.parametrize(
    ("device", "index", "wanted"),
    [
        ("cuda", 0, "gpu"),
        ("cuda", 1, "gpu:1"),
        ("cuda", [2], "gpu:2"),
        ("cuda:0", 0, "gpu"),
        ("cuda:1", 0, "gpu:1"),
        ("CUDA", 0, "gpu"),
        ("mps", 0, "gpu"),
        ("cpu", 0, "cpu"),
        ("auto", 0, "auto"),
        ("auto", 1, "gpu:1"),
        (None, 0, "auto"),
        ("gpu:1", 0, "gpu:1"),
        ("nvidia", 0, "nvidia"),
    ],
)
def test_cuda_is_the_gpu(device: Any, index: Any, wanted: str) -> None:
    assert arguments.to_device(device, index) == wanted


@pytest.mark.parametrize("index", [-1, "1", True, [0, 1], 1.0])
def test_an_index_that_is_none_is_refused(index: Any) -> None:
    with pytest.raises(UsageError, match="device_index="):
        arguments.to_device("cuda", index)
    with pytest.raises(UsageError, match="device_index=1 goes with"):
        arguments.to_device("cpu", 1)


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> Any:
        raise DeviceError("no adapter")

    monkeypatch.setattr("oscine.gpu.device.candidates", none)
    with pytest.raises(DeviceError, match="no adapter"):
        WhisperModel(str(GOLDENS / "whisper_multi"), device="cuda")


def test_a_compute_type_is_held_so_or_explained_once(
    caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments, "_warned", set())
    assert [arguments.to_dtype(kind) for kind in ("default", "auto", "float16", "float32")] == [
        *("auto", "auto", "f16", "f32")
    ]
    assert not caplog.messages
    for kind in ("int8", "int8", "int8_float16", "int8_float32", "int8_bfloat16", "int16"):
        assert arguments.to_dtype(kind) == "auto"
    assert [message.split(":")[0] for message in caplog.messages] == [
        f"compute_type={kind}"
        for kind in ("int8", "int8_float16", "int8_float32", "int8_bfloat16", "int16")
    ]
    for kind in ("int4", None, {"cuda:0": "int8"}):
        with pytest.raises(UsageError, match="compute_type"):
            arguments.to_dtype(kind)


#: How each group of refused names is called on the page, and what refuses one of them.
REFUSED: Mapping[str, tuple[Mapping[str, str], Any]] = {
    "WhisperModel(": (
        faster_whisper.UNSUPPORTED_MODEL_OPTIONS,
        lambda **o: WhisperModel("base", **o),
    ),
    "transcribe(": (
        faster_whisper.UNSUPPORTED_OPTIONS | whisper.UNSUPPORTED_OPTIONS,
        lambda **o: (
            WhisperModel.transcribe(SMALL, NOISE, **o)
            if set(o) & set(faster_whisper.UNSUPPORTED_OPTIONS)
            else OPENAI.transcribe(NOISE, **o)
        ),
    ),
    "download_model(": (
        faster_whisper.UNSUPPORTED_DOWNLOAD_OPTIONS,
        lambda **o: faster_whisper.download_model("base", **o),
    ),
    "load_model(": (whisper.UNSUPPORTED_MODEL_OPTIONS, lambda **o: whisper.load_model("base", **o)),
}
SMALL = WhisperModel(str(GOLDENS / "whisper_multi"), device="cpu")
OPENAI = whisper.load_model(str(GOLDENS / "whisper_multi"), device="cpu")
ATTRIBUTES = {
    "WhisperModel.": (faster_whisper.UNSUPPORTED_ATTRIBUTES, SMALL),
    "Whisper.": (whisper.UNSUPPORTED_ATTRIBUTES, OPENAI),
}


def test_the_page_lists_what_is_refused_and_the_remedy() -> None:
    told = {
        name: what for name, what in re.findall(r"^\| `([\w.(]+=?\)?)` \| (.*) \|$", PAGE, re.M)
    }
    options = {
        f"{call}{name}=)": remedy
        for call, (refused, _) in REFUSED.items()
        for name, remedy in refused.items()
    }
    attributes = {
        f"{owner}{name}": remedy
        for owner, (refused, _) in ATTRIBUTES.items()
        for name, remedy in refused.items()
    }
    assert told == options | attributes


def test_the_page_names_what_there_is() -> None:
    for module in (faster_whisper, whisper):
        for name in module.__all__:
            assert f"`{name}`" in PAGE or name == "Whisper", name
            assert hasattr(module, name)


@pytest.mark.parametrize(
    ("call", "name"), [(call, name) for call, (names, _) in REFUSED.items() for name in names]
)
def test_what_is_refused_is_refused_by_name(call: str, name: str) -> None:
    with pytest.raises(UsageError) as told:
        REFUSED[call][1](**{name: "x"})
    assert f"{name}='x': {REFUSED[call][0][name]}" in str(told.value)


@pytest.mark.parametrize("owner", ATTRIBUTES)
def test_attributes_of_others_say_where_theirs_is(owner: str) -> None:
    refused, model = ATTRIBUTES[owner]
    for name, remedy in refused.items():
        assert not hasattr(model, name)
        with pytest.raises(AttributeError, match=re.escape(f"has no {name} here: {remedy}")):
            getattr(model, name)
    with pytest.raises(AttributeError, match="has no attribute nothing"):
        model.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: SMALL.transcribe(NOISE, beam_sise=5), "no option beam_sise; did you mean beam"),
        (lambda: SMALL.transcribe(NOISE, batch_size=5), "no option batch_size"),
        (lambda: SMALL.transcribe(NOISE, initial_prompt=[1, 2]), "initial_prompt must be text"),
        (lambda: SMALL.transcribe(NOISE, length_penalty=0.5), "length_penalty=0.5"),
        (lambda: SMALL.transcribe(NOISE, vad_parameters={}), "needs vad_filter=True"),
        (lambda: SMALL.transcribe(NOISE, vad_filter=True, vad_parameters=3), "be a dictionary"),
        (
            lambda: SMALL.transcribe(NOISE, vad_filter=True, vad_parameters={"treshold": 1}),
            "no option treshold; did you mean threshold",
        ),
        (lambda: SMALL.transcribe(NOISE, hallucination_silence_threshold=1), "word_timestamps"),
        (lambda: SMALL.transcribe(NOISE, language="xx"), "language"),
        (lambda: SMALL.transcribe(NOISE, prompt_reset_on_temperature=None), "prompt_reset"),
        (lambda: SMALL.detect_language(), "give audio"),
        (lambda: WhisperModel("base", nothing=1), "WhisperModel has no option nothing"),
        (lambda: WhisperModel(str(GOLDENS / "parakeet_tdt"), device="cpu"), "is not a Whisper"),
        (
            lambda: BatchedInferencePipeline(SMALL).transcribe(
                NOISE, condition_on_previous_text=True
            ),
            "condition_on_previous_text",
        ),
        (lambda: OPENAI.transcribe(NOISE, log_prob_threshold=1), "did you mean logprob_threshold"),
        (lambda: OPENAI.decode(np.zeros((80, 30)), beam=1), "no option beam; did you mean beam_"),
        (lambda: OPENAI.decode(np.zeros(3)), "a mel has shape"),
        (lambda: OPENAI.decode(np.zeros((2, 3))), "mel window must have shape"),
        (lambda: OPENAI.decode(MEL, prefix=[1]), "prefix must be text"),
        (lambda: OPENAI.decode(MEL, prompt=[10**6]), "is not a token id"),
        (lambda: OPENAI.decode(MEL, best_of=2), "best_of needs a temperature"),
        (lambda: OPENAI.decode(MEL, beam_size=2, temperature=0.5), "beam_size needs temperature 0"),
        (lambda: OPENAI.decode(np.full_like(MEL, np.nan)), "non-finite"),
        (lambda: OPENAI.to("cuda"), "the model is on cpu; load_model(name, device='cuda')"),
    ],
)
def test_what_cannot_be_done_is_one_line(call: Any, words: str) -> None:
    with pytest.raises(OscineError, match=re.escape(words)) as told:
        call()
    assert "\n" not in str(told.value)


MEL = whisper.log_mel_spectrogram(
    whisper.pad_or_trim(NOISE, OPENAI.dims.n_audio_ctx * 320), OPENAI.dims.n_mels
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0},
        {"temperature": [0.2, 0.4]},
        {"temperature": 0.0, "best_of": 5, "beam_size": 5, "patience": 2},
        {"beam_size": 1},
        {"beam_size": 1, "patience": 1},
        {"length_penalty": 1, "repetition_penalty": 1.1, "no_repeat_ngram_size": 3},
        {"task": "translate", "language": "de", "language_detection_segments": 2},
        {"without_timestamps": True},
        {"suppress_tokens": [], "suppress_blank": False},
        {"suppress_tokens": None},
        {"initial_prompt": "Hello", "prefix": "So", "hotwords": "oscine"},
        {"max_new_tokens": 10, "log_prob_threshold": None, "no_speech_threshold": None},
        {"clip_timestamps": "0,1,2,3"},
        {"clip_timestamps": [0.5, 1.0]},
        {"multilingual": True, "language_detection_threshold": None},
        {"chunk_length": None},
    ],
)
def test_what_faster_whisper_takes_is_taken(options: dict[str, Any]) -> None:
    segments, info = SMALL.transcribe(NOISE, **options)
    assert info.language and all(isinstance(each.text, str) for each in segments)
    batched, _ = BatchedInferencePipeline(model=SMALL).transcribe(NOISE, **options, batch_size=2)
    assert all(isinstance(each.text, str) for each in batched)


def test_a_recording_without_speech_has_no_language() -> None:
    segments, info = SMALL.transcribe(np.zeros(32000, np.float32), vad_filter=True)
    assert (info.language, info.language_probability, list(segments)) == ("", 0.0, [])
    assert (info.duration, info.duration_after_vad) == (2.0, 0.0)
    assert OPENAI.transcribe(np.zeros(0, np.float32), verbose=False)["segments"] == []


def test_batches_take_clips_as_dictionaries() -> None:
    clips = [{"start": 0.0, "end": 1.5}, {"start": 2.0, "end": 4.0}]
    segments, info = BatchedInferencePipeline(SMALL).transcribe(NOISE, clip_timestamps=clips)
    assert info.vad_options is None
    assert all(s.end <= 1.5 or 2.0 <= s.start <= s.end <= 4.0 for s in segments)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0, "best_of": 5, "beam_size": 2, "patience": 2.0},
        {"temperature": 0.4, "best_of": 2, "beam_size": 2},
        {"temperature": None},
        {"fp16": False, "suppress_tokens": "-1,5", "sample_len": 5},
        {"task": "translate", "language": "German", "without_timestamps": True},
        {"clip_timestamps": [0, 1], "carry_initial_prompt": True, "initial_prompt": "Hi"},
    ],
)
def test_what_openai_whisper_takes_is_taken(options: dict[str, Any]) -> None:
    assert set(OPENAI.transcribe(NOISE, **options)) == {"text", "segments", "language"}


def test_one_window_is_decoded_with_what_is_asked_for() -> None:
    alone = OPENAI.decode(MEL)
    assert alone.language_probs and alone.language == max(
        alone.language_probs, key=alone.language_probs.__getitem__
    )
    both = whisper.decode(OPENAI, np.stack([MEL, MEL]), whisper.DecodingOptions(sample_len=4))
    assert [each.tokens for each in both] == [alone.tokens[:4]] * 2
    assert whisper.decode(OPENAI, MEL, language="de").language == "de"
    assert OPENAI.decode(MEL, task="lang_id").language == alone.language
    code, shares = OPENAI.detect_language(MEL)
    assert code == alone.language and shares == alone.language_probs
    assert OPENAI.detect_language(MEL[np.newaxis]) == ([code], [shares])
    warm = [OPENAI.decode(MEL, temperature=0.5, best_of=n) for n in (None, 2)]
    assert all(each.temperature == 0.5 for each in warm)
    assert OPENAI.decode(MEL, beam_size=2, patience=1.0).temperature == 0.0
    ids = OPENAI._model.tokenizer.encode(" Hello")
    by_text, by_ids = OPENAI.decode(MEL, prompt="Hello"), OPENAI.decode(MEL, prompt=list(ids))
    assert by_text == by_ids != alone


def test_an_english_only_model_stays_english(caplog: Any) -> None:
    model = WhisperModel(str(GOLDENS / "whisper_en"), device="cpu")
    assert model.supported_languages == ["en"] and not model.model.is_multilingual
    for language in ("auto", "en-US", None):
        assert model.transcribe(NOISE, language=language)[1].language == "en"
    assert not caplog.messages
    _, info = model.transcribe(NOISE, language="de", multilingual=True)
    assert (info.language, info.language_probability) == ("en", 1)
    assert len(caplog.messages) == 2 and all("English-only" in told for told in caplog.messages)
    with pytest.raises(UsageError, match="English-only and cannot detect languages"):
        whisper.load_model(str(GOLDENS / "whisper_en"), "cpu").detect_language(MEL)


def test_a_model_goes_to_another_process() -> None:
    again = pickle.loads(pickle.dumps(SMALL))
    assert again.supported_languages == SMALL.supported_languages
    assert copy.deepcopy(SMALL)._model is SMALL._model
    assert pickle.loads(pickle.dumps(OPENAI)).dims == OPENAI.dims
    assert pickle.loads(pickle.dumps(BatchedInferencePipeline(SMALL))).model.model


@pytest.mark.parametrize(("length", "axis"), [(5, -1), (12, -1), (3, 0), (1, 0)])
def test_arrays_are_cut_or_filled_with_zeros(length: int, axis: int) -> None:
    given = np.arange(20.0).reshape(2, 10)
    found = whisper.pad_or_trim(given, length, axis=axis)
    assert found.shape[axis] == length
    kept = min(length, given.shape[axis])
    same = [np.take(each, range(kept), axis) for each in (found, given)]
    np.testing.assert_array_equal(*same)
    assert not np.take(found, range(kept, length), axis).any()


def test_a_spectrogram_is_what_the_model_hears() -> None:
    found = whisper.log_mel_spectrogram(NOISE, 128, padding=1600)
    assert found.shape == (128, (len(NOISE) + 1600) // 160)
    expected = log_mel(np.pad(NOISE, (0, 1600)), 128).T
    np.testing.assert_array_equal(found, expected)
    for moved in (found.to("cuda"), found.cpu(), found.float(), found.half()):
        assert moved is found
    assert found.unsqueeze(0).shape == (1, *found.shape) and type(found.numpy()) is np.ndarray


def test_recordings_are_decoded(example: Path) -> None:
    mono = faster_whisper.decode_audio(str(example))
    np.testing.assert_array_equal(mono, whisper.load_audio(str(example)))
    for channel in faster_whisper.decode_audio(str(example), split_stereo=True):
        np.testing.assert_array_equal(channel, mono)
    left, right = faster_whisper.decode_audio((np.stack([NOISE, -NOISE]), 16000), 16000, True)
    np.testing.assert_array_equal(left, -right)
    with pytest.raises(AudioError, match="no such file"):
        whisper.load_audio("nothing.wav")
    with contextlib.closing(example.open("rb")) as file:
        assert len(faster_whisper.decode_audio(file, 8000)) == pytest.approx(len(mono) / 2, abs=2)


def test_a_tensor_is_taken_as_its_array() -> None:
    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return NOISE

    one, two = (OPENAI.transcribe(audio)["text"] for audio in (Tensor(), NOISE))
    assert one == two


def test_names_of_models_and_times_are_as_upstream() -> None:
    for names in (faster_whisper.available_models(), whisper.available_models()):
        assert {"tiny", "tiny.en", "base", "large", "large-v3-turbo", "turbo"} <= set(names)
    assert faster_whisper.format_timestamp(3661.5) == "01:01:01.500"
    assert faster_whisper.format_timestamp(1.5, True, ",") == "00:00:01,500"
