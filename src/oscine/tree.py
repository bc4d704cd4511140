"""Trees of dataclasses, tuples and lists: the one walk that uploads, pads and checks weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np


def tree_map(function: Callable[[Any], Any], tree: Any, leaf: type = np.ndarray) -> Any:
    """The same tree with `function` applied to each instance of `leaf`; the rest is kept."""
    if isinstance(tree, leaf):
        return function(tree)
    if isinstance(tree, tuple | list):
        return type(tree)(tree_map(function, item, leaf) for item in tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{n: tree_map(function, v, leaf) for n, v in _children(tree)})
    return tree


def tree_paths(tree: Any, leaf: type = np.ndarray, at: str = "") -> dict[str, Any]:
    """Each instance of `leaf` by its path, such as blocks.0.qkv.weight, in the order of fields."""
    if isinstance(tree, leaf):
        return {at: tree}
    found: dict[str, Any] = {}
    for name, child in _children(tree):
        found |= tree_paths(child, leaf, f"{at}.{name}" if at else name)
    return found


def tree_leaves(tree: Any, leaf: type = np.ndarray) -> Iterator[Any]:
    """Each instance of `leaf`, in the order of fields."""
    return iter(tree_paths(tree, leaf).values())


def _children(tree: Any) -> list[tuple[str, Any]]:
    if isinstance(tree, tuple | list):
        return [(str(index), item) for index, item in enumerate(tree)]
    if is_dataclass(tree) and not isinstance(tree, type):
        return [(field.name, getattr(tree, field.name)) for field in fields(tree)]
    return []
