"""Hotwords as a context graph: a trie over token ids with fail arcs that the device walks.

Source: Aho and Corasick 1975; NeMo asr/parts/context_biasing (GPU-PB): context_graph_universal.py
for the scores of a path, boosting_graph_batched.py for the score of a fail arc; the names of a
node's fields are icefall's (context_graph.py).
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
from oscine.text.sentencepiece import SentencePieceTokenizer

log = logging.getLogger(__name__)

DEPTH_SCALING = 2.0  # factor on the score of all tokens but the first: NeMo's transducer default


@dataclass(slots=True, eq=False)
class GraphNode:
    """A node of the trie: a prefix of one or more phrases."""

    token_score: float = 0.0  # of the arc to this node
    node_score: float = 0.0  # of all arcs from the root to this node
    is_end: bool = False  # a phrase is complete here
    children: dict[int, GraphNode] = field(default_factory=dict)
    fail: GraphNode | None = None  # longest proper suffix in the trie; None: the root


@dataclass(frozen=True, slots=True, eq=False)
class ContextGraph:
    """A context graph in arrays: nodes [N] of GRAPH_NODE, root first, arcs [A] of GRAPH_ARC."""

    nodes: NDArray[np.void]
    arcs: NDArray[np.void]

    def check(self) -> None:
        """Raise UsageError for an index outside the arrays, or a cycle of fail arcs."""
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
                "invalid context graph: an index is out of range; use build_context_graph"
            )

    def rebased(self, node: int, arc: int) -> ContextGraph:
        """A copy for shared arrays, with its root at index `node` and its first arc at `arc`.

        Index 0 is the zeroed root of sequences without hotwords, so graphs begin at node 1.
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
                f"a phrase must be token ids from 0 to {vocab_size - 1}, not {list(ids)}"
            )
        if not np.isfinite(weight):
            raise UsageError(f"the weight of a phrase must be finite, not {weight}")
        node = root
        for i, token in enumerate(ids):
            bonus = weight * depth_scaling + ln(i + 1) if i else weight
            child = node.children.setdefault(token, GraphNode(bonus))
            child.token_score = max(child.token_score, bonus)
            node = child
        node.is_end = True
    return pack_graph(breadth_first(root))


def encode_hotwords(
    wanted: Iterable[tuple[str, float]], tokenizer: SentencePieceTokenizer, vocab_size: int
) -> ContextGraph | None:
    """The context graph of phrases given as text with weights; None where no phrase can be encoded.

    A phrase that the tokenizer cannot encode is tried in lower case, and is dropped with a warning
    if that fails too.
    """
    encoded = []
    for phrase, weight in wanted:
        ids = tokenizer.encode(phrase) or tokenizer.encode(phrase.lower())
        if ids:
            encoded.append((ids, weight))
        else:
            log.warning("hotword %r is ignored: this model's vocabulary cannot spell it", phrase)
    return build_context_graph(encoded, vocab_size) if encoded else None


def breadth_first(root: GraphNode) -> list[GraphNode]:
    """All nodes in breadth-first order, with their node scores and fail arcs set."""
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
    """Nodes in breadth-first order as arrays.

    A fail arc takes back the score of a phrase that was not completed.
    """
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
