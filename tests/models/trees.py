"""What tests of every family's weights have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.errors import CheckpointError
from oscine.tree import tree_paths


def leaves(tree: Any) -> dict[str, np.ndarray]:
    """Every array of a tree of dataclasses and tuples by its path, with a dot before it."""
    return {f".{path}": array for path, array in tree_paths(tree).items()}


def refused_by(load: Callable[[Path], Any], folder: Path) -> str:
    """The one line with which a checkpoint is refused; it names the folder."""
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    message = str(caught.value)
    assert str(folder) in message and "\n" not in message
    return message
