"""The versions that pyproject.toml allows, those that were tested, and the lowest of all."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

#: name -> [(sign, version)], of what is needed to run and to test.
BOUNDS = {
    match[1].lower().replace("_", "-"): re.findall(r"([<>]=?)([\d.]+)", match[2])
    for line in (*PROJECT["dependencies"], *EXTRAS["test"], *EXTRAS["dev"])
    if (match := re.match(r"([\w-]+)([<>=.,\d]*)", line)) and match[1] != "oscine"
}


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text("utf-8").splitlines()
    pinned = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {name.lower().replace("_", "-"): version for name, version in pinned}


def number(version: str) -> tuple[int, ...]:
    found = [int(part) for part in re.findall(r"\d+", version)]
    while found and found[-1] == 0:
        found.pop()
    return tuple(found)


TESTED, LOWEST = pins("tested.txt"), pins("lowest.txt")


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_what_was_tested_is_allowed(name: str) -> None:
    """Else `make tested` is due, or a bound excludes what all tests ran with."""
    version = number(TESTED[name])
    for sign, bound in BOUNDS[name]:
        limit = number(bound)
        assert {">=": version >= limit, "<": version < limit}[sign], (name, TESTED[name])


def test_the_lowest_is_what_is_allowed() -> None:
    optional = {
        name for line in EXTRAS["test"] + EXTRAS["dev"] for name in [re.split("[<>=[]", line)[0]]
    }
    for name, bounds in BOUNDS.items():
        if name not in optional:
            assert number(LOWEST[name]) == number(dict(bounds)[">="]), name


def test_no_file_names_a_place() -> None:
    for name in ("tested.txt", "lowest.txt"):
        text = (ROOT / "requirements" / name).read_text("utf-8")
        assert "/" not in "".join(line for line in text.splitlines() if not line.startswith("#"))
        assert "@" not in text and "file:" not in text


@pytest.mark.parametrize(
    ("system", "machine", "python", "there"),
    [
        ("linux", "x86_64", "CPython", True), ("linux", "aarch64", "CPython", True),
        ("darwin", "arm64", "CPython", True), ("darwin", "x86_64", "CPython", True),
        ("win32", "AMD64", "CPython", True), ("win32", "ARM64", "CPython", True),
        ("linux", "armv7l", "CPython", False), ("linux", "riscv64", "CPython", False),
        ("win32", "x86", "CPython", False), ("emscripten", "wasm32", "CPython", False),
        ("linux", "x86_64", "PyPy", False),
    ],
)  # fmt: skip
def test_dawn_is_asked_for_where_it_has_wheels(
    system: str, machine: str, python: str, there: bool
) -> None:
    """There is a source archive too, which pip would try to build; wgpu is asked for everywhere."""
    packages = pytest.importorskip("packaging.requirements")
    required = [packages.Requirement(line) for line in PROJECT["dependencies"]]
    asked = {each.name: each.marker for each in required}
    environment = {
        "sys_platform": system, "platform_machine": machine,
        "platform_python_implementation": python,
    }  # fmt: skip
    assert asked["wgpudawn"].evaluate(environment) == there
    assert asked["wgpu"] is None
