"""What tests of every family's weights have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscine.errors import CheckpointError


def leaves(tree: Any, at: str = "") -> dict[str, np.ndarray]:
    """Every array of a tree of dataclasses and tuples by its place."""
    if isinstance(tree, np.ndarray):
        return {at: tree}
    if isinstance(tree, tuple):
        return {k: v for i, item in enumerate(tree) for k, v in leaves(item, f"{at}.{i}").items()}
    found: dict[str, np.ndarray] = {}
    if is_dataclass(tree):
        for field in fields(tree):
            found |= leaves(getattr(tree, field.name), f"{at}.{field.name}")
    return found


def refused_by(load: Callable[[Path], Any], folder: Path) -> str:
    """The one line with which a checkpoint is refused; it names the folder."""
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    message = str(caught.value)
    assert str(folder) in message and "\n" not in message
    return message
