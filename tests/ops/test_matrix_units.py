"""Kernels for matrix units where there are none: chosen as measured, and computed in plain WGSL."""

from __future__ import annotations

import re
from typing import Any

import pytest

from oscine.gpu import kernels
from oscine.gpu.device import Device
from oscine.ops.cases.attention import projected_attention_case
from oscine.ops.cases.conv import conv1d_windows_case
from oscine.ops.cases.linear import linear_case
from oscine.ops.check import Case, run_case
from oscine.ops.webgpu import Gpu, gemm

#: A factor on the right is the place of its numbers in `tile`: first eight, steps down and across;
#: one on the left is a lane's row of them, as what lies there may change. Sums are eight a lane.
#: Loops have no constant bounds, lest software GPUs unroll them.
IN_PLAIN_WGSL = """
var<private> lane: u32;
var<private> deep: u32;

fn number(i: u32) -> f32 {
  let pair = unpack2x16float(tile[i / 8u][i % 8u / 2u]);
  return select(pair.x, pair.y, i % 2u == 1u);
}

fn left_at(at: u32, pitch: u32) -> Left {
  var found: Left;
  for (var k = 0u; k < deep; k++) {
    found[k] = number(8u * (at + lane / 2u * pitch) + k);
  }
  return found;
}

fn multiplied(a: Left, b: Right, sums: Sums) -> Sums {
  var row = a;
  var found = sums;
  for (var e = 0u; e < deep / 2u; e++) {
    let column = (lane * 8u + e) % 16u;
    for (var k = 0u; k < deep; k++) {
      found[e] += row[k] * number(8u * b.x + k * b.y + column * b.z);
    }
  }
  return found;
}

fn put(at: u32, sums: Sums, pitch: u32) {
  var given = sums;
  for (var e = 0u; e < deep / 2u; e++) {
    let column = (lane * 8u + e) % 16u;
    tile[at + lane / 2u * pitch + column / 4u][column % 4u] = bitcast<u32>(given[e]);
  }
}

fn taken(at: u32, pitch: u32) -> Sums {
  var found: Sums;
  for (var e = 0u; e < deep / 2u; e++) {
    let column = (lane * 8u + e) % 16u;
    found[e] = bitcast<f32>(tile[at + lane / 2u * pitch + column / 4u][column % 4u]);
  }
  return found;
}
"""
IN_BOTH = (
    (r"^.*(enable f16|chromium).*\n", ""),
    (r"alias Left = .*", "alias Left = array<f32, 16>;"),
    (r"alias Right = .*", "alias Right = vec3<u32>;"),
    (r"alias Sums = .*", "alias Sums = array<f32, 8>;"),
    (r"subgroupMatrixLoad<Left, row_major>\(&tile, (.*), (\w+)\);", r"left_at(\1, \2);"),
    (r"subgroupMatrixLoad<\w+, col_major>\(&tile, (.*), (\w+)\);", r"vec3<u32>(\1, 1u, 8u * \2);"),
    (r"subgroupMatrixMultiplyAccumulate\(", "multiplied("),
    (r"subgroupMatrixStore<row_major>\(&tile, ", "put("),
    (
        r"( +)(let group = me / 32u;)",
        r"\1lane = me % 32u;\n\1deep = min(16u, 16u + arrayLength(&y));\n\1\2",
    ),
)
#: No room to keep rows apart in the shared memory of software GPUs.
REPLACED = {
    "gemm_matrix": (
        *IN_BOTH,
        (r"const PITCH: u32 = DEPTH8 \+ 1u;", "const PITCH: u32 = DEPTH8;"),
        (r"const SUMS_PITCH: u32 = 9u;", "const SUMS_PITCH: u32 = 8u;"),
    ),
    "attention_matrix": (
        *IN_BOTH,
        (
            r"subgroupMatrixLoad<Right, row_major>\(&tile, (.*), (\w+)\);",
            r"vec3<u32>(\1, 8u * \2, 1u);",
        ),
        (r"subgroupMatrixLoad<Sums, row_major>\(&tile, (.*), (\w+)\);", r"taken(\1, \2);"),
        (r"const PITCH: u32 = 9u;", "const PITCH: u32 = 8u;"),
        (r"const SUMS_PITCH: u32 = 17u;", "const SUMS_PITCH: u32 = 16u;"),
        (r"var<workgroup> behind", "var<private> behind"),
        (r"if \(workgroupUniformLoad\(&behind\) != 0u\)", "workgroupBarrier();\n    if (true)"),
    ),
}


@pytest.mark.parametrize(
    ("rows", "outputs", "depth", "shape", "grid"),
    [
        (1500, 1280, 5120, {"SUBGROUPS": 4}, (10, 12, 1)),
        (375, 4096, 1024, {"SUBGROUPS": 4}, (32, 3, 1)),
        (375, 1024, 4096, {"SUBGROUPS": 4}, (8, 3, 4)),
        (375, 1024, 1024, {"SUBGROUPS": 2}, (16, 6, 1)),
        (65, 100, 9000, {"SUBGROUPS": 2}, (2, 2, 1)),
    ],
)
def test_tiles_of_matrix_units(
    rows: int, outputs: int, depth: int, shape: dict[str, int], grid: tuple[int, int, int]
) -> None:
    assert gemm.matrix_tiles(rows, outputs, depth) == (shape, grid)


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
    assert gemm.plain_tiles(rows, outputs, depth) == (shape, grid)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("case", "kernels_"),
    [
        (
            linear_case(130, 2056, 136, True, activation="gelu", add=True),
            ("to_f16", "gemm_matrix"),
        ),
        (conv1d_windows_case(45, 72, 70, 2, True, batch=3), ("to_f16", "gemm_matrix")),
        (
            projected_attention_case(33, 2, 16, batch=2),
            ("to_f16", "gemm_matrix", "attention_matrix"),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_in_plain_wgsl(
    device: Device, monkeypatch: pytest.MonkeyPatch, case: Case, kernels_: tuple[str, ...]
) -> None:
    load = kernels.load

    def in_plain(name: str, **parameters: Any) -> str:
        source = load(name, **parameters)
        if name not in REPLACED:
            return source
        for pattern, replacement in REPLACED[name]:
            source, count = re.subn(pattern, replacement, source, flags=re.MULTILINE)
            assert count, pattern
        return source + IN_PLAIN_WGSL

    monkeypatch.setattr(kernels, "load", in_plain)
    monkeypatch.setattr(gemm, "MATRIX_ENOUGH", 2)  # large tiles, in parts of the depth
    gpu = Gpu(device)
    gpu.matrix = True
    result = run_case(gpu, case)
    print(f"{case.name}: largest difference {result.error:.2e} of the largest value")
    assert result.kernels == kernels_
    assert result.passed
