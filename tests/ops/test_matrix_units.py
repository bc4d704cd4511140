"""Kernels for matrix units where there are none: chosen as measured, and computed in plain WGSL."""

from __future__ import annotations

import re
from typing import Any

import pytest

from oscine.gpu import kernels
from oscine.gpu.device import Device
from oscine.gpu.matrix_units import MatrixUnits
from oscine.ops.cases.attention import projected_attention_case, projected_rel_pos_case
from oscine.ops.cases.conv import conv1d_windows_case
from oscine.ops.cases.linear import linear_case
from oscine.ops.check import Case, run_case
from oscine.ops.webgpu import Gpu, attention, gemm
from oscine.ops.webgpu.thresholds import DEFAULT_THRESHOLDS, TileThresholds

#: M, N and K of the matrices: NVIDIA's, both of them, Intel's and Apple's.
SIZES = ((16, 16, 16), (16, 8, 16), (8, 16, 16), (8, 8, 8))
#: A factor on the right is the place of its numbers: the first eight, steps down and across, and
#: in which array; one on the left is a lane's row of them, as what is stored there may change.
#: Sums are LANE_SUMS a lane. Loops have no constant bounds, lest software GPUs unroll them.
IN_PLAIN_WGSL = """
const LANE_SUMS: u32 = M * N / 32u;
alias LaneSums = array<f32, LANE_SUMS>;
alias LaneRow = array<u32, K / 2u>;
var<private> lane: u32;
var<private> one: u32;

fn multiplied(a: LaneRow, b: vec4<u32>, sums: LaneSums) -> LaneSums {
  var row = a;
  var found = sums;
  for (var e = 0u; e < LANE_SUMS * one; e++) {
    let column = (lane * LANE_SUMS + e) % N;
    for (var k = 0u; k < K * one; k++) {
      let pair = unpack2x16float(row[k / 2u]);
      let factor = select(pair.x, pair.y, k % 2u == 1u);
      found[e] += factor * number(b.w, 8u * b.x + k * b.y + column * b.z);
    }
  }
  return found;
}
"""
#: The same for each array of eight float16 or four float32 an element.
OF_AN_ARRAY = """
fn number_ARRAY(i: u32) -> f32 {
  let pair = unpack2x16float(ARRAY[i / 8u][i % 8u / 2u]);
  return select(pair.x, pair.y, i % 2u == 1u);
}

fn left_ARRAY(at: u32, pitch: u32) -> LaneRow {
  var found: LaneRow;
  for (var k = 0u; k < K / 2u * one; k++) {
    found[k] = ARRAY[at + lane * LANE_SUMS / N * pitch + k / 4u][k % 4u];
  }
  return found;
}

fn taken_ARRAY(at: u32, pitch: u32) -> LaneSums {
  var found: LaneSums;
  for (var e = 0u; e < LANE_SUMS * one; e++) {
    let column = (lane * LANE_SUMS + e) % N;
    found[e] = bitcast<f32>(ARRAY[at + lane * LANE_SUMS / N * pitch + column / 4u][column % 4u]);
  }
  return found;
}
"""
#: Of an array that is written as well; the last one has one float32 an element.
PUT = """
fn put_ARRAY(at: u32, sums: LaneSums, pitch: u32) {
  var given = sums;
  for (var e = 0u; e < LANE_SUMS * one; e++) {
    let column = (lane * LANE_SUMS + e) % N;
    ARRAY[at + lane * LANE_SUMS / N * pitch + column / 4u][column % 4u] = bitcast<u32>(given[e]);
  }
}
"""
PUT_BAND = """
fn put_band(at: u32, sums: LaneSums, pitch: u32) {
  var given = sums;
  for (var e = 0u; e < LANE_SUMS * one; e++) {
    band[at + lane * LANE_SUMS / N * pitch + (lane * LANE_SUMS + e) % N] = given[e];
  }
}
"""
SIZES_OF_A_BLOCK = "const M: u32 = 16u;\nconst N: u32 = 16u;\nconst K: u32 = 16u;"
IN_ALL = (
    (r"^.*(enable f16|chromium).*\n", ""),
    (r"(alias \w+) = subgroup_matrix_left.*", r"\1 = LaneRow;"),
    (r"(alias \w+) = subgroup_matrix_right.*", r"\1 = vec4<u32>;"),
    (r"(alias \w+) = subgroup_matrix_result.*", r"\1 = LaneSums;"),
    (r"subgroupMatrixLoad<Left\w*, row_major>\(&(\w+), ", r"left_\1("),
    (
        r"subgroupMatrixLoad<Right\w*, col_major>\(\s*&(\w+), (.*), ([^,]+?)\s*\);",
        r"vec4<u32>(\2, 1u, 8u * \3, IN_\1);",
    ),
    (r"subgroupMatrixMultiplyAccumulate\(", "multiplied("),
    (r"subgroupMatrixStore<row_major>\(&(\w+), ", r"put_\1("),
    (
        r"( +)(let group = me / 32u;)",
        r"\1lane = me % 32u;\n\1one = min(1u, 1u + arrayLength(&y));\n\1\2",
    ),
)
OF_SMALLER = ((r"< (DOWN|ACROSS|DEEP|FETCHES);", r"< \1 * min(1u, 1u + arrayLength(&y));"),)
IN_ATTENTION = (
    *IN_ALL,
    (
        r"subgroupMatrixLoad<Right\w*, row_major>\(&(\w+), (.*), (\w+)\);",
        r"vec4<u32>(\2, 8u * \3, 1u, IN_\1);",
    ),
    (r"subgroupMatrixLoad<Sums\w*, row_major>\(&(\w+), ", r"taken_\1("),
)
#: The arrays that matrices are loaded from, and what is replaced. No room to keep rows apart in
#: the shared memory of software GPUs.
REPLACED: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "gemm_matrix": (
        ("tile",),
        (
            *IN_ALL,
            (r"const PITCH: u32 = DEPTH8 \+ 1u;", "const PITCH: u32 = DEPTH8;"),
            (r"const SUMS_PITCH: u32 = FOURS \+ 1u;", "const SUMS_PITCH: u32 = FOURS;"),
        ),
    ),
    "attention_matrix": (("tile", "rows"), IN_ATTENTION),
    "rel_pos_attention_matrix": (
        ("tile", "rows", "positions"),
        (
            *IN_ATTENTION,
            (r"const (ROW_)?PITCH: u32 = 17u;", r"const \1PITCH: u32 = 16u;"),
            (r"^.*\b[qro][2-7]\b.*\n", ""),  # heads of 32: more would compile for minutes
        ),
    ),
}


def in_plain_wgsl(name: str, source: str) -> str:
    """The source of a kernel for matrix units without them."""
    arrays, replaced = REPLACED[name]
    whole = "LeftMatrix" not in source
    for pattern, replacement in replaced if whole else (*replaced, *OF_SMALLER):
        source, count = re.subn(pattern, replacement, source, flags=re.MULTILINE)
        assert count, pattern
    texts = [source, *[SIZES_OF_A_BLOCK] * whole, IN_PLAIN_WGSL]
    for i, array in enumerate(arrays):
        texts += [f"const IN_{array}: u32 = {i}u;", OF_AN_ARRAY.replace("ARRAY", array)]
        texts += [PUT.replace("ARRAY", array)] * (f"var<workgroup> {array}:" in source)
    cases = "".join(f"  if (place == IN_{a}) {{\n    return number_{a}(i);\n  }}\n" for a in arrays)
    texts += [f"fn number(place: u32, i: u32) -> f32 {{\n{cases}  return 0.0;\n}}"]
    return "\n".join([*texts, PUT_BAND * ("var<workgroup> band:" in source)])


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
    assert gemm.matrix_tiles(rows, outputs, depth, DEFAULT_THRESHOLDS) == (shape, grid)


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
    assert gemm.plain_tiles(rows, outputs, depth, DEFAULT_THRESHOLDS) == (shape, grid)


@pytest.mark.gpu
@pytest.mark.parametrize("units", [MatrixUnits(*sizes) for sizes in SIZES], ids=str)
@pytest.mark.parametrize(
    ("case", "kernels_"),
    [
        (
            linear_case(130, 2056, 136, True, activation="gelu", add=True),
            ("to_f16", "gemm_matrix"),
        ),
        (
            linear_case(130, 160, 136, "q8", activation="gelu", add=True),
            ("to_f16", "gemm_matrix"),
        ),
        (
            linear_case(130, 160, 136, "q4", norm=True, tiny=True),
            ("layer_norm", "gemm_matrix"),
        ),
        (conv1d_windows_case(45, 72, 68, 2, True, batch=3), ("to_f16", "gemm_matrix")),
        (
            projected_attention_case(33, 2, 16, batch=2),
            ("to_f16", "gemm_matrix", "attention_matrix"),
        ),
        (
            projected_rel_pos_case(2, 40, 1, 32, band=(20, 9)),
            ("to_f16", "gemm_matrix", "pad_positions", "rel_pos_attention_matrix"),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else "",
)
def test_in_plain_wgsl(
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    units: MatrixUnits,
    case: Case,
    kernels_: tuple[str, ...],
) -> None:
    load = kernels.load

    def in_plain(name: str, **parameters: Any) -> str:
        source = load(name, **parameters)
        return in_plain_wgsl(name, source) if name in REPLACED else source

    monkeypatch.setattr(kernels, "load", in_plain)
    monkeypatch.setattr(attention, "REL_POS_MATRIX_HEADS", (8,))
    gpu = Gpu(device)
    gpu.thresholds = TileThresholds(matrix_workgroups=2)  # large tiles, in parts of the depth
    gpu.matrix = units
    gpu.large_tiles = units != MatrixUnits(8, 8, 8)  # as on Apple's GPUs
    result = run_case(gpu, case)
    print(f"{case.name}: largest difference {result.error:.2e} of the largest value")
    assert result.kernels == kernels_
    assert result.passed
    for name, parameters in gpu.pipelines.compiled:
        if name in REPLACED:
            assert units.parameters().items() <= dict(parameters).items()
