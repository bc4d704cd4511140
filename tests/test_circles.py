"""No module imports, by whatever way, a module that imports it; nor does any folder.

Every import counts: those under `if TYPE_CHECKING`, those inside functions, relative ones, and
calls of `import_module` with a name or with an f-string that begins with one. What does not count
is that Python runs a package's `__init__` before a module in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

import pytest

from .test_layout import FILES, SOURCE, module

Graph = Mapping[str, Collection[str]]

#: Folders whose own folders are parts of them: `ops` presents what its reference defines, which
#: stands on the types of `ops`.
WITH_ROOMS = ("ops",)

MODULES = frozenset(map(module, FILES))
PACKAGES = frozenset(module(file) for file in FILES if file.name == "__init__.py")


def imported(source: str, name: str, is_package: bool, modules: Collection[str]) -> set[str]:
    """Those of `modules` that a module's source imports; `name`: its own, below the package."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {known(alias.name, modules) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = ["oscine", *name.split(".")] if name != "__init__" else ["oscine"]
                up = node.level - is_package
                base = ".".join([*here[: len(here) - up], *filter(None, [base])])
            for alias in node.names:
                found.add(known(f"{base}.{alias.name}", modules) or known(base, modules))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= named(node.args[0], modules)
    return found - {""}


def named(argument: ast.expr, modules: Collection[str]) -> set[str]:
    """The modules that import_module's argument may name."""
    if isinstance(argument, ast.Constant):
        return {known(argument.value, modules)}
    if isinstance(argument, ast.JoinedStr) and isinstance(argument.values[0], ast.Constant):
        start = argument.values[0].value
        return {name for name in modules if f"oscine.{name}".startswith(start)}
    return set()


def known(name: str, modules: Collection[str]) -> str:
    """The module of a dotted name, as `module` spells it; "" for one of another package."""
    if name == "oscine":
        return "__init__"
    below = name.removeprefix("oscine.")
    return below if below != name and below in modules else ""


@cache
def imports_of_all() -> dict[str, set[str]]:
    return {
        module(file): imported(
            file.read_text("utf-8"), module(file), file.name == "__init__.py", MODULES
        )
        for file in FILES
    }


def circles(graph: Graph) -> list[list[str]]:
    """Groups of nodes each of which is reached from each other one; sorted."""
    reached = {node: reachable(graph, node) for node in graph}
    groups = {
        tuple(sorted({node, *(other for other in others if node in reached[other])}))
        for node, others in reached.items()
        if node in others
    }
    return sorted(map(list, groups))


def reachable(graph: Graph, start: str) -> set[str]:
    """The nodes at the end of one arrow or more."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        ahead = set(graph[waiting.pop()]) - found
        found |= ahead
        waiting += ahead
    return found


def folder(name: str) -> str:
    """Where a module is; each of the modules beside the folders is a floor of its own."""
    for whole in WITH_ROOMS:
        if name.startswith(whole + "."):
            return whole
    return name if name in PACKAGES or "." not in name else name.rpartition(".")[0]


def between_folders(graph: Graph) -> dict[str, set[str]]:
    """The arrows that lead from one folder into another."""
    found: dict[str, set[str]] = {folder(name): set() for name in graph}
    for name, others in graph.items():
        found[folder(name)] |= {folder(other) for other in others} - {folder(name)}
    return found


def test_no_module_imports_one_that_imports_it() -> None:
    assert not circles(imports_of_all())


def test_no_folder_imports_one_that_imports_it() -> None:
    assert not circles(between_folders(imports_of_all()))


@pytest.mark.parametrize(
    "source",
    [
        "import oscine.b",
        "from oscine.b import thing",
        "from oscine import b",
        "from . import b",
        "from .b import thing",
        "if TYPE_CHECKING:\n    from oscine.b import thing",
        "def late():\n    from oscine import b",
        "importlib.import_module('oscine.b')",
        "import_module(f'oscine.b{more}')",
        "class A:\n    def late(self):\n        if self:\n            import oscine.b as c",
    ],
)
def test_a_circle_is_found_however_it_is_made(source: str) -> None:
    modules = {"a", "b", "c"}
    graph = {
        "a": imported(source, "a", False, modules),
        "b": imported("from oscine.c import x", "b", False, modules),
        "c": imported("import oscine.a, numpy", "c", False, modules),
    }
    assert circles(graph) == [["a", "b", "c"]]
    assert not circles(graph | {"b": set()})


def test_names_of_packages_and_of_what_is_in_them_are_told_apart() -> None:
    modules = {"ops", "ops.gpu", "models.x.a", "models.x", "models"}
    assert imported("from oscine.ops import Tensor, gpu", "a", False, modules) == {"ops", "ops.gpu"}
    assert imported("import oscine; import opsis", "a", False, modules) == {"__init__"}
    assert imported("from .. import y", "models.x.a", False, modules) == {"models"}
    assert imported("from . import a", "models.x", True, modules) == {"models.x.a"}
    assert imported("from .a import y", "models.x", True, modules) == {"models.x.a"}


def test_a_module_that_imports_itself_is_a_circle() -> None:
    assert circles({"a": {"a"}, "b": {"a"}}) == [["a"]]


def test_the_package_is_read_whole() -> None:
    graph = imports_of_all()
    assert graph["__main__"] == {"cli", "module_path"} and "loading" in graph["__init__"]
    assert {"cli.doctor", "cli.speak"} <= graph["cli"]  # by name, when they are called
    floors = between_folders(graph)
    assert {"models.whisper", "models", "ops", "audio"} < set(floors)
    assert {"models", "ops"} < floors["models.whisper"]


def test_floors_that_lean_on_each_other_are_found() -> None:
    graph = {"audio.x": {"models.y"}, "models.z": {"audio.w"}, "audio.w": {}, "models.y": {}}
    assert not circles(graph)
    assert circles(between_folders(graph)) == [["audio", "models"]]


#: A name that holds a model, and what is reached for through it: an engine, or its parts' parts.
REACH = re.compile(r"\b_?model\.(decoder|engine\(\))|\bself\._?model\.\w+[.(]")
#: Of protocols: all that the code which says so knows of a model.
ALLOWED_CALLS = ("self.model.transcribe(", "self._model.timings.", "self.model.timings.")


@pytest.mark.parametrize("file", sorted((SOURCE / "models").rglob("*.py")), ids=module)
def test_no_part_of_a_model_reaches_through_it(file: Path) -> None:
    if file.stem in ("pipeline", "resident"):  # the model itself
        return
    text = file.read_text("utf-8")
    reached = [m[0] for m in REACH.finditer(text) if m[0] not in ALLOWED_CALLS]
    assert not reached, "give it what it needs"
