"""The rules a tree keeps only when a test does: which way imports go, and how long things get."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from oscine import registry

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "oscine"
FILES = sorted(SOURCE.rglob("*.py"))

#: The limits of length, everywhere; CONTRIBUTING.md states them too.
FILE_LINES, FUNCTION_LINES = 600, 70
#: All that people write, in every language of the tree.
WRITTEN = sorted(
    file
    for folder in ("src", "tests", "tools", "benchmarks", "examples", ".ci")
    for file in (ROOT / folder).rglob("*")
    if file.suffix in (".py", ".wgsl", ".sh", ".c") or file.parent.name == ".ci"
)

#: The folders of families; whoever adds one imports no other.
FAMILIES = ("models.whisper", "models.parakeet", "models.qwen3_tts")

#: What each part may import besides itself, the longest prefix counts. cli may all but families.
MAY_IMPORT = {
    "types": ("notebook",),
    "quantized": (),
    "dtypes": ("quantized",),
    "tree": (),
    "probe": ("errors",),
    "errors": ("types",),
    "budget": ("errors",),
    "transport": ("errors",),
    "manifest": ("errors", "files", "model_files"),
    "download": ("errors", "files", "manifest", "transport"),
    "sources": ("errors", "family", "files", "download", "manifest", "transport"),
    "model_runner": ("ops",),
    "family": ("bench", "errors", "manifest", "model_runner", "ops", "weights"),
    "bench": ("dtypes", "gpu.tensor", "ops", "quantized", "threads", "tree"),
    "registry": ("errors", "family", "module_path", "weights"),
    "module_path": (),
    "hub": ("errors", "family", "files", "download", "manifest", "registry", "sources"),
    "verify": ("errors", "family", "files", "download", "hub", "manifest", "sources"),
    "backends": (
        *("errors", "hub", "ops", "ops.compiled", "ops.reference", "ops.webgpu", "ops.check"),
        *("ops.shadow", "gpu", "tuning"),
    ),
    "tuning": ("bench", "errors", "files", "formats", "gpu", "hub", "ops", "ops.webgpu"),
    "loading": (
        *(
            "backends",
            "budget",
            "errors",
            "family",
            "files",
            "fleet",
            "hub",
            "models.loader",
            "model_runner",
            "models.base_model",
            "notebook",
            "ops",
            "ops.sizing",
            "quantized",
            "registry",
            "tree",
        ),
        "weights",
    ),
    # Whatever loads a model in a worker is given to it by its program: loading imports the fleet.
    "fleet": (
        *("audio", "errors", "family", "files", "futures", "models.asynchronous", "models.cancel"),
        *(
            "models.base_model",
            "models.transcription",
            "notebook",
            "probe",
            "registry",
            "threads",
            "types",
        ),
    ),
    "terminal": (),
    "notebook": ("terminal",),
    "compat": (
        *("audio", "errors", "formats", "hub", "loading", "notebook", "options.transcribe"),
        *("registry", "terminal", "text.languages", "threads", "types"),
    ),
    "options": ("types", "errors"),
    "options.checks": ("options", "errors"),
    "options.command": ("options", "options.checks"),
    "options.speak": ("options", "options.checks", "options.command"),
    "options.aliases": ("types",),
    "options.layout": ("options", "options.checks", "errors"),
    "options.mcp": ("options", "options.checks", "options.command", "options.serve"),
    "options.serve": ("budget", "errors", "options", "options.checks", "options.command"),
    "options.calls": ("errors", "options", "options.speak", "options.transcribe"),
    "options.transcribe": (
        *("options", "options.checks", "options.command", "options.layout", "options.aliases"),
        "errors",
        "text.languages",
    ),
    # It knows no family, and whatever loads a model is given to it by the command.
    "server": (
        *("audio.io", "audio.write", "errors", "family", "files", "formats", "registry", "types"),
        *("options", "options.aliases", "options.checks", "options.command", "options.layout"),
        *("options.mcp", "options.serve", "options.speak", "options.transcribe", "text.languages"),
    ),
    "cues": ("types", "options.layout"),
    "subtitles": ("types", "errors", "terminal", "options.layout", "cues"),
    "files": ("errors",),
    "formats": ("types", "errors", "files", "terminal", "cues", "subtitles"),
    "threads": ("errors",),
    "futures": (),
    "audio": ("types", "errors", "files", "futures", "threads", "text.languages"),
    "model_files": ("errors", "files"),
    "text": ("types", "errors", "files", "model_files"),
    "weights": ("types", "errors", "files", "model_files", "dtypes", "quantized"),
    "gpu": ("types", "errors", "dtypes", "quantized", "budget", "probe", "threads"),
    "ops": ("ops.backend", "ops.reference.vocabulary", "ops.state", "ops.types"),
    "ops.types": (),
    "ops.state": ("ops.types",),
    "ops.effects": (),
    "ops.reference": (
        *("dtypes", "quantized", "budget", "ops.effects", "ops.state", "ops.types", "probe"),
        "threads",
    ),
    "ops.compiled": (
        *("dtypes", "files", "ops.reference", "ops.state", "ops.types", "quantized", "threads"),
    ),
    "ops.backend": ("budget", "errors", "ops.reference.vocabulary", "ops.types", "tree"),
    # Of the definitions a GPU's side takes how operands are checked, not how they are computed.
    "ops.webgpu": (
        *("dtypes", "errors", "gpu", "ops.state", "ops.types"),
        *("ops.reference.attention", "ops.reference.channels", "ops.reference.conv"),
        "ops.reference.mel",
    ),
    # These hold one side against the other.
    "ops.cases": ("dtypes", "quantized", "ops", "ops.reference.sampling"),
    "ops.check": ("errors", "ops", "ops.cases", "ops.reference", "ops.webgpu"),
    "ops.sizing": ("errors", "ops.backend", "ops.reference", "quantized"),
    "ops.shadow": (
        *("errors", "gpu", "ops", "ops.check", "ops.effects", "ops.reference", "ops.webgpu"),
        "tree",
    ),
    "engine": ("errors", "futures", "model_runner", "ops", "probe"),
    "models": (
        *(
            "types",
            "errors",
            "files",
            "model_files",
            "dtypes",
            "quantized",
            "tree",
            "ops",
            "weights",
        ),
        "threads",
        *(
            "bench",
            "engine",
            "futures",
            "model_runner",
            "notebook",
            "audio",
            "text",
            "options",
            "options.checks",
            "options.speak",
            "options.transcribe",
        ),
        *("family", "registry", "hub", "manifest", "sources", "download"),
    ),
}
#: What a family may have of its own: snapshots of work between two polls (samples of the codec,
#: rows of text), and locks that are no device's (of a stream's reader, of files).
OWN = {
    "models.qwen3_tts.codec_runner": ("snapshot(",),
    "models.qwen3_tts.embeddings": ("snapshot(",),
    "models.qwen3_tts.stream": ("threading", "Lock("),
    "models.qwen3_tts.voices": ("threading", "Lock("),
}

#: The files of a model that come later in its data's way; none may be imported by an earlier one.
STAGES = (
    "config",
    "weights",
    "model",
    "decode",
    "memory",
    "executors",
    "runner",
    "pipeline",
    "network",
)


def imports(file: Path) -> set[str]:
    """Modules that a file imports when it runs, as dotted names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def module(file: Path) -> str:
    """Name below the package: ops.webgpu, models.whisper.runner."""
    return ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def ours(file: Path) -> set[str]:
    names = {module(path) for path in FILES}
    return {n.removeprefix("oscine.") for n in imports(file) if n.removeprefix("oscine.") in names}


def within(name: str, part: str) -> bool:
    return name == part or name.startswith(part + ".")


def covers(part: str, name: str) -> bool:
    """ops stands for the vocabulary alone: only load() may choose a side of it. options stands for
    the records of options alone: not for any task's."""
    return name == part if part in ("ops", "options") else within(name, part)


@pytest.mark.parametrize("file", FILES, ids=module)
def test_imports_go_one_way(file: Path) -> None:
    parts = [part for part in MAY_IMPORT if within(module(file), part)]
    if parts:
        part = max(parts, key=len)
        allowed = (part, *MAY_IMPORT[part])
        strays = [n for n in ours(file) if not any(covers(other, n) for other in allowed)]
        assert not strays, f"{module(file)} may not import {strays}"
    stage = file.stem
    if within(module(file), "models") and stage in STAGES:
        later = STAGES[STAGES.index(stage) + 1 :]
        assert not [n for n in ours(file) if within(n, "models") and n.split(".")[-1] in later]


@pytest.mark.parametrize("file", FILES, ids=module)
def test_no_family_is_known_outside_its_folder(file: Path) -> None:
    """Neither by another family, nor by what families share, nor by a command."""
    own = next((family for family in FAMILIES if within(module(file), family)), None)
    others = [family for family in FAMILIES if family != own]
    strays = [n for n in ours(file) if any(within(n, family) for family in others)]
    assert not strays, f"{module(file)} may not import {strays}"
    if module(file) != "registry":
        text = file.read_text("utf-8")
        named = [f for f in others if f"oscine.{f}" in text.replace("/", ".")]
        assert not named, f"{module(file)} names {named}"


def test_every_folder_of_a_family_is_built_in() -> None:
    folders = {module(file).rpartition(".")[0] for file in FILES if within(module(file), "models")}
    assert folders - {"models", ""} == set(FAMILIES)
    assert tuple(folder.removeprefix("oscine.") for folder in registry.BUILT_IN) == FAMILIES


@pytest.mark.parametrize("file", FILES, ids=module)
def test_the_engine_alone_has_threads_locks_and_burst_loops(file: Path) -> None:
    """A family that made its own would not share the device with others."""
    if not any(within(module(file), family) for family in FAMILIES):
        return
    text, known = file.read_text("utf-8"), OWN.get(module(file), ())
    assert not {"threading", "queue", "concurrent.futures"} & imports(file) - set(known)
    for own in (
        "class Decoder:",
        "Lock(",
        "Thread(",
        ".run(STEPS_PER_POLL",
        "plans: dict",
        "snapshot(",
    ):
        assert own in known or own not in text, f"{module(file)} has {own}: that is the engine's"


@pytest.mark.parametrize("file", FILES, ids=module)
def test_one_file_knows_webgpu_and_no_gpu_file_knows_a_model(file: Path) -> None:
    if module(file) != "gpu.device":
        assert not {n for n in imports(file) if n.split(".")[0] in ("wgpu", "wgpudawn")}
    text = file.read_text("utf-8").lower()
    if within(module(file), "models"):
        assert "wgpu" not in text
    if within(module(file), "gpu"):
        assert "whisper" not in text


def below_root(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether Typer runs it: its signature is a table of options, with their help."""
    return any(
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and decorator.func.attr in ("command", "callback")
        for decorator in node.decorator_list
    )


@pytest.mark.parametrize("file", WRITTEN, ids=below_root)
def test_nothing_grows_without_end(file: Path) -> None:
    text = file.read_text("utf-8")
    assert len(text.splitlines()) <= FILE_LINES, "split the file by stage"
    if file.suffix != ".py":
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if is_command(node) else node
            lines = (node.end_lineno or node.lineno) - first.lineno + 1
            assert lines <= FUNCTION_LINES, f"{node.name} has {lines} lines"


def has_source(file: Path) -> bool:
    """Whether a test file bears the name of a file or folder in the same place, or of a tool."""
    name = file.stem.removeprefix("test_")
    place = SOURCE / file.parent.relative_to(ROOT / "tests") / name
    tool = ROOT / "tools" / f"{name}.py"
    return place.with_suffix(".py").exists() or place.is_dir() or tool.exists()


def test_a_test_file_bears_the_name_of_what_it_tests() -> None:
    page = (ROOT / "tests" / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w/]+\.py)` \|", page, re.M)
    assert len(rows) == len(set(rows))
    files = (ROOT / "tests").rglob("test_*.py")
    unnamed = {below_root(file).removeprefix("tests/") for file in files if not has_source(file)}
    remedy = "rename the test with its source file, or give it a row in tests/README.md"
    assert sorted(unnamed.difference(rows)) == [], remedy
    assert sorted(set(rows) - unnamed) == [], "rows of tests/README.md without need or file"


def test_make_goldens_makes_those_of_every_family() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\ngoldens:")[2].partition("\n\n")[0]
    for family in FAMILIES:
        script = f"tools/goldens/{family.removeprefix('models.')}.py"
        assert (ROOT / script).is_file() and f"{script} --out tests/goldens" in recipe


def test_the_workflow_of_a_public_ci_runs_what_is_here() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8"))
    assert len(workflow["jobs"]["numpy"]["strategy"]["matrix"]["os"]) == 3
    steps = [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]
    check = (ROOT / "Makefile").read_text("utf-8").partition("\ncheck:")[2].partition("\n\n")[0]
    commands = [line.split("/")[-1] for line in check.splitlines()[1:] if "pytest" not in line]
    for command in commands:
        assert f"python -m {command}" in steps
    assert "make docs" in steps


def test_one_pair_of_limits_is_stated_everywhere() -> None:
    told = " ".join((ROOT / "CONTRIBUTING.md").read_text("utf-8").split())
    pair = f"files of at most {FILE_LINES} lines, functions of at most {FUNCTION_LINES}"
    assert told.count("of at most") == 2 and pair in told
    with (ROOT / "pyproject.toml").open("rb") as file:
        ruff = tomllib.load(file)["tool"]["ruff"]["lint"]["pylint"]
    added = f"at most {ruff['max-statements']} statements and {ruff['max-args']} parameters"
    assert added in told
