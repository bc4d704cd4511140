// y[r, o] = activation(Σ_k x[r, k] w[o, k] + b[o]) + add[r, o]      many rows r, on matrix units
// x and w [OUTPUTS, 8·K8] in float16, or w in blocks that become float16, products and sums in float32; y and add [ROWS, STRIDE] from
// column OFFSET on; OUTPUTS, STRIDE and OFFSET are multiples of 4. Row r of x begins at octet
// r·X_STRIDE8 + X_BEGIN8, and values outside x are 0, in each item of ITEM_ROWS rows, as in gemm.wgsl.
// SPLITS parts of the depth: y is then their sums, [SPLITS, ROWS, STRIDE], for gemm_reduce.wgsl.
// A subgroup of 32 lanes has 32x64 sums, and 4x2 subgroups are a workgroup: tiles of 128x128 sums, 64
// deep (SUBGROUPS 4); or 32x32 sums and 2x2 subgroups: 64x64 (SUBGROUPS 2). MATRIX: matrices of
// 16x16x16, or smaller ones of MxNxK.
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

// use _subgroup_matrix_16x16x16 for MATRIX: 16x16x16, smaller
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

// use _gemm_matrix_16x16x16 for MATRIX: 16x16x16, smaller
