"""Trees of dataclasses and tuples: the one walk over weights that casts, checks and uploads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np


def tree_map(function: Callable[[Any], Any], tree: Any, leaf: type = np.ndarray) -> Any:
    """The same tree with `function` applied to each instance of `leaf`; the rest is kept."""
    if isinstance(tree, leaf):
        return function(tree)
    if isinstance(tree, tuple):
        return tuple(tree_map(function, item, leaf) for item in tree)
    if is_dataclass(tree) and not isinstance(tree, type):
        mapped = {f.name: tree_map(function, getattr(tree, f.name), leaf) for f in fields(tree)}
        return replace(tree, **mapped)
    return tree


def tree_leaves(tree: Any, leaf: type = np.ndarray) -> Iterator[Any]:
    """Each instance of `leaf` in a tree, in the order of the fields."""
    if isinstance(tree, leaf):
        yield tree
    elif isinstance(tree, tuple):
        for item in tree:
            yield from tree_leaves(item, leaf)
    elif is_dataclass(tree) and not isinstance(tree, type):
        for f in fields(tree):
            yield from tree_leaves(getattr(tree, f.name), leaf)
