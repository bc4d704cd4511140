"""The command as a whole: version, help, unknown commands, quick start."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from oscine.cli import run
from oscine.cli.openai_style import rewrite

Capture = pytest.CaptureFixture[str]


def test_version(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"oscine {metadata.version('oscine')}\n"


def test_help_lists_the_commands(capsys: Capture) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("transcribe", "speak", "voices", "models", "doctor"))


@pytest.mark.parametrize("arguments", [[], ["transcribe"], ["speak"], ["voices"], ["models"]])
def test_nothing_to_do_is_answered_with_help(capsys: Capture, arguments: list[str]) -> None:
    assert run(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("Usage: oscine")


@pytest.mark.parametrize("command", ["transcribe", "speak", "voices", "models", "doctor"])
def test_a_command_offers_its_own_options_alone(capsys: Capture, command: str) -> None:
    assert run([command, "--help"]) == 0
    assert "completion" not in capsys.readouterr().out


def test_an_unknown_command_is_one_line(capsys: Capture) -> None:
    assert run(["transcribble"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("oscine: No such command 'transcribble'")
    assert error.count("\n") == 1


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
        (["--", "--flag_a", "a_b"], ["--", "--flag_a", "a_b"]),
    ],
)
def test_openai_spelling(arguments: list[str], expected: list[str]) -> None:
    assert rewrite(arguments, {"--flag-a", "--no-flag-a"}) == expected
