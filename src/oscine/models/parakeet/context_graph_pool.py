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
    """Where a tree is in the tables: nodes and arcs from, up to but without."""

    nodes: tuple[int, int]
    arcs: tuple[int, int]


class ContextGraphPool:
    """A tree stays where it is placed as long as a sequence uses it, and longer if there is room.

    `boost`: the tables, other ones after they have grown.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.boost = ContextGraphTensors(
            backend.zeros((64,), GRAPH_NODE), backend.zeros((64,), GRAPH_ARC)
        )
        self.regions: dict[ContextGraph, Region] = {}

    def add(self, graph: ContextGraph, in_use: Collection[ContextGraph]) -> int:
        """The root of the phrases' tree, which is written if it is not there yet.

        `used`: graph whose trees rows walk at present. Raises DeviceMemoryError.
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
        """The first that is free, perhaps beyond the end of the tables."""
        taken = self.regions.values()
        return Region(
            find_free((at.nodes for at in taken), len(graph.nodes), FIRST_NODE),
            find_free((at.arcs for at in taken), len(graph.arcs), 0),
        )

    def fits(self, region: Region) -> bool:
        """Whether the tables are large enough for it."""
        nodes, arcs = int(self.boost.nodes.shape[0]), int(self.boost.arcs.shape[0])
        return region.nodes[1] <= nodes and region.arcs[1] <= arcs

    def grow(self, region: Region) -> None:
        """Make the tables large enough for it; they keep what they hold."""
        if self.fits(region):
            return
        old = self.boost
        nodes = enlarged(self.backend, old.nodes, region.nodes[1], GRAPH_NODE)
        self.boost = ContextGraphTensors(
            nodes, enlarged(self.backend, old.arcs, region.arcs[1], GRAPH_ARC)
        )
        self.backend.release(old.nodes, old.arcs)


def enlarged(backend: Backend, table: Tensor, count: int, kind: Any) -> Tensor:
    """Another table of at least `count` entries, which begins as this one."""
    count = max(count, table.shape[0])
    made = backend.zeros((1 << (count - 1).bit_length(),), kind)
    old, new = ((1, *each.shape) for each in (table, made))
    copy_starts(backend, backend.view(table, old), backend.view(made, new), [(0, 0)])
    return made


def find_free(taken: Iterable[tuple[int, int]], count: int, start: int) -> tuple[int, int]:
    """The first `count` entries from `start` on of which none is taken."""
    at = start
    for begin, end in sorted(taken):
        if at + count <= begin:
            break
        at = max(at, end)
    return at, at + count
