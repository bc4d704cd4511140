"""Kernels for matrix units where there are none: chosen as measured, and computed in plain WGSL."""

from __future__ import annotations

import re
from typing import Any

import pytest

from oscine.gpu import kernels
from oscine.gpu.device import Device
from oscine.ops import gpu_products
from oscine.ops.check import run_case
from oscine.ops.check_layers import linear_case
from oscine.ops.gpu import Gpu

#: A matrix is the place of its numbers in `tile`: first eight, steps down and across. Sums are
#: eight a lane. Loops have no constant bounds, lest software GPUs unroll them.
IN_PLAIN_WGSL = """
var<private> lane: u32;
var<private> deep: u32;

fn number(i: u32) -> f32 {
  let pair = unpack2x16float(tile[i / 8u][i % 8u / 2u]);
  return select(pair.x, pair.y, i % 2u == 1u);
}

fn multiplied(a: Left, b: Right, sums: Sums) -> Sums {
  var found = sums;
  for (var e = 0u; e < deep / 2u; e++) {
    let row = (lane * 8u + e) / 16u;
    let column = (lane * 8u + e) % 16u;
    for (var k = 0u; k < deep; k++) {
      let left = number(8u * a.x + row * a.y + k * a.z);
      found[e] += left * number(8u * b.x + k * b.y + column * b.z);
    }
  }
  return found;
}

fn put(at: u32, sums: Sums, pitch: u32) {
  var given = sums;
  for (var e = 0u; e < deep / 2u; e++) {
    let row = (lane * 8u + e) / 16u;
    let column = (lane * 8u + e) % 16u;
    tile[at + row * pitch + column / 4u][column % 4u] = bitcast<u32>(given[e]);
  }
}
"""
REPLACED = (
    (r"^(enable|diagnostic).*\n", ""),
    (r"alias (Left|Right) = .*", r"alias \1 = vec3<u32>;"),
    (r"alias Sums = .*", "alias Sums = array<f32, 8>;"),
    (r"subgroupMatrixLoad<\w+, row_major>\(&tile, (.*), (\w+)\);", r"vec3<u32>(\1, 8u * \2, 1u);"),
    (r"subgroupMatrixLoad<\w+, col_major>\(&tile, (.*), (\w+)\);", r"vec3<u32>(\1, 1u, 8u * \2);"),
    (r"subgroupMatrixMultiplyAccumulate\(", "multiplied("),
    (r"subgroupMatrixStore<row_major>\(&tile, ", "put("),
    (
        r"( +)(let team = me / 32u;)",
        r"\1lane = me % 32u;\n\1deep = min(16u, 16u + arrayLength(&y));\n\1\2",
    ),
    # No room to keep rows apart in the shared memory of software GPUs.
    (r"const PITCH: u32 = DEPTH8 \+ 1u;", "const PITCH: u32 = DEPTH8;"),
    (r"const SUMS_PITCH: u32 = 9u;", "const SUMS_PITCH: u32 = 8u;"),
)


@pytest.mark.parametrize(
    ("rows", "outputs", "depth", "shape", "grid"),
    [
        (1500, 1280, 5120, {"TEAMS": 4}, (10, 12, 1)),
        (375, 4096, 1024, {"TEAMS": 4}, (32, 3, 1)),
        (375, 1024, 4096, {"TEAMS": 4}, (8, 3, 4)),
        (375, 1024, 1024, {"TEAMS": 2}, (16, 6, 1)),
        (65, 100, 9000, {"TEAMS": 2}, (2, 2, 1)),
    ],
)
def test_tiles_of_matrix_units(
    rows: int, outputs: int, depth: int, shape: dict[str, int], grid: tuple[int, int, int]
) -> None:
    assert gpu_products.matrix_tiles(rows, outputs, depth) == (shape, grid)


@pytest.mark.parametrize(
    ("rows", "outputs", "depth", "shape", "grid"),
    [
        (1500, 3840, 1280, {"COLUMNS": 128}, (30, 24, 1)),
        (375, 4096, 1024, {"COLUMNS": 64}, (64, 6, 1)),
        (375, 1024, 4096, {"COLUMNS": 64}, (16, 6, 3)),
        (70, 100, 300, {"COLUMNS": 64}, (2, 2, 1)),
    ],
)
def test_tiles_without_matrix_units(
    rows: int, outputs: int, depth: int, shape: dict[str, int], grid: tuple[int, int, int]
) -> None:
    assert gpu_products.plain_tiles(rows, outputs, depth) == (shape, grid)


@pytest.mark.gpu
def test_products_in_plain_wgsl(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    load = kernels.load

    def in_plain(name: str, **parameters: Any) -> str:
        source = load(name, **parameters)
        if name != "gemm_matrix":
            return source
        for pattern, replacement in REPLACED:
            source, count = re.subn(pattern, replacement, source, flags=re.MULTILINE)
            assert count, pattern
        return source + IN_PLAIN_WGSL

    monkeypatch.setattr(kernels, "load", in_plain)
    monkeypatch.setattr(gpu_products, "MATRIX_ENOUGH", 2)  # large tiles, in parts of the depth
    gpu = Gpu(device)
    gpu.matrix = True
    case = linear_case(130, 2056, 136, True, activation="gelu", add=True)
    result = run_case(gpu, case)
    print(f"{case.name}: largest difference {result.error:.2e} of the largest value")
    assert result.kernels == ("pack", "gemm_matrix")
    assert result.passed
    case = linear_case(70, 2056, 30, True, activation="gelu", norm=True)
    result = run_case(gpu, case)
    assert result.kernels == ("layer_norm", "gemm_matrix", "gemm_sum")
    assert result.passed
