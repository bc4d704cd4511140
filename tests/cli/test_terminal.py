"""What a command prints cannot command the terminal, and drivers' noise stays off it."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oscine.cli import run
from oscine.cli.common import OneLineFormatter
from oscine.errors import HubError
from oscine.gpu import device as gpu_device
from oscine.registry import default_model
from tests.cli.test_doctor import CARD
from tests.cli.test_faults import COMMAND, start

Recordings = Callable[..., list[str]]
Capture = pytest.CaptureFixture[bytes]

#: Sets a title, colours, a C1 control, an override of direction, a line separator, a bell.
HOSTILE = "a\x1b]0;owned\x07\x1b[31m\x9b1m\u202e\u2028\x7f[red]b"
SHOWN = r"a\x1b]0;owned\x07\x1b[31m\x9b1m\u202e\u2028\x7f[red]b"
POSIX = pytest.mark.skipif(os.name != "posix", reason="descriptors are another thing here")


def no_controls(text: bytes) -> bool:
    decoded = text.decode()
    return not set(decoded) & {chr(code) for code in (*range(10), *range(11, 32), 127, 0x9B)} and (
        not set(decoded) & set("\u202e\u2028")
    )


def on_a_terminal(script: str, *arguments: str) -> bytes:
    """All that a command shows where stdout and stderr are one terminal."""
    leader, follower = os.openpty()
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", script, here, *arguments]
    with subprocess.Popen(command, stdout=follower, stderr=follower):
        os.close(follower)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: all have closed it
            while part := os.read(leader, 65536):
                shown += part
    os.close(leader)
    return shown


@POSIX
def test_names_reach_a_terminal_as_escapes(recordings: Recordings) -> None:
    """In the bar, in the line for files that were written, and in messages."""
    names = recordings(f"{HOSTILE}.wav", f"broken{HOSTILE}.wav", f"gaps{HOSTILE}.wav")
    shown = on_a_terminal(
        COMMAND + "main()", "transcribe", "--model", "weights", *names, "--verbose"
    ).decode()
    assert f"broken{SHOWN}.wav: is damaged" in shown
    assert f"gaps{SHOWN}.wav: 2.5 of 10.0 s" in shown
    assert shown.count(f"{SHOWN}.wav") > 6
    assert "\x1b]0;owned" not in shown
    assert not set(shown) & set("\x07\x9b\u202e\u2028\x7f")


@pytest.mark.parametrize(
    "arguments",
    [
        ["transcribe", HOSTILE],
        ["transcribe", "a.wav", "-f", HOSTILE],
        ["transcribe", "a.wav", f"--{HOSTILE}"],
        ["transcribe", "a.wav", "--task", HOSTILE],
        ["transcribe", "a.wav", "--language", HOSTILE],
        ["transcribe", "a.wav", "--best-of", HOSTILE],
        ["transcribe", "a.wav", f"--vad-filter={HOSTILE}"],
        ["transcribe", "a.wav", "--clip-timestamps", HOSTILE],
        ["transcribe", "a.wav", "--model", HOSTILE],
        ["transcribe", "a.wav", "--device", HOSTILE, "--model", "weights"],
        ["transcribe", "a.wav", "-o", f"a.wav/{HOSTILE}"],
        ["speak", HOSTILE, "--voice", HOSTILE, "-o", "x.wav"],
        ["speak", "-o", "x.wav", "--", HOSTILE, HOSTILE],
        ["voices", "save", HOSTILE, "--audio", "a.wav"],
        ["voices", "list", "--model", HOSTILE],
        ["voices", "remove", HOSTILE],
        ["models", "path", HOSTILE, "--offline"],
        ["doctor", "--device", HOSTILE],
        [HOSTILE],
        [f"--{HOSTILE}"],
    ],
)
def test_values_of_options_are_quoted_as_escapes(
    recordings: Recordings, empty_home: Path, capsysbinary: Capture, arguments: list[str]
) -> None:
    recordings("a.wav")
    assert run(arguments) in (1, 2)
    out, error = capsysbinary.readouterr()
    assert no_controls(out), out
    assert no_controls(error), error
    assert out or error


def test_what_others_say_is_shown_as_escapes(
    recordings: Recordings, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    """Servers' words in errors, a library that prints, warns, or logs by a handler of its own."""

    def load(*_: object, **__: object) -> None:
        print(HOSTILE, file=sys.stderr)
        logging.StreamHandler().emit(logging.makeLogRecord({"msg": HOSTILE}))
        raise HubError(f"https://a.example: 403 bad {HOSTILE}\nand more")

    monkeypatch.setattr("oscine.load", load)
    assert run(["transcribe", "--model", "weights", *recordings("a.wav")]) == 1
    error = capsysbinary.readouterr().err
    assert no_controls(error)
    assert error.decode().count(r"\x1b]0;owned") == 3
    assert error.decode().endswith(r"[red]b\nand more" + "\n")
    record = logging.makeLogRecord({"msg": f"{HOSTILE}\nforged", "levelno": logging.WARNING})
    assert OneLineFormatter("oscine: %(message)s").format(record) == rf"oscine: {SHOWN}\nforged"


def test_a_traceback_of_our_own_mistake_is_shown_and_commands_nothing(
    recordings: Recordings,
) -> None:
    bug = f"def bug(*_, **__): raise ValueError({HOSTILE!r})\noscine.load = bug\n"
    process = start("import os\nos.environ['FORCE_COLOR'] = '1'\n" + COMMAND + bug + "main()",
                    *recordings("a.wav"))  # fmt: skip
    _, error = process.communicate()
    assert process.returncode == 1
    assert b"Traceback" in error
    assert b"ValueError: a\\x1b]0;owned" in error
    assert no_controls(error)


def test_lists_hold_no_controls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    place = tmp_path / "h\x1b[31m[red]"
    monkeypatch.setattr("oscine.hub.find_local", lambda name: place)
    assert run(["models", "list"]) == 0
    out = capsysbinary.readouterr().out
    assert no_controls(out)
    assert rf"{tmp_path}/h\x1b[31m[red]" in out.decode()
    monkeypatch.setattr("oscine.hub.resolve", lambda *_, **__: place)
    assert run(["models", "path", default_model("transcribe")]) == 0  # for a program: as it is
    assert capsysbinary.readouterr().out.decode() == f"{place}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run(["models", "path", default_model("transcribe")]) == 0
    assert no_controls(capsysbinary.readouterr().out)


def test_an_adapter_may_call_itself_anything(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    from dataclasses import replace

    from oscine.cli import doctor
    from oscine.ops.check import CASES, Result
    from oscine.ops.reference import Reference

    card = replace(CARD, name=HOSTILE, driver=HOSTILE)
    monkeypatch.setattr("oscine.gpu.device.adapters", lambda name: [card])
    monkeypatch.setattr(doctor, "find_gpu", lambda *asked: Reference())
    monkeypatch.setattr(doctor, "check_kernels", lambda adapter: [Result(CASES[0], 0.0, ())])
    assert run(["doctor"]) == 0
    out, error = capsysbinary.readouterr()
    assert no_controls(out)
    assert SHOWN in out.decode()
    assert error == b""


def test_text_on_standard_output_has_no_controls(
    model: Any, recordings: Recordings, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    from tests.cli import conftest

    real = conftest.segment
    monkeypatch.setattr(
        "tests.cli.conftest.segment", lambda number, text, **more: real(number, HOSTILE, **more)
    )
    for module in list(sys.modules.values()):
        if {"FakeStream", "segment"} <= vars(module).keys():
            monkeypatch.setattr(module, "segment", conftest.segment)
    for form in ("txt", "srt", "vtt", "tsv", "json"):
        assert run(["transcribe", "--model", "weights", *recordings("a.wav"), "-f", form]) == 0
        out, error = capsysbinary.readouterr()
        assert no_controls(out.replace(b"\t", b" ")), form
        assert b"owned" in out
        assert error == b""


#: A driver as Mesa's: it prints while its adapters are listed.
DRIVER = """
import os, sys
from types import SimpleNamespace
from oscine.gpu import device
def listed():
    os.write(2, b"error: XDG_RUNTIME_DIR is invalid\\x1b[31m" + b"!" * 200_000 + b"\\n")
    print("a message", file=sys.stderr)
    {then}
    return []
sys.modules["noisy"] = SimpleNamespace(gpu=SimpleNamespace(enumerate_adapters_sync=listed))
sys.modules["wgpu.backends.wgpu_native"] = SimpleNamespace()
device.PACKAGES = dict(wgpu="noisy")
os.environ["OSCINE_WEBGPU"] = "wgpu"
from oscine.cli import main
main()
"""


def doctor(then: str = "", **settings: Any) -> subprocess.CompletedProcess[bytes]:
    script = DRIVER.format(then=then)
    environment = dict(os.environ, **settings.pop("env", {}))
    return subprocess.run(
        [sys.executable, "-c", script, "doctor"],
        stdout=subprocess.PIPE, env=environment, check=False, **settings,
    )  # fmt: skip


@POSIX
def test_noise_of_drivers_is_kept_back_and_messages_are_not() -> None:
    done = doctor(stderr=subprocess.PIPE, env={"OSCINE_TRACE": ""})
    assert done.returncode == 0
    assert b"No WebGPU adapter" in done.stdout
    assert done.stderr == b"a message\n" * done.stderr.count(b"\n")
    assert done.stderr.count(b"\n") >= 2


@POSIX
def test_noise_of_drivers_is_shown_where_much_is_asked_for() -> None:
    done = doctor(stderr=subprocess.PIPE, env={"OSCINE_TRACE": "1"})
    assert done.returncode == 0
    assert b"XDG_RUNTIME_DIR" in done.stderr


@POSIX
@pytest.mark.parametrize(
    ("then", "code"),
    [
        ("os.abort()", -6),
        ("os._exit(3)", 3),
    ],
)
def test_a_driver_that_ends_the_process_is_heard(then: str, code: int) -> None:
    """The lines come from a process of their own, which may end after the command."""
    done = doctor(then, stderr=subprocess.PIPE, env={"OSCINE_TRACE": ""})
    assert done.returncode == code
    assert b"error: XDG_RUNTIME_DIR is invalid?[31m!!!" in done.stderr
    assert done.stderr.startswith(b"a message\n")


@POSIX
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are not listed here")
def test_a_keeper_that_is_ended_by_others_ends_nothing() -> None:
    children = "open(f'/proc/self/task/{os.getpid()}/children').read().split()"
    done = doctor(
        f"[(os.kill(int(each), 9), os.waitid(os.P_PID, int(each), os.WEXITED | os.WNOWAIT))"
        f" for each in {children}]",
        stderr=subprocess.PIPE,
        env={"OSCINE_TRACE": ""},
    )
    assert (done.returncode, b"No WebGPU adapter" in done.stdout) == (0, True)


@POSIX
def test_an_error_of_a_driver_is_a_traceback_and_its_noise_is_not() -> None:
    done = doctor("raise ValueError('a bug')", stderr=subprocess.PIPE, env={"OSCINE_TRACE": ""})
    assert done.returncode == 1
    assert b"ValueError: a bug" in done.stderr
    assert b"XDG_RUNTIME_DIR" not in done.stderr


@POSIX
def test_drivers_are_quiet_without_a_stderr_too() -> None:
    done = doctor(preexec_fn=lambda: os.close(2), env={"OSCINE_TRACE": ""})
    assert done.returncode == 0
    assert b"No WebGPU adapter" in done.stdout
    assert b"XDG" not in done.stdout


def test_a_library_leaves_the_descriptors_of_its_process_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also after a command was run in the same process."""

    def listed() -> list[Any]:
        os.write(2, b"noise\n")
        return []

    api = SimpleNamespace(gpu=SimpleNamespace(enumerate_adapters_sync=listed))
    monkeypatch.setattr("oscine.gpu.device.load_webgpu", lambda name: api)
    monkeypatch.setenv("OSCINE_WEBGPU", "wgpu")
    assert run(["doctor"]) == 0
    assert capfd.readouterr().err == ""
    assert gpu_device.adapters("wgpu") == []
    assert "noise" in capfd.readouterr().err
