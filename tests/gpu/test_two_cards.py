"""Equal cards: gpu:1 is the second, under each implementation the same; tools/two_gpus.py sees it.

Each card is the software one behind a driver of its own (faulty_driver.c), which counts the memory
that it gives. What a choice takes runs in a process of its own: on_two_cards.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oscine.gpu.device import PACKAGES, adapters

from .conftest import Drivers, no_driver

HERE = Path(__file__).resolve().parent
TOOL = HERE.parents[1] / "tools" / "two_gpus.py"


def row(choice: str, implementation: str, drivers: Drivers) -> dict[str, Any]:
    libraries, environment = drivers
    cards = os.pathsep.join(str(library) for library in libraries)
    done = subprocess.run(
        [sys.executable, HERE / "on_two_cards.py", choice],
        env=environment | {"CARDS": cards, "OSCINE_WEBGPU": implementation},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return {"implementation": implementation, "choice": choice} | json.loads(done.stdout)


@pytest.fixture(scope="module")
def tool() -> Any:
    specification = importlib.util.spec_from_file_location("two_gpus", TOOL)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.gpu
@pytest.mark.host
def test_each_number_is_a_card_of_its_own(drivers: Callable[[int], Drivers], tool: Any) -> None:
    for name in PACKAGES:
        if not adapters(name):
            no_driver(f"{name} lists no adapter here")
    two = drivers(2)
    rows = [row(f"gpu:{n}", name, two) for name in PACKAGES for n in range(2)]
    assert tool.faults(rows) == []
    cards = [each["card"] for each in rows]
    assert cards[:2] == cards[2:] and sorted(cards[:2]) == ["card0", "card1"]
    assert [" #2 (" in each["adapter"] for each in rows] == [False, True] * 2
    told = [each["identity"] for each in rows]
    assert told[0] and told[1] and told[0] != told[1]


def test_what_is_wrong_with_a_table(tool: Any) -> None:
    def made(implementation: str, choice: str, card: str, **more: Any) -> dict[str, Any]:
        return {
            "implementation": implementation,
            "choice": choice,
            "card": card,
            "right": True,
        } | more

    assert tool.faults([made("dawn", "gpu:0", "a"), made("dawn", "gpu:1", "a")]) == [
        "dawn gpu:0 is a card that another number stands for too",
        "dawn gpu:1 is a card that another number stands for too",
    ]
    assert tool.faults([made("dawn", "gpu:0", "a"), made("wgpu", "gpu:0", "b")]) == [
        "gpu:0 is another card under wgpu"
    ]
    assert tool.faults([made("dawn", "gpu:0", "", right=False)]) == [
        "dawn gpu:0 computes wrong", "dawn gpu:0: nothing shows which card it is"
    ]  # fmt: skip
    assert tool.faults([made("dawn", "gpu:0", "", problem="no")]) == ["dawn gpu:0: no"]


def test_memory_in_use_is_what_the_drivers_say(
    tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, GPU-a, 5'\necho '1, GPU-b, 7'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    used = tool.memory_in_use()
    assert (used["nvidia 0 GPU-a"], used["nvidia 1 GPU-b"]) == (5 << 20, 7 << 20)
