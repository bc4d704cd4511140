"""What a family takes: of known options by their names; the rest is refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from oscine.errors import UsageError
from oscine.models.parakeet.options import OPTIONS as PARAKEET
from oscine.models.qwen3_tts.options import OPTIONS as QWEN3_TTS
from oscine.models.whisper.options import OPTIONS as WHISPER
from oscine.options import Group, SupportedOptions, option, options_of
from oscine.options.checks import integer
from oscine.options.speak import SpeakOptions
from oscine.options.transcribe import TranscribeOptions

#: As a package of its own would say it.
TOY = SupportedOptions(
    TranscribeOptions,
    "Toy",
    {"language", "word_timestamps", "vad_filter"},
    refusals={"task": "Toy cannot {value}: it only listens"},
)


@pytest.mark.parametrize("name", ["max_words", "silence_gap", "max_duration"])
def test_whisper_refuses_what_is_of_parakeet(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is not an option of Whisper; only Parakeet"):
        WHISPER.of(**{name: 3})
    assert getattr(PARAKEET.of(**{name: 3}), name) == 3


def test_a_family_of_its_own_says_what_it_takes() -> None:
    checked = TOY.of(language="German", word_timestamps=True, vad_filter=False)
    assert (checked.language, checked.word_timestamps, checked.vad_filter) == ("de", True, False)
    assert TOY.of() == TranscribeOptions()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"beam_size": 5}, "Toy does not support beam_size: leave it out, or use a Whisper model"),
        ({"hotwords": "oscine"}, "Toy does not support hotwords: leave it out"),
        ({"task": "translate"}, "Toy cannot translate: it only listens"),
        (
            {"silence_gap": 2.0},
            "silence_gap is not an option of Toy; only Parakeet's segments are made of words; "
            "Whisper's are its own",
        ),
        ({"language": "xx"}, None),  # the option's own check
        ({"languages": "de"}, "unknown option languages; did you mean language?"),
        ({"fp16": True}, None),
    ],
)
def test_what_it_lacks_is_refused_by_name(options: dict[str, Any], problem: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        TOY.of(**options)
    assert next(iter(options)) in str(caught.value) or problem is not None
    assert problem is None or str(caught.value) == problem


def test_every_option_that_a_family_lacks_is_refused() -> None:
    """Also those that are added later: a value that is not the default, for each by its name."""
    values = [True, False, 3, 0.25, "a", "translate", "1,2", "de"]
    lacked = [r for r in options_of(TranscribeOptions).values() if not TOY.supports(r)]
    assert len(lacked) > 30
    for record in lacked:
        for value in values:
            try:
                normal = record.normalize(value)
            except UsageError:
                continue
            if normal in (record.default, *record.no_op_values):
                continue
            with pytest.raises(UsageError):
                TOY.of(**{record.name: value})
            assert (
                record.name in TOY.unsupported_message(record, normal)
                or record.name in TOY.refusals
            )
            break
        else:
            pytest.fail(f"no value for {record.name}")


def test_what_asks_for_nothing_is_taken_by_all() -> None:
    TOY.of(temperature=0, beam_size=1, condition_on_previous_text=False, max_words=None)
    TOY.of(best_of=1)


def test_a_check_of_the_familys_own() -> None:
    def check(options: TranscribeOptions) -> None:
        if options.language == "de":
            raise UsageError("Toy has no German")

    toy = SupportedOptions(TranscribeOptions, "Toy", {"language"}, check=check)
    assert toy.of(language="fr").language == "fr"
    with pytest.raises(UsageError, match="no German"):
        toy.of(language="de")


def test_names_of_any_kind_are_taken_or_refused_at_once() -> None:
    for names in (["language"], ("language",), {"language"}, {"language": 1}, iter(["language"])):
        toy = SupportedOptions(TranscribeOptions, "Toy", names)  # type: ignore[arg-type]
        for _ in range(2):
            assert toy.of(language="fr").language == "fr"
    for wrong, told in (
        ("language", "names must be a collection of names, not 'language'"),
        (3, "names must be a collection of names, not 3"),
        ([None, "language"], "there is no option None of transcribe"),
        ([["language"]], "there is no option ['language'] of transcribe"),
    ):
        with pytest.raises(UsageError) as refused:
            SupportedOptions(TranscribeOptions, "Toy", wrong)  # type: ignore[arg-type]
        assert str(refused.value) == f"Toy: {told}"


@pytest.mark.parametrize("refusal", ["no {x}", "no {", "no {}", "no {0}", 3, "{value.nothing}"])
def test_a_refusal_that_cannot_be_told_is_told_at_once(refusal: Any) -> None:
    with pytest.raises(UsageError, match=r"the refusal of language must be text in which only \{v"):
        SupportedOptions(TranscribeOptions, "Toy", (), {"language": refusal})


def test_names_that_are_no_options_are_told_at_once() -> None:
    for wrong in (
        {"names": {"langage"}},
        {"refusals": {"langage": "no"}},
    ):
        with pytest.raises(UsageError, match="Toy: there is no option langage of transcribe"):
            SupportedOptions(TranscribeOptions, "Toy", **wrong)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speakers(TranscribeOptions):
    """Options that only this family has, one of which is called as one of the commands is."""

    speakers: int = option(1, integer(1, 8), "Voices to tell apart.", Group.AUDIO)
    threads: int = option(1, integer(1, 8), "Threads of this family.", Group.MODEL)


def test_a_family_may_have_options_of_its_own() -> None:
    toy = SupportedOptions(Speakers, "Toy", ("language", "speakers", "threads"))
    checked = toy.of(speakers="3", language="fr", threads=2)
    assert (checked.speakers, checked.language, checked.threads) == (3, "fr", 2)
    with pytest.raises(UsageError, match="speakers must be at most 8, not 9"):
        toy.of(speakers=9)
    with pytest.raises(UsageError, match="Toy does not support seed"):
        toy.of(seed=1)
    with pytest.raises(UsageError, match="patience needs beam_size above 1"):
        toy.of(patience=2)


def test_speech_is_taken_whole() -> None:
    assert all(map(QWEN3_TTS.supports, options_of(SpeakOptions).values()))
    mute = SupportedOptions(SpeakOptions, "Mute", {"seed"})
    with pytest.raises(UsageError, match=r"^Mute does not support top_k: leave it out$"):
        mute.of(top_k=3)
    assert mute.of(seed=3).seed == 3
