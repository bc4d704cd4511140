// y[r, o] = activation(Σ_k x[r, k] w[o, k] + b[o]) + add[r, o]      many rows r, on matrix units
// x and w [OUTPUTS, 8·K8] in float16, or w in blocks that become float16, products and sums in float32; y and add [ROWS, STRIDE] from
// column OFFSET on; OUTPUTS, STRIDE and OFFSET are multiples of 4. Row r of x begins at octet
// r·X_STRIDE8 + X_BEGIN8, and values outside x are 0, in each item of ITEM_ROWS rows, as in gemm.wgsl.
// SPLITS parts of the depth: y is then their sums, [SPLITS, ROWS, STRIDE], for gemm_reduce.wgsl.
// A subgroup of 32 lanes has 2x4 matrices of 16x16 sums, and 4x2 subgroups are a workgroup: tiles of
// 128x128 sums, 64 deep (SUBGROUPS 4); or 2x2 matrices and 2x2 subgroups: 64x64 (SUBGROUPS 2).
// Launch (ceil(OUTPUTS / SIDE), ceil(ROWS / SIDE), SPLITS).
// use _octets_f16 for WEIGHTS: f16, q8, q4
// use _gemm_epilogue
// use _store_f32 for STORE: f32, f16
enable f16;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
const ROWS: u32 = 1u;
const K8: u32 = 1u;
const OUTPUTS: u32 = 1u;
const X_LENGTH8: u32 = 1u;
const X_STRIDE8: u32 = 1u;
const X_BEGIN8: i32 = 0;
const SPLITS: u32 = 1u;
const SUBGROUPS: u32 = 4u;            // from the first row of a tile to its last

const WORKGROUP: u32 = 64u * SUBGROUPS;
const SIDE: u32 = 32u * SUBGROUPS;
const DEPTH8: u32 = 8u;               // of a tile, in eights
const STEP: u32 = WORKGROUP / DEPTH8; // rows between those that an invocation brings to a tile
const PITCH: u32 = DEPTH8 + 1u;       // odd: eight rows use all banks
const W_FIRST: u32 = SIDE * PITCH;
const WIDE: bool = SUBGROUPS > 2u;
const FOURS: u32 = SIDE / 8u;         // of the sums of a subgroup's row
const SUMS_PITCH: u32 = FOURS + 1u;
// Rows that lie one after another, without space between them.
const DENSE: bool = X_BEGIN8 == 0 && X_STRIDE8 == K8 && X_LENGTH8 == ITEM_ROWS * K8;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> w: array<Word>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> add: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<Stored>;

// Eight float16 an element: SIDE rows of x, then of w; in the end four float32 of sums.
var<workgroup> tile: array<vec4<u32>, 2u * SIDE * PITCH>;

// Loads without branches, so that many are under way at once. Rows and outputs behind the last give
// sums that are not stored; the depth behind the last is 0 in w.
fn x_at(row: u32, k8: u32) -> vec4<u32> {
  if (DENSE) {
    return x[min(row, ROWS - 1u) * K8 + min(k8, K8 - 1u)];
  }
  let at = i32(row_in_item(row) * X_STRIDE8 + k8) + X_BEGIN8;
  let inside = row < ROWS && k8 < K8 && at >= 0 && at < i32(X_LENGTH8);
  return select(vec4<u32>(), x[select(0u, batch_item(row) * X_LENGTH8 + u32(at), inside)], inside);
}

fn w_at(output: u32, k8: u32) -> Octet {
  let at8 = min(output, OUTPUTS - 1u) * K8 + min(k8, K8 - 1u);
  return fetch_octet(at8, K8 % DEPTH8 == 0u || k8 < K8);
}

fn store_four(row: u32, output: u32, sums: vec4<f32>, part: u32) {
  if (row >= ROWS || output >= OUTPUTS) {
    return;
  }
  if (SPLITS > 1u) {
    y[((part * ROWS + row) * STRIDE + OFFSET + output) / 4u] = stored(sums);
    return;
  }
  y[(row * STRIDE + OFFSET + output) / 4u] = stored(vec4<f32>(
    epilogue(row, output, sums.x),
    epilogue(row, output + 1u, sums.y),
    epilogue(row, output + 2u, sums.z),
    epilogue(row, output + 3u, sums.w),
  ));
}

// Sixteen rows of a subgroup's sums, from the tile.
fn finish_rows(offset: u32, lane: u32, row: u32, output: u32, part: u32) {
  for (var turn = 0u; turn < FOURS / 2u; turn++) {
    let i = turn * 32u + lane;
    let line = i / FOURS;
    let four = i % FOURS;
    let sums = bitcast<vec4<f32>>(tile[offset + line * SUMS_PITCH + four]);
    store_four(row + line, output + 4u * four, sums, part);
  }
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let group = me / 32u;
  let row = group / 2u * 32u;
  let output = group % 2u * (SIDE / 2u);
  // Names, not arrays or structures: only these stay in registers.
  var s00 = Sums();
  var s01 = Sums();
  var s02 = Sums();
  var s03 = Sums();
  var s10 = Sums();
  var s11 = Sums();
  var s12 = Sums();
  var s13 = Sums();
  // Whole tiles of the depth are this part's.
  let tiles = (K8 + DEPTH8 - 1u) / DEPTH8;
  let first = workgroup.z * tiles / SPLITS * DEPTH8;
  let last = (workgroup.z + 1u) * tiles / SPLITS * DEPTH8;
  // The next tile is fetched before this one is used, so that its loads are under way meanwhile.
  let line = me / DEPTH8;
  let column = me % DEPTH8;
  let x_row = workgroup.y * SIDE + line;
  let w_row = workgroup.x * SIDE + line;
  let x_place = line * PITCH + column;
  let w_place = W_FIRST + x_place;
  var x0 = x_at(x_row, first + column);
  var x1 = x_at(x_row + STEP, first + column);
  var x2 = x_at(x_row + 2u * STEP, first + column);
  var x3 = x_at(x_row + 3u * STEP, first + column);
  var w0 = w_at(w_row, first + column);
  var w1 = w_at(w_row + STEP, first + column);
  var w2 = w_at(w_row + 2u * STEP, first + column);
  var w3 = w_at(w_row + 3u * STEP, first + column);
  for (var k8 = first; k8 < last; k8 += DEPTH8) {
    workgroupBarrier();
    tile[x_place] = x0;
    tile[x_place + STEP * PITCH] = x1;
    tile[x_place + 2u * STEP * PITCH] = x2;
    tile[x_place + 3u * STEP * PITCH] = x3;
    tile[w_place] = to_halves(w0);
    tile[w_place + STEP * PITCH] = to_halves(w1);
    tile[w_place + 2u * STEP * PITCH] = to_halves(w2);
    tile[w_place + 3u * STEP * PITCH] = to_halves(w3);
    workgroupBarrier();
    let next = k8 + DEPTH8 + column;
    x0 = x_at(x_row, next);
    x1 = x_at(x_row + STEP, next);
    x2 = x_at(x_row + 2u * STEP, next);
    x3 = x_at(x_row + 3u * STEP, next);
    w0 = w_at(w_row, next);
    w1 = w_at(w_row + STEP, next);
    w2 = w_at(w_row + 2u * STEP, next);
    w3 = w_at(w_row + 3u * STEP, next);
    for (var step = 0u; step < DEPTH8; step += 2u) {
      let left = row * PITCH + step;
      let right = W_FIRST + output * PITCH + step;
      let a0 = subgroupMatrixLoad<Left, row_major>(&tile, left, PITCH);
      let a1 = subgroupMatrixLoad<Left, row_major>(&tile, left + 16u * PITCH, PITCH);
      let b0 = subgroupMatrixLoad<Right, col_major>(&tile, right, PITCH);
      s00 = subgroupMatrixMultiplyAccumulate(a0, b0, s00);
      s10 = subgroupMatrixMultiplyAccumulate(a1, b0, s10);
      let b1 = subgroupMatrixLoad<Right, col_major>(&tile, right + 16u * PITCH, PITCH);
      s01 = subgroupMatrixMultiplyAccumulate(a0, b1, s01);
      s11 = subgroupMatrixMultiplyAccumulate(a1, b1, s11);
      if (WIDE) {
        let b2 = subgroupMatrixLoad<Right, col_major>(&tile, right + 32u * PITCH, PITCH);
        s02 = subgroupMatrixMultiplyAccumulate(a0, b2, s02);
        s12 = subgroupMatrixMultiplyAccumulate(a1, b2, s12);
        let b3 = subgroupMatrixLoad<Right, col_major>(&tile, right + 48u * PITCH, PITCH);
        s03 = subgroupMatrixMultiplyAccumulate(a0, b3, s03);
        s13 = subgroupMatrixMultiplyAccumulate(a1, b3, s13);
      }
    }
  }
  let offset = group * 16u * SUMS_PITCH;
  let lane = me % 32u;
  let to_row = workgroup.y * SIDE + row;
  let to_output = workgroup.x * SIDE + output;
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile, offset, s00, SUMS_PITCH);
  subgroupMatrixStore<row_major>(&tile, offset + 4u, s01, SUMS_PITCH);
  if (WIDE) {
    subgroupMatrixStore<row_major>(&tile, offset + 8u, s02, SUMS_PITCH);
    subgroupMatrixStore<row_major>(&tile, offset + 12u, s03, SUMS_PITCH);
  }
  workgroupBarrier();
  finish_rows(offset, lane, to_row, to_output, workgroup.z);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile, offset, s10, SUMS_PITCH);
  subgroupMatrixStore<row_major>(&tile, offset + 4u, s11, SUMS_PITCH);
  if (WIDE) {
    subgroupMatrixStore<row_major>(&tile, offset + 8u, s12, SUMS_PITCH);
    subgroupMatrixStore<row_major>(&tile, offset + 12u, s13, SUMS_PITCH);
  }
  workgroupBarrier();
  finish_rows(offset, lane, to_row + 16u, to_output, workgroup.z);
}
