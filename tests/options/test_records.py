"""How an option is added: one more record gets its flag, check, help, group, page and refusal."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

import oscine.cli
from oscine import registry
from oscine.cli.console import ArgumentError
from oscine.cli.option_names import use_flags
from oscine.cli.parameters import command, group_options, select_options
from oscine.errors import UsageError
from oscine.options import (
    Group,
    Options,
    SupportedOptions,
    hints_for,
    option,
    options_of,
    renamed_options,
)
from oscine.options.checks import integer, number, one_of, optional, positive, text
from oscine.options.command import SpeakCommand, TranscribeCommand
from oscine.options.layout import Layout
from oscine.options.speak import SpeakOptions, VoiceOptions
from oscine.options.transcribe import (
    DecodingOptions,
    FallbackThresholds,
    SegmentOptions,
    TranscribeOptions,
    WordOptions,
)

ROOT = Path(__file__).resolve().parent.parent.parent
KINDS = (TranscribeCommand, TranscribeOptions, Layout, SpeakCommand, VoiceOptions, SpeakOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What only the toy's command takes."""

    speed: float | None = option(
        None, optional(number()), "How fast.", Group.MODEL, python_hint="give it to run"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dance(Options):
    """A task of options in two groups."""

    purpose = "dancing"
    related = (Running,)

    steps: int = option(
        8, integer(1, 64), "Steps to make.", "Moves", renamed_from={"moves": "use steps"}
    )
    style: Literal["waltz", "tango"] = option("waltz", one_of("waltz", "tango"), "Kind.", "Moves")
    music: str | None = option(None, text, "What plays.", "Music", unique=True)


def command_of(*kinds: type[Any]) -> tuple[Any, list[dict[str, Any]]]:
    """A command with the options of the kinds, and the list that its calls go to."""
    calls: list[dict[str, Any]] = []
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

    @command(app, *kinds)
    def dance(
        context: typer.Context,
        floor: Annotated[str, typer.Argument(metavar="FLOOR")] = "",
        **options: Any,
    ) -> None:
        """Dance."""
        calls.append({"floor": floor, **options})

    return typer.main.get_command(app), calls


def run(made: Any, *arguments: str) -> None:
    made.main([*arguments], prog_name="dance", standalone_mode=False)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def with_one_more() -> type[Any]:
    """The toy with one more option: step 1 of CONTRIBUTING's "How to add", and nothing else."""
    volume = option(
        None, positive(), "Loudness, dB.", "Music", families=("Waltzer",), default_text="80",
        no_op_values=(80.0,), refusal="it has no loudspeaker",
    )  # fmt: skip
    added = make_dataclass(
        "Louder", [("volume", float | None, volume)], bases=(Dance,), frozen=True, kw_only=True
    )
    return added


def test_one_record_makes_an_option(wide: None, capsys: pytest.CaptureFixture[str]) -> None:
    louder = with_one_more()
    before, _ = command_of(Running, Dance)
    with pytest.raises(ArgumentError, match="No such option: --volume"):
        run(before, "--volume", "3")
    made, calls = command_of(Running, louder)
    run(made, "hall", "--volume", "3", "--steps=2")  # a flag
    assert select_options(louder, calls[0]) == louder(volume=3.0, steps=2)
    with pytest.raises(ArgumentError) as caught:
        run(made, "--volume", "x")
    assert caught.value.format_message() == "Invalid value for '--volume': 'x' is not a number"
    run(made, "--help")  # help, under the heading of the group
    shown = capsys.readouterr().out
    music = shown.partition("\nMusic:\n")[2]
    assert re.search(r"--volume NUMBER +Loudness, dB\. +\[default: 80\]", music)
    assert louder.of(volume="7").volume == 7.0  # a check
    with pytest.raises(UsageError, match=r"^volume must be above 0, not -1$"):
        louder.of(volume=-1)
    with pytest.raises(UsageError, match=r"unknown option volum; did you mean volume\?"):
        louder.of(volum=1)
    waltzer = SupportedOptions(louder, "Waltzer")
    mute = SupportedOptions(louder, "Mute")  # a refusal by name
    assert waltzer.of(volume=7).volume == 7.0
    assert mute.of(volume=80).volume == 80.0  # which asks for nothing
    with pytest.raises(
        UsageError, match=r"^volume is not an option of Mute; it has no loudspeaker"
    ):
        mute.of(volume=7)


def test_help_is_in_groups_with_one_margin(wide: None, capsys: pytest.CaptureFixture[str]) -> None:
    made, _ = command_of(Running, Dance)
    run(made, "--help")
    shown = capsys.readouterr().out
    headings = re.findall(r"^(\S[\w ]*):$", shown, re.M)
    assert headings == ["Arguments", "Model and device", "Moves", "Music", "Help"]
    starts = {match.start(1) for match in re.finditer(r"(?m)^ +--[a-z].*? {2,}(\S)", shown)}
    margins = {start - shown.rindex("\n", 0, start) for start in starts}
    assert len(margins) == 1
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("transcribe", KINDS[:3]), ("speak", KINDS[3:])],
    ids=["transcribe", "speak"],
)
def test_help_of_the_commands_is_in_groups(
    wide: None, capsysbinary: pytest.CaptureFixture[bytes], name: str, kinds: tuple[type[Any], ...]
) -> None:
    assert oscine.cli.run([name, "--help"]) == 0
    shown = capsysbinary.readouterr().out.decode()
    assert max(map(len, shown.splitlines())) <= 80 and "\x1b" not in shown
    parts = re.split(r"^(\S.*):$", shown, flags=re.M)[1:]
    groups = group_options(kinds)
    assert parts[::2] == ["Arguments", *groups, "Help"]
    for heading, part in zip(parts[2:-2:2], parts[3:-2:2], strict=True):
        words = " ".join(re.sub(r"-\n +", "-", part).split())
        for record in groups[heading]:
            assert re.search(rf"--{record.name.replace('_', '-')}\b", words)
            assert use_flags(record.help) in words
            assert (
                not record.default_text or use_flags(f"[default: {record.default_text}]") in words
            )


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("cli.transcribe", "oscine.models"),
        *((f"options.{name}", "numpy") for name in ("transcribe", "speak", "command", "layout")),
    ],
)
def test_records_import_neither_numpy_nor_models(module: str, absent: str) -> None:
    """So that help, and a wrong call, take no longer than they must."""
    code = f"import sys, oscine.{module}; sys.exit({absent!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


def test_an_option_that_may_be_given_once(wide: None) -> None:
    made, calls = command_of(Dance)
    run(made, "--steps", "1", "--steps", "2")
    assert calls[0]["steps"] == 2
    with pytest.raises(UsageError, match=r"^--music is given twice; leave one out$"):
        run(made, "--music", "a", "--music", "b")


def test_what_is_no_option_is_told_where_it_is() -> None:
    assert hints_for(Dance) == {"moves": "use steps", "speed": "give it to run"}
    assert renamed_options(Dance) == {"moves": "use steps"}
    with pytest.raises(UsageError, match=r"^moves is not an option of dancing; use steps$"):
        Dance.of(moves=3)
    with pytest.raises(UsageError, match=r"^unknown option xyz; known: steps, style, music$"):
        Dance.of(xyz=3)
    assert Dance.of(moves=None, speed=None) == Dance()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_record_is_whole(kind: type[Any]) -> None:
    for name, record in options_of(kind).items():
        assert record.name == name and record.type is not None
        assert record.group in [*Group]
        # One clause, as a sentence.
        assert record.help[0] == record.help[0].upper() or record.help.split()[0].islower()
        assert record.help.endswith(".") and len(record.help) <= 100
        # A default is told once: by its value, or in words where it is none.
        assert not (record.default_text and record.default is not None)
        assert all(
            name.startswith("-") for each in record.flags for name in each.strip(" /").split("/")
        )


class Odd:
    """A value of another package, as a tensor is: whatever is asked of it fails in its own way."""

    def fail(self, *arguments: Any) -> Any:
        raise RuntimeError("a tensor with 2 elements cannot become a number")

    __float__ = __index__ = __iter__ = __len__ = __str__ = __repr__ = __bool__ = fail


ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(),
    st.sampled_from([10**400, "auto", "1,2", "0.5", "translate", 1e39, np.arange(3), np.zeros(0)]),
    st.sampled_from([np.array([[1, 2], [3, 4]]), np.ma.masked]),
)  # fmt: skip
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["start", "end", "x"]), inner, max_size=3),
    ),
    max_leaves=4,
)


@pytest.mark.parametrize("kind", [TranscribeOptions, SpeakOptions], ids=lambda kind: kind.__name__)
@given(st.data())
def test_any_value_is_taken_or_refused_by_name(kind: type[Options], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*options_of(kind)]))
    try:
        checked = kind.of(**{name: data.draw(VALUES)})
    except UsageError as error:
        assert name in str(error) and "\n" not in str(error)
        return
    value = getattr(checked, name)
    assert getattr(kind.of(**{name: value}), name) == value  # a normal form is one


@pytest.mark.parametrize("kind", [TranscribeOptions, SpeakOptions], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "value",
    [Odd(), [Odd()], [{"start": Odd()}], np.array([[1, 2], [3, 4]]), np.ones((2, 2, 2)).tolist()],
)
def test_a_value_of_any_shape_or_package_is_refused_in_one_line(
    kind: type[Options], value: Any
) -> None:
    for name in options_of(kind):
        try:
            kind.of(**{name: value})
        except UsageError as error:
            assert name in str(error) and "\n" not in str(error)
        else:  # pairs of seconds
            assert name == "clip_timestamps" and isinstance(value, np.ndarray)


def test_each_option_of_a_transcription_is_in_one_class() -> None:
    """TranscribeOptions and its bases, which the code below the model is given, share no option."""
    own = [
        name for part in TranscribeOptions.__mro__ for name in vars(part).get("__annotations__", ())
    ]
    options = options_of(TranscribeOptions)
    assert sorted(name for name in own if name in options) == sorted(options)
    for part in (FallbackThresholds, WordOptions, DecodingOptions, SegmentOptions):
        assert options_of(part).items() <= options.items()
        default = part()
        assert all(getattr(default, name) == options[name].default for name in options_of(part))


def test_groups_are_told_apart_by_task() -> None:
    for kinds in (KINDS[:3], KINDS[3:]):
        names = [record.name for group in group_options(kinds).values() for record in group]
        assert len(names) == len(set(names)) == len({n for kind in kinds for n in options_of(kind)})


def test_default_models_are_those_of_the_records() -> None:
    assert options_of(TranscribeCommand)["model"].default_text == registry.default_model(
        "transcribe"
    )
    assert options_of(SpeakCommand)["model"].default_text == registry.default_model("speak")
    assert options_of(SpeakCommand)["aligner"].default_text == registry.default_model("transcribe")


#: Options that only the host reads, and where they are used.
USES = {
    **dict.fromkeys(("max_words", "silence_gap", "max_duration"), "models/parakeet/words.py"),
    **dict.fromkeys(
        ("language_detection_segments", "language_detection_threshold"),
        "models/whisper/transcribe.py",
    ),
    **dict.fromkeys(("prepend_punctuations", "append_punctuations"), "models/whisper/words.py"),
    **dict.fromkeys(("logprob_threshold", "no_speech_threshold"), "models/whisper/fallback.py"),
    **dict.fromkeys(("vad_threshold", "vad_speech_pad_ms"), "models/transcription.py"),
    "temperature_increment_on_fallback": "cli/transcribe.py",
}


@pytest.mark.parametrize("name", USES)
def test_an_option_of_the_host_is_in_two_places(name: str) -> None:
    """The file of its record and that of its use name it, and no other: no table, no signature."""
    source = ROOT / "src" / "oscine"
    named = {
        file.relative_to(source).as_posix()
        for file in source.rglob("*.py")
        if re.search(rf"\b{name}\b", file.read_text("utf-8"))
    }
    named.discard("options/aliases.py")  # what other programs call it
    named = {file for file in named if not file.endswith("/bench.py")}  # sets it, to measure
    named = {file for file in named if not file.startswith("compat/")}  # likewise
    records = {file for file in named if file.startswith("options/")}
    assert len(records) == 1 and named - records == {USES[name]}
