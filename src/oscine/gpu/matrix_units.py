"""Matrix units: which of the subgroup matrices that an adapter lists the kernels use."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

LANES = 32  # of the subgroups that kernels for matrix units are written for
BLOCK = 16  # rows and columns of the blocks that those kernels compute with
SIZES = (8, 16)  # of a matrix: what divides a block, and is whole eights of float16
#: Factors and sums, in Dawn's terms. Sums of float16 are not used: they have 11 bits, too few for
#: the 1,280 to 5,120 products of a sum, and end at 65,504.
TYPES = {"component_type": "f16", "result_component_type": "f32"}


@dataclass(frozen=True, slots=True)
class MatrixUnits:
    """The subgroup matrices of kernels: [m, k] times [k, n] of float16, summed in float32.

    Args:
        m: Rows of the left factor and of the sums, 8 or 16.
        n: Columns of the right factor and of the sums, 8 or 16.
        k: Columns of the left factor and rows of the right one, 8 or 16.
        request_lanes: Whether a kernel has to ask for a subgroup of LANES, as the device has other
            sizes too.
    """

    m: int = BLOCK
    n: int = BLOCK
    k: int = BLOCK
    request_lanes: bool = False

    @property
    def is_block(self) -> bool:
        """Whether a matrix is a whole block of 16x16x16."""
        return (self.m, self.n, self.k) == (BLOCK, BLOCK, BLOCK)

    def parameters(self) -> dict[str, int | str]:
        """The parameters of a kernel for these matrices; none for those of 16x16x16."""
        if self.is_block:
            return {}
        return {"MATRIX": "smaller", "M": self.m, "N": self.n, "K": self.k}

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


def choose_matrix_units(
    properties: Mapping[str, Any], features: Set[str], backend: str
) -> MatrixUnits | None:
    """The matrices with the most products an instruction of those that kernels can use, or None.

    Of equal ones it is the one with more sums, then the first, and one that needs no request.

    Args:
        properties: Of an adapter of Dawn; "subgroup_matrix_configs" has types, m, n, k and the
            sizes of subgroups.
        features: With "subgroup_size" a kernel can ask for the size of its subgroups.
        backend: Under "Metal" no request is needed, as all GPUs with matrix units have LANES.
    """
    usable = []
    for config in properties.get("subgroup_matrix_configs", ()):
        sizes = config["m"], config["n"], config["k"]
        least, most = config["min_subgroup_size"], config["max_subgroup_size"]
        if not config.items() >= TYPES.items() or not set(sizes) <= set(SIZES):
            continue
        request = least != most and backend != "Metal"
        if least <= LANES <= most and ("subgroup_size" in features or not request):
            usable.append(MatrixUnits(*sizes, request_lanes=request))
    return max(
        usable, key=lambda u: (u.m * u.n * u.k, u.m * u.n, not u.request_lanes), default=None
    )
