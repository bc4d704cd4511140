"""The command as a whole: version, help, unknown commands, quick start."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import oscine.cli
from oscine.cli import run
from oscine.cli.openai_style import normalize_args
from oscine.cli.parameters import cli_type, typer_option
from oscine.errors import UsageError
from oscine.options import options_of
from oscine.options.command import SpeakCommand, TranscribeCommand
from oscine.options.layout import Layout
from oscine.options.speak import SpeakOptions, VoiceOptions
from oscine.options.transcribe import TranscribeOptions

Capture = pytest.CaptureFixture[str]


def test_version(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"oscine {metadata.version('oscine')}\n"


def test_help_lists_the_commands(capsys: Capture) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("transcribe", "speak", "voices", "models", "doctor"))


@pytest.mark.parametrize("arguments", [[], ["voices"], ["models"]])
def test_nothing_to_do_is_answered_with_help(capsys: Capture, arguments: list[str]) -> None:
    assert run(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("Usage: oscine")


@pytest.mark.parametrize("command", ["transcribe", "speak"])
def test_a_command_without_input_says_so(capsys: Capture, command: str) -> None:
    for arguments in ([command], [command, "--device", "cpu"]):
        assert run(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("oscine: no input: give a ")
        assert f"; oscine {command} --help lists the options\n" in error
        assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["transcribe", "speak", "voices", "models", "doctor"])
def test_a_command_offers_its_own_options_alone(capsys: Capture, command: str) -> None:
    assert run([command, "--help"]) == 0
    assert "completion" not in capsys.readouterr().out


def test_an_unknown_command_is_one_line(capsys: Capture) -> None:
    for arguments, hint in [
        (["transcrbe", "a.wav"], "no such command 'transcrbe'; did you mean transcribe?"),
        (["models", "lst"], "no such command 'lst'; did you mean list?"),
        (["voices", "delete"], "no such command 'delete'; the commands are save, list, remove"),
    ]:
        assert run(arguments) == 2
        assert capsys.readouterr().err == f"oscine: {hint}\n"


@pytest.mark.parametrize("command", ["transcribe", "speak", "voices"])
def test_to_ask_for_help_loads_no_engine(command: str) -> None:
    script = (
        f"import sys; from oscine.cli import run; run(['{command}', '--help'])\n"
        "print(sorted({'av', 'wgpu', 'rich', 'tokenizers'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--output_format", "a_b"], ["--output-format", "a_b"]),
        (["--output_format=a_b"], ["--output-format=a_b"]),
        (["my_file.wav", "-f", "x_y"], ["my_file.wav", "-f", "x_y"]),
        (["--prompt", "--a_b", "--c_d", "1"], ["--prompt", "--a_b", "--c-d", "1"]),
        (["--flag_a", "True", "x"], ["--flag-a", "x"]),
        (["--flag_a", "false", "x"], ["--no-flag-a", "x"]),
        (["--flag_a=False", "x"], ["--no-flag-a", "x"]),
        (["--flag_a", "x"], ["--flag-a", "x"]),
        (["--no_flag_a", "x"], ["--no-flag-a", "x"]),
        (["--no_flag_a", "True", "x"], ["--no-flag-a", "x"]),
        (["--no_flag_a", "False", "x"], ["--flag-a", "x"]),
        (["--no-flag-a=false", "x"], ["--flag-a", "x"]),
        (["--alone", "true", "x"], ["--alone", "x"]),
        (["--alone", "False", "x"], ["x"]),
        (["--alone=False", "x"], ["x"]),
        (
            ["-o", "\u2013", "\u2013 said she", "\u2014alone-ness"],
            ["-o", "\u2013", "\u2013 said she", "\u2014alone-ness"],
        ),
        (
            ["--prompt", "\u2014alone", "--", "\u2014alone"],
            ["--prompt", "\u2014alone", "--", "\u2014alone"],
        ),
        (["--", "--flag_a", "a_b"], ["--", "--flag_a", "a_b"]),
    ],
)
def test_openai_spelling(arguments: list[str], expected: list[str]) -> None:
    assert normalize_args(arguments, FLAGS, {*FLAGS, "-o", "--prompt"}) == expected


FLAGS = {"--flag-a": "--no-flag-a", "--no-flag-a": "--flag-a", "--alone": ""}


@pytest.mark.parametrize(
    "dash", ["\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2015", "\u2212"]
)
@pytest.mark.parametrize(
    ("rest", "meant"),
    [
        ("alone", "--alone"), ("-alone", "--alone"), ("flag_a", "--flag-a"), ("o", "-o"),
        ("prompt=3", "--prompt"), ("no-flag-a", "--no-flag-a"),
    ],
)  # fmt: skip
def test_an_option_with_another_dash_is_told_what_to_write(
    dash: str, rest: str, meant: str
) -> None:
    with pytest.raises(UsageError) as refused:
        normalize_args(["a.wav", dash + rest], FLAGS, {*FLAGS, "-o", "--prompt"})
    remedy = f"begins with a dash that is not a hyphen; write {meant}"
    assert str(refused.value) == f"{dash}{rest} {remedy}"


COMMANDS = (
    [], ["transcribe"], ["speak"], ["models"], ["models", "list"], ["models", "pull"],
    ["models", "path"], ["voices"], ["voices", "save"], ["voices", "list"], ["voices", "remove"],
    ["doctor"],
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids="-".join)
@pytest.mark.parametrize("columns", [80, 50, 40, 30])
def test_help_fits_the_terminal_and_names_no_types(
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    command: list[str],
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run([*command, "--help"]) == 0
    told = capsysbinary.readouterr().out.decode()
    name = r"(?:\S{30,}|--no-\S{25,})"  # of an option, which is not cut
    wide = [line for line in told.splitlines() if len(line) > columns]
    assert all(re.search(name, line) and len(line.split()) == 1 for line in wide)
    usage = " ".join(told.partition("\n\n")[0].split())
    groups = {(), ("models",), ("voices",)}
    assert usage.endswith("COMMAND [ARGS]...") == (tuple(command) in groups)
    assert not re.search(r"<(?:str|int|float|list)|\{\w|INT\b|FLOAT\b", told)
    assert columns < 80 or "..." not in told.partition("Commands:")[2]  # summaries are whole


def test_every_option_with_a_value_names_its_flag() -> None:
    """Typer 0.27 takes the metavar DEVICE of an option `device` for its name: --DEVICE."""
    calls = [
        (file.name, node)
        for file in sorted(Path(oscine.cli.__file__).parent.glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Option"
    ]
    assert len(calls) > 5
    unnamed = [(name, node.lineno) for name, node in calls if not node.args]
    assert not unnamed
    kinds = TranscribeCommand, TranscribeOptions, Layout, SpeakCommand, SpeakOptions, VoiceOptions
    for record in (record for kind in kinds for record in options_of(kind).values()):
        flag = typer_option(
            record
        ).default  # where Typer keeps the first one until it makes the command
        assert str(flag).startswith("-") or cli_type(record)[0] in (bool, bool | None), record.name
