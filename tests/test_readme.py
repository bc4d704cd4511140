"""The README is true: its Python runs and prints what it says, and what it names is there."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import typer

import oscine
from oscine import registry
from oscine.audio import write
from oscine.cli import app, run
from oscine.formats import FORMATS
from oscine.models.qwen3_tts.capabilities import DEFAULT_VOICE
from oscine.models.qwen3_tts.released import LANGUAGES, SPEAKS
from oscine.models.whisper import released as whisper
from oscine.options.others import ANSWERED, TAKEN
from oscine.options.speak import SpeakOptions
from oscine.options.transcribe import TranscribeOptions
from oscine.types import Coverage, Segment, Transcript

ROOT = Path(__file__).resolve().parent.parent
try:
    sys.path.insert(0, str(ROOT / "tools"))
    import write_cli_page
finally:
    sys.path.remove(str(ROOT / "tools"))
README = (ROOT / "README.md").read_text("utf-8")
CLI = (ROOT / "docs" / "cli.md").read_text("utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("[!.]*/*.md")])
#: Files of upstream programs that pages name, and a name that no file has.
NOT_OURS = {"utils.py"}
#: A block of code and, where there is one, what it prints.
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", README, re.S | re.M)
SHELL = [code.strip() for kind, code, _ in BLOCKS if kind == "sh"]
SPEECH = [(code, printed) for kind, code, printed in BLOCKS if kind == "python" and "speak" in code]
PYTHON = [
    (code, printed)
    for kind, code, printed in BLOCKS
    if kind == "python" and (code, printed) not in SPEECH
]


def options_of(command: Any) -> set[str]:
    """Long options of a command and of all below it."""
    own = {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("--")}
    names = command.list_commands(None) if hasattr(command, "list_commands") else []
    below = [command.get_command(None, name) for name in names]
    return own.union(*map(options_of, below))


COMMAND: Any = typer.main.get_command(app)


def section(title: str) -> str:
    """From a heading to the next of its rank."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> Iterator[list[str]]:
    """Cells of the tables in a text, the heads too."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.weights
def test_python_blocks_print_what_stands_below_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    assert len(PYTHON) == 7
    for code, printed in PYTHON:
        exec(compile(code, "README.md", "exec"), names)
        assert capsys.readouterr().out == printed


class FakeFastApi(ModuleType):
    """In place of FastAPI, which is not installed here: routes, and responses as iterators."""

    class FastAPI:
        def __init__(self) -> None:
            self.routes: dict[str, Callable[..., Any]] = {}

        def get(self, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
            return lambda route: self.routes.setdefault(path, route)

    class StreamingResponse:
        def __init__(self, content: Iterator[bytes], media_type: str) -> None:
            assert media_type.startswith("audio/pcm;rate=24000")
            self.content = content


def assert_serves(route: Callable[..., Any], speaker: Any) -> None:
    """Two clients that take turns in one worker, which is the narrowest pool, hear what `speak`
    says."""
    clients = [route("Hello there.\n\nAnd more.", seed=seed).content for seed in range(2)]
    heard = [b"", b""]
    left = [0, 1]
    with ThreadPoolExecutor(1) as pool:
        while left:
            for client in list(left):
                sound = pool.submit(next, clients[client], None).result()
                heard[client] += sound or b""
                if sound is None:
                    left.remove(client)
    for seed in range(2):
        samples = speaker.speak("Hello there.\n\nAnd more.", voice="ryan", seed=seed).samples
        assert heard[seed] == (samples * 32767).astype(np.dtype("<i2")).tobytes()


def test_speech_blocks_print_what_stands_below_them(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    empty_home: Path,
) -> None:
    """With a small random model in place of the one that is named."""
    small = ROOT / "tests" / "goldens" / "qwen3_tts"
    load = oscine.load

    def load_small(name: str) -> Any:
        """It has no end of its own: forty frames of each text are enough."""
        model: Any = load(small / SPEAKS[name][0] / "ckpt", "cpu")
        whole = model._stream

        def short(started: float, text: Any, cancel: Any, options: Any, **how: Any) -> Any:
            return whole(started, text, cancel, {"max_frames": 40} | options, **how)

        model._stream = short
        return model

    monkeypatch.setattr(oscine, "load", load_small)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    monkeypatch.setitem(sys.modules, "fastapi", FakeFastApi("fastapi"))
    monkeypatch.setitem(sys.modules, "fastapi.responses", FakeFastApi("fastapi.responses"))
    names: dict[str, Any] = {"oscine": oscine}
    assert len(SPEECH) == 7
    for code, printed in SPEECH:
        exec(compile(code, "README.md", "exec"), names)
        assert capsys.readouterr().out == printed
    assert_serves(names["app"].routes["/speech"], names["speaker"])
    saved = {file.name for file in tmp_path.iterdir() if file.is_file()}
    assert saved == {"hello.flac", "pieces.wav", "cloned.wav"}
    ignored = set((ROOT / ".gitignore").read_text().split())
    assert {f"/*{Path(name).suffix}" for name in saved} <= ignored
    assert [file.stem for file in (empty_home / "voices").iterdir()] == ["computer"]


@pytest.mark.weights
def test_the_first_command_prints_what_stands_below_it(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(ROOT)
    _, first, printed = BLOCKS[0]
    command = shlex.split(first.rpartition("&&")[2])
    assert command[0] == ".venv/bin/oscine"
    assert run(command[1:]) == 0
    assert capfdbinary.readouterr().out.decode() == printed


def test_the_second_command_is_what_ci_runs() -> None:
    ci = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert SHELL[1] == "make test"
    assert f"step {SHELL[1]}" in ci


def test_every_option_is_named_and_every_name_is_an_option() -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9_-]*[a-z0-9](?![\w-])", README + CLI))
    checker = (ROOT / "tools" / "check_golden.py").read_text("utf-8")
    others = set(re.findall(r'add_argument\("(--[a-z-]+)"', checker))
    foreign = {name.split()[0] for name in (*TAKEN, *ANSWERED)} | {"--version", "--help"}
    assert {name.replace("_", "-") for name in named} <= options_of(COMMAND) | others | foreign


@pytest.mark.parametrize("command", ["transcribe", "speak"])
def test_every_option_is_in_the_table_of_its_command(command: str) -> None:
    """The README leads to the page that has the tables."""
    assert README.count("[docs/cli.md](docs/cli.md)") == 2
    page = CLI.partition(f"\n## `oscine {command} ")[2].partition("\n## ")[0]
    named = set(re.findall(r"--[a-z][a-z0-9-]+", " ".join(row[0] for row in rows(page))))
    here = options_of(COMMAND.get_command(None, command)) - {"--help"}
    assert {name for name in here if not name.startswith("--no-")} <= named <= here


def test_the_page_of_options_is_what_their_records_make() -> None:
    assert write_cli_page.text() == CLI, "run `make pages`"


def test_speech_formats_models_and_languages_are_those_there_are() -> None:
    said = section("Speak")
    sound = said.partition("**Sound**")[2].partition("A file has")[0]
    found = re.findall(r"`([a-z0-9]+)`", sound)
    assert [name for name in found if name != "f"] == list(write.FORMATS)
    assert set(re.findall(r"`(qwen3-tts-[\w.-]+)`", said)) == set(registry.models("speak"))
    assert set(re.findall(r"qwen3-tts-[\w.-]*\w", README)) == set(registry.models("speak"))
    assert f"`{registry.default('speak')}` (the default)" in said
    listed = said.partition("languages (")[2].partition(")")[0].replace("\n", " ").split(", ")
    assert {name.lower() for name in listed} == set(LANGUAGES)
    assert f"the default: {DEFAULT_VOICE}" in said and f"`{DEFAULT_VOICE}`" in said


def test_refused_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    said = re.findall(r"^- `(--[a-z-]+)` is refused", section("Options"), re.M)
    names = [row[0].strip("`") for row in rows(CLI) if row[1].startswith("Refused")]
    assert names == said == ["--model-dir"]
    for name in names:
        assert run(["transcribe", "examples/spoken.wav", name, "7"]) == 2
        assert name.strip("-").replace("-", "_") in capsys.readouterr().err


def test_every_environment_variable_is_named_and_read() -> None:
    pattern = r"\b(?:OSCINE|HF)_[A-Z_]+\b"
    code = "\n".join(file.read_text("utf-8") for file in (ROOT / "src").rglob("*.py"))
    read = set(re.findall(rf"[\"']({pattern})[\"']", code))
    named = set(re.findall(pattern, README))
    assert named <= read
    assert {name for name in read if name.startswith("OSCINE_")} <= named


def test_models_and_formats_are_those_there_are() -> None:
    names = README.partition("\n- a name: ")[2].partition(";")[0]
    english = {name for name in whisper.MODELS if name.endswith(".en") and "distil" not in name}
    assert set(re.findall(r"`([\w.-]+)`", names)) - {".en"} == set(whisper.MODELS) - english
    assert f"The default model is `{registry.default('transcribe')}`" in README
    out = section("Input and output").partition("**Out:**")[2].partition(";")[0]
    assert [name for name in re.findall(r"`([a-z]+)`", out) if name in FORMATS] == [
        "txt", "srt", "vtt", "tsv", "lrc", "json",
    ]  # fmt: skip


def test_json_fields_are_those_written() -> None:
    segment = Segment(0, 0, 0.0, 1.0, "", (), 0.0, 0.0, 0.0, 0.0, (), "en", 1, ("repetition",))
    whole = Transcript("", "en", (segment,), 1.0, "", "", {}, 1.0, Coverage(1.0, 0.0))
    written = whole.to_dict()
    table = [row for row in rows(section("Input and output")) if row[0] not in ("field", "---")]
    assert [name for row in table for name in re.findall(r"`(\w+)`", row[0])] == list(written)
    fields = next(row[1] for row in table if row[0] == "`segments`")
    assert re.findall(r"`(\w+)`", fields) == list(segment.to_dict())


def test_options_of_the_python_api_are_those_of_the_command() -> None:
    named = {name.strip("-").replace("-", "_") for name in options_of(COMMAND)}
    assert {*TranscribeOptions.__dataclass_fields__, *SpeakOptions.__dataclass_fields__} <= named


def test_figures_are_those_in_the_tables() -> None:
    for unit, table in ((" %", "accuracy.md"), (" ms", "gpu.md")):
        figures = re.findall(rf"(\d+\.\d\d){unit}", section("Proof").replace("\n ", ""))
        found = (ROOT / "benchmarks" / table).read_text("utf-8")
        assert len(figures) > 2
        assert [figure for figure in figures if figure not in found] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    headings = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.M)
    }
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif not target.startswith("https://"):
            assert page.parent.joinpath(target).exists(), target


def test_the_tree_is_the_tree() -> None:
    lines = section("The tree").partition("```\n")[2].partition("```")[0].splitlines()
    top = ""
    for line in lines:
        name = line.split()[0]
        if not line.startswith(" "):
            top = name
        path = ROOT / (name if name == top else top + name)
        assert path.is_dir() if name.endswith("/") else path.is_file(), path
    named = {line.split()[0].partition("/")[0] for line in lines if not line.startswith(" ")}
    assert {p.name for p in ROOT.iterdir() if p.is_dir() and p.name[0] != "."} <= named | {"build"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_ours_that_a_page_names_are_there(page: Path) -> None:
    """By their path in the repository, or by the end of it: `weights.py`, `ops/state.py`."""
    named = set(re.findall(r"`([\w./]+\.(?:py|sh|wgsl|toml))`", page.read_text("utf-8")))
    folders = ("src", "tests", "tools", "benchmarks", "examples", "requirements")
    there = [
        f"/{file.relative_to(ROOT)}" for folder in folders for file in ROOT.glob(f"{folder}/**/*.*")
    ]
    there += [f"/{file.name}" for file in ROOT.iterdir()]
    missing = {name for name in named if not any(each.endswith(f"/{name}") for each in there)}
    assert missing <= NOT_OURS
