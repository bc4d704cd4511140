"""README and docs are true: their Python prints what they say, and what they name exists."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
from oscine.models.qwen3_tts.released import LANGUAGES, TTS_MODELS
from oscine.models.whisper import released as whisper
from oscine.options.aliases import ALIASES, HINTS
from oscine.options.speak import SpeakOptions
from oscine.options.transcribe import TranscribeOptions
from oscine.types import Coverage, Segment, Transcript

ROOT = Path(__file__).resolve().parent.parent
try:
    sys.path.insert(0, str(ROOT / "tools"))
    import write_cli_page
    import write_python_page
finally:
    sys.path.remove(str(ROOT / "tools"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("[!.]*/*.md")])
README = (ROOT / "README.md").read_text("utf-8")
DOCS = {page.stem: page.read_text("utf-8") for page in sorted((ROOT / "docs").glob("*.md"))}
#: Files of upstream programs that pages name, and a name that no file has.
NOT_OURS = {"utils.py"}
#: Of files, which look like attributes where a name ends with one.
SUFFIXES = {"md", "py", "txt", "toml", "wav", "json", "mp3", "flac", "opus", "ogg", "wgsl"}
#: Their Python re-creates faults of other programs, crashes among them.
#: That of docs/serve.md needs a server: tests/server/test_app.py runs it.
NOT_RUN = {"docs/upstream.md", "docs/serve.md"}
#: Pages whose every option is one of oscine's or of a program that it answers for.
CHECKED = ("transcribe", "speak", "models", "devices", "verification", "engine", "cli")
site = runpy.run_path(str(ROOT / "docs" / "conf.py"))


def blocks(text: str, kind: str) -> list[tuple[str, str]]:
    """Each block of code of a kind and, where there is one, what it prints."""
    found = re.findall(rf"^```{kind}\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", text, re.S | re.M)
    return [(code, printed) for code, printed in found]


def below_root(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def options_of(command: Any) -> set[str]:
    """Long options of a command and of all below it."""
    own = {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("--")}
    names = command.list_commands(None) if hasattr(command, "list_commands") else []
    below = [command.get_command(None, name) for name in names]
    return own.union(*map(options_of, below))


COMMAND: Any = typer.main.get_command(app)


def section(page: str, title: str) -> str:
    """From a heading of the second rank to the next."""
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> Iterator[list[str]]:
    """Cells of the tables in a text, the heads too."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def pages_with_python() -> Iterator[Any]:
    """Names of the pages whose Python runs; those that load a Whisper model need its weights."""
    for page in PAGES:
        name, text = below_root(page), page.read_text("utf-8")
        if blocks(text, "python") and name not in NOT_RUN:
            marks = [pytest.mark.weights] if 'load("base")' in text else []
            yield pytest.param(name, marks=marks)


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


def load_small(load: Callable[..., Any], name: str) -> Any:
    """A model that speaks is a small random one, of forty frames a text: it has no end of its
    own."""
    if name not in TTS_MODELS:
        return load(name)
    small = ROOT / "tests" / "goldens" / "qwen3_tts"
    model: Any = load(small / TTS_MODELS[name][0] / "ckpt", "cpu")
    whole = model._stream

    def short(started: float, text: Any, cancel: Any, options: Any, **how: Any) -> Any:
        return whole(started, text, cancel, {"max_frames": 40} | options, **how)

    model._stream = short
    return model


@pytest.mark.parametrize("page", list(pages_with_python()))
def test_python_prints_what_is_below_it(
    page: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    empty_home: Path,
) -> None:
    """The blocks of a page continue each other."""
    monkeypatch.setattr(oscine, "load", partial(load_small, oscine.load))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    monkeypatch.setitem(sys.modules, "fastapi", FakeFastApi("fastapi"))
    monkeypatch.setitem(sys.modules, "fastapi.responses", FakeFastApi("fastapi.responses"))
    names: dict[str, Any] = {}
    for code, printed in blocks((ROOT / page).read_text("utf-8"), "python"):
        exec(compile(code, page, "exec"), names)
        assert capsys.readouterr().out == printed
    saved = {file.name for file in tmp_path.iterdir() if file.is_file()}
    ignored = set((ROOT / ".gitignore").read_text().split())
    assert {f"/*{Path(name).suffix}" for name in saved} <= ignored
    if page == "docs/speak.md":
        assert saved == {"hello.flac", "pieces.wav", "cloned.wav"}
        assert [file.stem for file in (empty_home / "voices").iterdir()] == ["computer"]
        assert_serves(names["app"].routes["/speech"], names["speaker"])


def test_the_guides_have_the_python() -> None:
    named = {param.values[0]: param.marks for param in pages_with_python()}
    assert set(named) == {"README.md", "docs/transcribe.md", "docs/speak.md"}


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150
    first = README.splitlines()[2]
    assert all(word in first for word in ("Speech to text", "text to speech", "GPU", "WebGPU"))


@pytest.mark.weights
def test_the_first_command_prints_what_is_below_it(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(ROOT)
    first, printed = blocks(README, "sh")[0]
    command = shlex.split(first.rpartition("&&")[2])
    assert command[0] == ".venv/bin/oscine"
    assert run(command[1:]) == 0
    assert capfdbinary.readouterr().out.decode() == printed


def test_the_last_command_is_what_ci_runs() -> None:
    ci = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    last, _ = blocks(README, "sh")[-1]
    assert last == "make test\n"
    assert f"step {last.strip()}" in ci


def test_every_option_is_named_and_every_name_is_an_option() -> None:
    pages = "\n".join((README, *(DOCS[name] for name in CHECKED)))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9_-]*[a-z0-9](?![\w-])", pages))
    checker = (ROOT / "tools" / "check_golden.py").read_text("utf-8")
    others = set(re.findall(r'add_argument\("(--[a-z-]+)"', checker))
    foreign = {name.split()[0] for name in (*ALIASES, *HINTS)} | {"--version", "--help"}
    foreign |= {"--gpus"}  # Docker's
    assert {name.replace("_", "-") for name in named} <= options_of(COMMAND) | others | foreign


@pytest.mark.parametrize("command", ["transcribe", "speak"])
def test_every_option_is_in_the_table_of_its_command(command: str) -> None:
    page = DOCS["cli"].partition(f"\n## `oscine {command} ")[2].partition("\n## ")[0]
    named = set(re.findall(r"--[a-z][a-z0-9-]+", " ".join(row[0] for row in rows(page))))
    here = options_of(COMMAND.get_command(None, command)) - {"--help"}
    assert {name for name in here if not name.startswith("--no-")} <= named <= here


def test_the_page_of_options_is_what_their_records_make() -> None:
    assert write_cli_page.text() == DOCS["cli"], "run `make pages`"
    named = set(re.findall(r"`(--[a-z0-9-]+)`", DOCS["cli"])) | {"--help", "--version"}
    assert {name for name in options_of(COMMAND) if not name.startswith("--no-")} <= named


def test_the_python_reference_is_what_docstrings_make() -> None:
    assert write_python_page.text() == DOCS["python"], "run `make pages`"
    headings = re.findall(r"^### (\w+)$", DOCS["python"], re.M)
    assert set(oscine.__all__) <= set(headings)
    bare = re.findall(r"^#+ (.+)\n\n(?:```py\n[^`]*```\n\n)?(?=#|$)", DOCS["python"], re.M)
    assert bare == ["oscine", "Models", "Results", "Files and stages"], "a docstring is missing"


def test_speech_formats_models_and_languages_are_those_there_are() -> None:
    said = DOCS["speak"]
    sound = section(said, "Sound").partition("A file gets")[0]
    found = re.findall(r"`([a-z0-9]+)`", sound)
    assert [name for name in found if name != "f"] == list(write.FORMATS)
    assert set(re.findall(r"`(qwen3-tts-[\w.-]+)`", said)) == set(registry.models("speak"))
    for page in (README, DOCS["models"]):
        assert set(re.findall(r"qwen3-tts-[\w.-]*\w", page)) == set(registry.models("speak"))
    assert f"`{registry.default_model('speak')}` (the default)" in said
    listed = said.partition("languages (")[2].partition(")")[0].replace("\n", " ").split(", ")
    assert {name.lower() for name in listed} == set(LANGUAGES)
    assert f"the default: {DEFAULT_VOICE}" in said and f"`{DEFAULT_VOICE}`" in said


def test_refused_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    said = re.findall(r"^- `(--[a-z-]+)` is refused", DOCS["transcribe"], re.M)
    names = [row[0].strip("`") for row in rows(DOCS["cli"]) if row[1].startswith("Refused")]
    assert names == said == ["--model-dir"]
    for name in names:
        assert run(["transcribe", "examples/spoken.wav", name, "7"]) == 2
        assert f"{name} is not an option" in capsys.readouterr().err


def test_every_environment_variable_is_named_and_read() -> None:
    pattern = r"\b(?:OSCINE|HF)_[A-Z_]+\b"
    code = "\n".join(file.read_text("utf-8") for file in (ROOT / "src").rglob("*.py"))
    read = set(re.findall(rf"[\"']({pattern})[\"']", code))
    named = set(re.findall(pattern, section(DOCS["devices"], "Environment variables")))
    assert named <= read
    assert {name for name in read if name.startswith("OSCINE_")} <= named


def test_models_and_formats_are_those_there_are() -> None:
    names = DOCS["models"].partition("\n- a name: ")[2].partition(";")[0]
    english = {name for name in whisper.MODELS if name.endswith(".en") and "distil" not in name}
    assert set(re.findall(r"`([\w.-]+)`", names)) - {".en"} == set(whisper.MODELS) - english
    default = registry.default_model("transcribe")
    assert f"The default model is `{default}`" in DOCS["models"]
    assert f"`{default}` (the default)" in README
    short = {
        name for row in rows(section(README, "Models")) for name in re.findall("`(.*?)`", row[0])
    }
    assert short - {".en"} <= set(registry.models())
    assert short >= set(whisper.MODELS) - english
    out = section(DOCS["transcribe"], "Output").partition(".")[0]
    assert [name for name in re.findall(r"`([a-z]+)`", out) if name in FORMATS] == [
        "txt", "srt", "vtt", "tsv", "lrc", "json",
    ]  # fmt: skip


def test_json_fields_are_those_written() -> None:
    segment = Segment(0, 0, 0.0, 1.0, "", (), 0.0, 0.0, 0.0, 0.0, (), "en", 1, ("repetition",))
    whole = Transcript("", "en", (segment,), 1.0, "", "", {}, 1.0, Coverage(1.0, 0.0))
    written = whole.to_dict()
    table = [
        row for row in rows(section(DOCS["transcribe"], "Output")) if row[0] not in ("field", "---")
    ]
    assert [name for row in table for name in re.findall(r"`(\w+)`", row[0])] == list(written)
    fields = next(row[1] for row in table if row[0] == "`segments`")
    assert re.findall(r"`(\w+)`", fields) == list(segment.to_dict())


def test_options_of_the_python_api_are_those_of_the_command() -> None:
    named = {name.strip("-").replace("-", "_") for name in options_of(COMMAND)}
    assert {*TranscribeOptions.__dataclass_fields__, *SpeakOptions.__dataclass_fields__} <= named


def test_figures_are_those_in_the_tables() -> None:
    for unit, table in ((" %", "accuracy.md"), (" ms", "gpu.md")):
        figures = re.findall(rf"(\d+\.\d\d){unit}", DOCS["verification"])
        found = (ROOT / "benchmarks" / table).read_text("utf-8")
        assert len(figures) > 2
        assert [figure for figure in figures if figure not in found] == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.M)
    }


@pytest.mark.parametrize("page", PAGES, ids=below_root)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if not target.startswith("https://"):
            name, _, anchor = target.partition("#")
            file = page.parent / name if name else page
            assert file.is_file(), target
            assert not anchor or anchor in anchors(file), target


def test_every_page_is_in_the_menu_of_the_site() -> None:
    listed = [page for pages in site["CONTENTS"].values() for page in pages]
    assert len(listed) == len(set(listed))
    assert {f"{name}.md" for name in (*listed, "README")} == set(map(below_root, PAGES))


def tree() -> Iterator[tuple[int, str]]:
    """Depth and name of each line of the tree in the page on the architecture."""
    lines = section(DOCS["architecture"], "The tree").partition("```\n")[2].partition("```")[0]
    for line in lines.splitlines():
        yield line.startswith(" "), line.split()[0]


def test_the_tree_is_the_tree() -> None:
    top, inside = "", set()
    for depth, name in tree():
        top = top if depth else name
        path = ROOT / (top + name if depth else name)
        assert path.is_dir() if name.endswith("/") else path.is_file(), path
        if depth:
            inside.add(name.rstrip("/"))
    named = {name.partition("/")[0] for depth, name in tree() if not depth}
    assert {p.name for p in ROOT.iterdir() if p.is_dir() and p.name[0] != "."} <= named | {"build"}
    folders = {folder.name for folder in (ROOT / "src" / "oscine").iterdir() if folder.is_dir()}
    assert folders - {"__pycache__"} <= inside


def test_the_folders_of_families_have_the_files_that_the_page_names() -> None:
    said = DOCS["architecture"].partition("have the same main files: ")[2].partition(". The")[0]
    names = re.findall(r"`(\w+)` \(|`(\w+)`\n\(", said)
    assert len(names) == 7
    for name in ("".join(pair) for pair in names):
        for family in registry.BUILT_IN:
            assert (ROOT / "src" / family.replace(".", "/") / f"{name}.py").is_file(), name


@pytest.mark.parametrize("page", PAGES, ids=below_root)
def test_files_of_ours_that_a_page_names_are_there(page: Path) -> None:
    """By their path in the repository, or by the end of it: `weights.py`, `ops/state.py`."""
    named = set(re.findall(r"`([\w./]+\.(?:py|sh|wgsl|toml))`", page.read_text("utf-8")))
    folders = (
        *("src", "tests", "tools", "benchmarks", "deploy", "docs", "examples", "requirements"),
    )
    there = [
        f"/{file.relative_to(ROOT)}" for folder in folders for file in ROOT.glob(f"{folder}/**/*.*")
    ]
    there += [f"/{file.name}" for file in ROOT.iterdir()]
    missing = {name for name in named if not any(each.endswith(f"/{name}") for each in there)}
    assert missing <= NOT_OURS


def test_names_of_code_that_pages_name_exist() -> None:
    """Names with an underscore or capitals inside, and attributes; a rename leaves no old one."""
    folders = ("src", "tests", "tools", "benchmarks")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.*")]
    read = [file for file in files if file.suffix in (".py", ".wgsl", ".c", ".sh")]
    read += [file for file in (ROOT / "deploy").iterdir() if file.name != "keys"]
    code = "\n".join(file.read_text("utf-8") for file in read)
    known = set(re.findall(r"\w+", code)) | {file.stem for file in files}
    foreign = {"is_x", "read_x", "show_packets", "CUDA_VISIBLE_DEVICES"}
    pages = [page for page in PAGES if page.parent in (ROOT, ROOT / "docs")]
    for page in pages:
        if page.stem not in ("coming-from", "compat", "upstream"):  # these name others' code
            prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)
            named = {
                word for span in re.findall("`([^`]+)`", prose) for word in re.findall(r"\w+", span)
            }
            code_like = {word for word in named if re.search(r"[^_]_[^_]|[a-z][A-Z]", word)}
            attributes = set(re.findall(r"`(?:\w+\.)+(\w+)[`(]", prose)) - SUFFIXES
            unknown = (code_like | attributes) - known - foreign
            assert unknown == set(), below_root(page)
