"""Context graphs of the hotwords of several sequences, in tables that they share on the device."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from oscine.models.parakeet.hotwords import ContextGraph
from oscine.ops import GRAPH_ARC, GRAPH_NODE, Backend, ContextGraphTensors, Tensor, copy_starts

FIRST_NODE = 1  # node 0 is the root of sequences without phrases


@dataclass(frozen=True, slots=True)
class Region:
    """Where a graph is in the tables: (first, end) of its nodes and arcs, end exclusive."""

    nodes: tuple[int, int]
    arcs: tuple[int, int]


class ContextGraphPool:
    """Device tables that hold the context graphs of all running sequences.

    A graph keeps its place as long as a sequence uses it, and until its space is needed for
    another. `boost` is the pair of tables; it is replaced when they grow.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.boost = ContextGraphTensors(
            backend.zeros((64,), GRAPH_NODE), backend.zeros((64,), GRAPH_ARC)
        )
        self.regions: dict[ContextGraph, Region] = {}

    def add(self, graph: ContextGraph, in_use: Collection[ContextGraph]) -> int:
        """Index of the graph's root; the graph is uploaded if it is not in the tables.

        `in_use`: graphs of running sequences, which keep their place. Raises DeviceMemoryError.
        """
        if graph not in self.regions:
            region = self.region(graph)
            if not self.fits(region):
                self.regions = {each: at for each, at in self.regions.items() if each in in_use}
                region = self.region(graph)
            self.grow(region)
            placed = graph.rebased(region.nodes[0], region.arcs[0])
            self.backend.write(self.boost.nodes, placed.nodes, at=region.nodes[0])
            if len(placed.arcs):
                self.backend.write(self.boost.arcs, placed.arcs, at=region.arcs[0])
            self.regions[graph] = region
        return self.regions[graph].nodes[0]

    def region(self, graph: ContextGraph) -> Region:
        """The first free region that is large enough; it may end beyond the tables."""
        taken = self.regions.values()
        return Region(
            find_free((at.nodes for at in taken), len(graph.nodes), FIRST_NODE),
            find_free((at.arcs for at in taken), len(graph.arcs), 0),
        )

    def fits(self, region: Region) -> bool:
        """Whether a region is inside the tables."""
        nodes, arcs = int(self.boost.nodes.shape[0]), int(self.boost.arcs.shape[0])
        return region.nodes[1] <= nodes and region.arcs[1] <= arcs

    def grow(self, region: Region) -> None:
        """Enlarge the tables to hold a region, with their content. Raises DeviceMemoryError."""
        if self.fits(region):
            return
        old = self.boost
        nodes = enlarged(self.backend, old.nodes, region.nodes[1], GRAPH_NODE)
        self.boost = ContextGraphTensors(
            nodes, enlarged(self.backend, old.arcs, region.arcs[1], GRAPH_ARC)
        )
        self.backend.release(old.nodes, old.arcs)


def enlarged(backend: Backend, table: Tensor, count: int, kind: Any) -> Tensor:
    """A copy of a table with space for at least `count` entries, rounded up to a power of two."""
    count = max(count, table.shape[0])
    made = backend.zeros((1 << (count - 1).bit_length(),), kind)
    old, new = ((1, *each.shape) for each in (table, made))
    copy_starts(backend, backend.view(table, old), backend.view(made, new), [(0, 0)])
    return made


def find_free(taken: Iterable[tuple[int, int]], count: int, start: int) -> tuple[int, int]:
    """(first, end) of the first `count` free entries from `start` on."""
    at = start
    for begin, end in sorted(taken):
        if at + count <= begin:
            break
        at = max(at, end)
    return at, at + count
