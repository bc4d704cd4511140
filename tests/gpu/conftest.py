"""Vulkan drivers of our own over the software one: they fail on request, or are equal cards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oscine.gpu.device import Adapter

SOURCE = Path(__file__).resolve().parent / "faulty_driver.c"
#: The paths of drivers, and the environment of a process that has these alone.
Drivers = tuple[list[Path], dict[str, str]]


def no_driver(reason: str) -> Any:
    if os.environ.get("OSCINE_REQUIRE_GPU", "0") not in ("", "0"):
        pytest.fail(f"{reason} (OSCINE_REQUIRE_GPU is set)", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def drivers(adapter: Adapter, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Drivers]:
    """drivers(cards): faulty_driver.c, made once for each of that many equal cards."""
    named = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES") or ""
    known = [Path(named.split(os.pathsep)[0])] if named else []
    known += sorted(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))
    compiler = shutil.which("cc")
    if not (adapter.software and known and compiler and sys.platform == "linux"):
        no_driver("needs Linux, a C compiler and Mesa's software driver")
    described = json.loads(known[0].read_text(encoding="utf-8"))
    real = described["ICD"]["library_path"]

    def build(cards: int) -> Drivers:
        folder = tmp_path_factory.mktemp("drivers")
        libraries = [folder / f"card{card}.so" for card in range(cards)]
        for card, library in enumerate(libraries):
            described["ICD"]["library_path"] = str(library)
            library.with_suffix(".json").write_text(json.dumps(described), encoding="utf-8")
            options = ["-O1", "-shared", "-fPIC", f"-DCARD={card}"]
            subprocess.run([compiler, *options, "-o", library, SOURCE, "-ldl"], check=True)
        manifests = os.pathsep.join(str(each.with_suffix(".json")) for each in libraries)
        return libraries, {
            **os.environ,
            "FAULTY_DRIVER_OF": str(known[0].parent / real if "/" in real else real),
            "VK_DRIVER_FILES": manifests,
            "VK_ICD_FILENAMES": manifests,
        }

    return build
