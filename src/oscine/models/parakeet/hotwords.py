"""ContextGraph to listen for, as a tree over label ids that the device walks while it decodes.

Source: Aho and Corasick 1975; NeMo asr/parts/context_biasing (GPU-PB): context_graph_universal.py
for the bonuses of a path, boosting_graph_batched.py for what falling back costs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import log as ln

import numpy as np
from numpy.typing import NDArray

from oscine.errors import UsageError
from oscine.ops import GRAPH_ARC, GRAPH_NODE
from oscine.text.pieces import Pieces

log = logging.getLogger(__name__)

DEPTH_SCALING = 2.0  # labels after a phrase's first earn more: NeMo's default for transducers


@dataclass(slots=True, eq=False)
class GraphNode:
    """The beginning of some phrases."""

    token_score: float = 0.0  # of the arc that leads here
    node_score: float = 0.0  # of all arcs from the root to here
    is_end: bool = False  # a phrase is complete here
    children: dict[int, GraphNode] = field(default_factory=dict)
    fail: GraphNode | None = None  # the longest other beginning that ends here; None: the root


@dataclass(frozen=True, slots=True, eq=False)
class ContextGraph:
    """A tree as the device wants it: nodes [N] of GRAPH_NODE, the root first, and arcs [A] of
    GRAPH_ARC."""

    nodes: NDArray[np.void]
    arcs: NDArray[np.void]

    def check(self) -> None:
        """Refuse tables that lead beside themselves, or round in circles. Raises UsageError."""
        own = np.arange(len(self.nodes))
        ends = self.nodes["first"].astype(np.int64) + self.nodes["count"]
        falls = (self.nodes["fail"] < own) | ((own == 0) & (self.nodes["fail"] == 0))
        if (
            not len(self.nodes)
            or not falls.all()
            or (ends > len(self.arcs)).any()
            or (self.arcs["node"] >= len(self.nodes)).any()
        ):
            raise UsageError(
                "the tables of phrases lead nowhere; make them with build_context_graph"
            )

    def rebased(self, node: int, arc: int) -> ContextGraph:
        """The same tree for tables that hold others too: `node` is its root, `arc` its first arc.

        A zeroed node 0 is the root of no phrases, so trees begin at node 1.
        """
        nodes, arcs = self.nodes.copy(), self.arcs.copy()
        nodes["first"] += np.uint32(arc)
        nodes["fail"] += np.uint32(node)
        arcs["node"] += np.uint32(node)
        return ContextGraph(nodes, arcs)


def build_context_graph(
    phrases: Iterable[tuple[Sequence[int], float]],
    vocab_size: int,
    depth_scaling: float = DEPTH_SCALING,
) -> ContextGraph:
    """The context graph of phrases, each with the logit bonus of its first token.

    A later token i earns `weight * depth_scaling + ln(i + 1)`. Phrases with a common prefix share
    nodes; where their bonuses differ the higher one counts.

    Args:
        phrases: Token ids of each phrase, and its weight.
        vocab_size: V, the number of tokens without the blank.
        depth_scaling: Factor on the weight of all tokens but the first.

    Raises:
        UsageError: for an empty phrase, an id outside the vocabulary, or a non-finite weight.
    """
    root = GraphNode()
    for ids, weight in phrases:
        if not ids or not all(0 <= token < vocab_size for token in ids):
            raise UsageError(
                f"a phrase must be of label ids 0 to {vocab_size - 1}, not {list(ids)}"
            )
        if not np.isfinite(weight):
            raise UsageError(f"the weight of a phrase must be a number, not {weight}")
        node = root
        for i, token in enumerate(ids):
            bonus = weight * depth_scaling + ln(i + 1) if i else weight
            child = node.children.setdefault(token, GraphNode(bonus))
            child.token_score = max(child.token_score, bonus)
            node = child
        node.is_end = True
    return pack_graph(breadth_first(root))


def encode_hotwords(
    wanted: Iterable[tuple[str, float]], tokenizer: Pieces, vocab_size: int
) -> ContextGraph | None:
    """The tree of phrases that are text, with their weights; None if the model can write none.

    A phrase for which the model lacks labels is tried in lower case, or is left out with a warning.
    """
    encoded = []
    for phrase, weight in wanted:
        ids = tokenizer.encode(phrase) or tokenizer.encode(phrase.lower())
        if ids:
            encoded.append((ids, weight))
        else:
            log.warning("hotword %r is left out: this model has no labels for it", phrase)
    return build_context_graph(encoded, vocab_size) if encoded else None


def breadth_first(root: GraphNode) -> list[GraphNode]:
    """All nodes, breadth first, with their scores and where they fall back to."""
    found, waiting = [root], deque([root])
    while waiting:
        node = waiting.popleft()
        for token, child in node.children.items():
            child.node_score = node.node_score + child.token_score
            fail = node.fail
            while fail is not None and token not in fail.children:
                fail = fail.fail
            child.fail = root if node is root else (fail or root).children.get(token, root)
            found.append(child)
            waiting.append(child)
    return found


def pack_graph(found: Sequence[GraphNode]) -> ContextGraph:
    """Nodes and arcs as arrays; falling back returns what was earned for phrases not completed."""
    number = {id(node): index for index, node in enumerate(found)}
    nodes = np.zeros(len(found), GRAPH_NODE)
    arcs: list[tuple[int, int, float]] = []
    for row, node in zip(nodes, found, strict=True):
        fail = node.fail or node
        back = fail.node_score - (0.0 if node.is_end else node.node_score)
        row["first"], row["count"] = len(arcs), len(node.children)
        row["fail"], row["back"] = number[id(fail)], 0.0 if fail is node else back
        arcs += [
            (token, number[id(child)], child.token_score)
            for token, child in sorted(node.children.items())
        ]
    return ContextGraph(nodes, np.array(arcs, GRAPH_ARC))
