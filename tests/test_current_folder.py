"""Nothing that is in the current folder is run: modules, programs, settings of pip.

Each file there writes its name into a folder of canaries and then is the module that it stands for,
so that one run shows every name that is taken from the current folder.
"""

from __future__ import annotations

import ast
import http.server
import importlib.metadata
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oscine import download

ROOT = Path(__file__).resolve().parent.parent
CONSOLE_SCRIPT = str(Path(sys.executable).with_name("oscine"))

#: Modules that a command takes if they are there, installed or not.
OPTIONAL = {"sounddevice", "keyring", "certifi", "socks", "brotli", "usercustomize", "h2"}

#: Programs that pip, ctypes and others look for by their names alone.
PROGRAMS = ("gcc", "cc", "ld", "objdump", "ldconfig", "rustc", "keyring", "ffmpeg", "git")

MODULE = """\
open({canary!r}, "w")
import sys, _frozen_importlib, _frozen_importlib_external
folders = [path for path in sys.path if path not in ("", {folder!r})]
spec = _frozen_importlib_external.PathFinder.find_spec({name!r}, folders)
if spec is None:
    raise ImportError({name!r})
module = _frozen_importlib.module_from_spec(spec)
sys.modules[{name!r}] = module
spec.loader.exec_module(module)
"""

Run = Callable[..., "tuple[set[str], subprocess.CompletedProcess[str]]"]


def every_name() -> set[str]:
    """All modules of this Python and of what is installed beside it, and those that may be."""
    installed = importlib.metadata.packages_distributions()
    names = {*sys.stdlib_module_names, *installed, *OPTIONAL, "pip"}
    return {name for name in names if name.isidentifier() and name != "oscine"}


def plant(folder: Path, names: set[str]) -> None:
    """Put a module for each name into a folder, half of them as packages."""
    canaries = folder.parent / "canaries"
    canaries.mkdir()
    for number, name in enumerate(sorted(names)):
        text = MODULE.format(canary=str(canaries / name), name=name, folder=str(folder))
        if number % 2 and name not in PROGRAMS:
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(text)
            (folder / name / "__main__.py").write_text(text)
        else:
            (folder / f"{name}.py").write_text(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module of every name there is, programs, settings, and a package of none."""
    folder = tmp_path_factory.mktemp("all") / "recordings"
    folder.mkdir()
    plant(folder, every_name())
    (folder / "empty_package").mkdir()
    (folder / "empty_package" / "__init__.py").touch()
    (folder / "empty_package" / "__main__.py").touch()
    canaries = folder.parent / "canaries"
    for program in PROGRAMS:
        (folder / program).write_text(f"#!/bin/sh\ntouch {canaries}/{program}.program\n")
        (folder / program).chmod(0o755)
    for settings in ("pip.conf", "pip.ini", ".env", "setup.cfg", "pyproject.toml", ".netrc"):
        (folder / settings).write_text("[global]\nindex-url = http://127.0.0.1:9/settings\n")
    return folder


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Run:
    """Run a command in that folder; -> the canaries that died, and what it printed."""
    canaries = folder.parent / "canaries"

    def in_folder(
        *command: str, **environment: str
    ) -> tuple[set[str], subprocess.CompletedProcess[str]]:
        for file in canaries.iterdir():
            file.unlink()
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON"))}
        clean |= {"OSCINE_HOME": str(tmp_path / "home"), "HF_HOME": str(tmp_path / "hf")}
        done = subprocess.run(
            command,
            cwd=folder,
            env=clean | environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
        return {file.name for file in canaries.iterdir()}, done

    return in_folder


@pytest.fixture(scope="module")
def nowhere() -> Iterator[str]:
    """The address of a server that has nothing: no model, no wheel."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{service.server_address[1]}"
        service.shutdown()
        thread.join()


MODEL = str(ROOT / "tests" / "goldens" / "whisper_multi")
RECORDING = str(ROOT / "examples" / "spoken.wav")
TRANSCRIBE = ("transcribe", RECORDING, "--model", MODEL, "--device", "cpu", "--sample-len", "2")
COMMANDS = {
    "version": ("--version",),
    "help": ("transcribe", "--help"),
    "models": ("models", "list"),
    "doctor": ("doctor",),
    "transcribe": TRANSCRIBE,
    "fetch": ("models", "pull", "tiny.en"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_runs_nothing_of_the_current_folder(
    run: Run, nowhere: str, command: str
) -> None:
    """Through an empty entry of PATH neither, nor pip, which is asked where an index fails."""
    settings = {"HF_ENDPOINT": nowhere, "PIP_INDEX_URL": f"{nowhere}/simple"}
    died, done = run(
        CONSOLE_SCRIPT, *COMMANDS[command], PATH=f".::{os.defpath}", NO_COLOR="1", **settings
    )
    assert died == set(), done.stderr
    assert done.returncode == (1 if command == "fetch" else 0), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["transcribe", "fetch"])
def test_python_m_runs_only_what_python_itself_takes(run: Run, nowhere: str, command: str) -> None:
    """What that is, Python without oscine shows; with -P it is nothing."""
    settings = {"HF_ENDPOINT": nowhere, "PIP_INDEX_URL": f"{nowhere}/simple"}
    died, done = run(sys.executable, "-m", "oscine", *COMMANDS[command], **settings)
    pythons, _ = run(sys.executable, "-m", "empty_package")
    assert died <= pythons, done.stderr
    assert "Traceback" not in done.stderr
    died, done = run(sys.executable, "-P", "-m", "oscine", *COMMANDS[command], **settings)
    assert died == set(), done.stderr


def test_the_canaries_live_in_a_place_where_they_can_die(run: Run) -> None:
    died, _ = run(sys.executable, "-m", "json.tool", "--help")
    assert {"json", "argparse"} <= died
    died, _ = run(sys.executable, "-c", "import numpy")
    assert "numpy" in died


def test_an_import_of_the_package_imports_nothing(run: Run) -> None:
    """So that `python -m oscine` can take the current folder away before its first import."""
    died, done = run(sys.executable, "-c", "import oscine, oscine.__main__")
    pythons, _ = run(sys.executable, "-c", "pass")
    assert died <= pythons, done.stderr


@pytest.mark.parametrize("entry", [None, ".", ":", "/nowhere:", ":/nowhere"])
def test_pip_is_not_run_from_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, entry: str | None
) -> None:
    """Whatever PYTHONPATH says, which may be set after this process has begun."""
    canaries = folder.parent / "canaries"
    for file in canaries.iterdir():
        file.unlink()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    if entry is not None:
        monkeypatch.setenv("PYTHONPATH", entry)
    assert "settings" not in " ".join(download.package_indexes())
    assert download._run_pip("--version").startswith("pip ")
    assert list(canaries.iterdir()) == []


def test_a_stray_colon_in_pythonpath_gives_no_module_to_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the standard library Python takes some before any of our code: that is not promised."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    names = every_name() - sys.stdlib_module_names
    plant(folder, {name for name in names if not name.startswith("_")})  # which .pth files import
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", "/nowhere:")
    done = subprocess.run([CONSOLE_SCRIPT, *TRANSCRIBE], capture_output=True, timeout=120)
    assert (done.returncode, list((tmp_path / "canaries").iterdir())) == (0, []), done.stderr


def test_every_python_that_is_started_is_kept_from_the_current_folder() -> None:
    """A child of `sys.executable` gets -P as its first argument, wherever it is started."""
    calls = 0
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.List | ast.Tuple):
                words = [ast.unparse(element) for element in node.elts]
                if "sys.executable" in words:
                    calls += 1
                    following = words[words.index("sys.executable") + 1]
                    assert following in ("'-P'", "'-I'"), f"{file}: {ast.unparse(node)}"
    assert calls >= 1
