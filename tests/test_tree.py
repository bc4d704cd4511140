"""The walk over trees of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oscine.tree import tree_leaves, tree_map, tree_paths


@dataclass(frozen=True, slots=True)
class Layer:
    """As a layer of a network."""

    weight: np.ndarray
    bias: np.ndarray | None
    stride: int = 1


@dataclass(frozen=True, slots=True)
class Network:
    """Layers in every kind of room a tree may have."""

    layers: tuple[Layer, ...]
    pairs: list[tuple[Layer, str]]
    name: str


def network() -> Network:
    a, b, c, d = (np.full(2, value, np.float32) for value in range(4))
    return Network((Layer(a, b, 2), Layer(c, None)), [(Layer(d, None), "last")], "small")


def test_paths_are_in_the_order_of_fields_and_name_each_array() -> None:
    found = tree_paths(network())
    assert list(found) == [
        "layers.0.weight", "layers.0.bias", "layers.1.weight", "pairs.0.0.weight",
    ]  # fmt: skip
    assert [array[0] for array in found.values()] == [0, 1, 2, 3]
    assert [array[0] for array in tree_leaves(network())] == [0, 1, 2, 3]


def test_an_array_alone_is_a_tree_and_what_holds_none_is_empty() -> None:
    array = np.zeros(3)
    assert tree_paths(array) == {"": array}
    assert tree_map(np.shape, array) == (3,)
    assert [*tree_leaves((None, "text", 1, [], Layer))] == []


def test_a_map_changes_arrays_and_keeps_the_rest() -> None:
    before = network()
    after = tree_map(lambda array: array + 1, before)
    assert [array[0] for array in tree_leaves(after)] == [1, 2, 3, 4]
    assert [array[0] for array in tree_leaves(before)] == [0, 1, 2, 3]
    assert type(after) is Network and type(after.pairs) is list and type(after.layers) is tuple
    assert after.layers[0].stride == 2 and after.layers[1].bias is None
    assert after.pairs[0][1] == "last" and after.name == "small"


def test_a_map_over_other_leaves_does_not_look_into_them() -> None:
    seen: list[Any] = []
    after = tree_map(lambda layer: seen.append(layer) or layer.stride, network(), Layer)
    assert after == Network((2, 1), [(1, "last")], "small")  # type: ignore[arg-type]
    assert [layer.weight[0] for layer in seen] == [0, 2, 3]
