"""Runs one choice of test_two_cards.py in a process whose drivers are those of equal cards.

Prints as JSON what tools/two_gpus.py makes of it: the memory in use on each card is what the card's
own driver counts.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "two_gpus.py"


def memory_in_use() -> dict[str, int]:
    """Bytes that each driver has given."""
    used = {}
    for path in os.environ["CARDS"].split(os.pathsep):
        driver = ctypes.CDLL(path)
        driver.faulty_driver_used.restype = ctypes.c_uint64
        used[Path(path).stem] = driver.faulty_driver_used()
    return used


if __name__ == "__main__":
    specification = importlib.util.spec_from_file_location("two_gpus", TOOL)
    assert specification is not None and specification.loader is not None
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    print(json.dumps(tool.which_card(sys.argv[1], tool.PIECE, memory_in_use)))
