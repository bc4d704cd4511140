// y[r, o] = activation(Σ_k x[r, k] w[o, k] + b[o]) + add[r, o]      many rows r
// w [OUTPUTS, 4·K4]; y and add [ROWS, STRIDE] from column OFFSET on.
// Row r of x begins at vec4 r·X_STRIDE4 + X_BEGIN4, and values outside x are 0: so a
// convolution over time-first x is this gemm with rows that overlap. Where x is a batch of windows
// of X_LENGTH4 vec4s, each gives ITEM_ROWS rows of y by itself, and add is one item's [ITEM_ROWS, STRIDE].
// Tiles of 64 rows by 128 outputs, 16 deep; 128 invocations, each 8 rows by 2x4 outputs; where
// those would be few, by 64 COLUMNS, each 8 rows by 4. SPLITS parts of the depth: y
// is then their sums, [SPLITS, ROWS, STRIDE], for gemm_reduce.wgsl.
// Launch (ceil(OUTPUTS / COLUMNS), ceil(ROWS / 64), SPLITS).
// use _matrix_f32 for WEIGHTS: f32, f16, bf16, q8, q4
// use _gemm_epilogue
const ROWS: u32 = 1u;
const K4: u32 = 1u;
const OUTPUTS: u32 = 1u;
const X_LENGTH4: u32 = 1u;
const X_STRIDE4: u32 = 1u;
const X_BEGIN4: i32 = 0;
const COLUMNS: u32 = 128u;
const SPLITS: u32 = 1u;
const ACROSS: u32 = COLUMNS / 4u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<Word>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> add: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

var<workgroup> left: array<vec4<f32>, 256>;           // [16 deep][64 rows]
var<workgroup> right: array<vec4<f32>, 16u * ACROSS>;  // [16 deep][COLUMNS]

fn x_at(row: u32, k4: u32) -> vec4<f32> {
  let at = i32(row_in_item(row) * X_STRIDE4 + k4) + X_BEGIN4;
  if (row < ROWS && k4 < K4 && at >= 0 && at < i32(X_LENGTH4)) {
    return x[batch_item(row) * X_LENGTH4 + u32(at)];
  }
  return vec4<f32>();
}

fn w_at(output: u32, k4: u32) -> vec4<f32> {
  if (output < OUTPUTS && k4 < K4) {
    return unpack(fetch(output * K4 + k4));
  }
  return vec4<f32>();
}

// Of SPLITS parts of the depth each part stores its sums, which gemm_reduce.wgsl finishes.
fn store_sum(row: u32, output: u32, sum: f32, part: u32) {
  if (row < ROWS && output < OUTPUTS) {
    if (SPLITS > 1u) {
      y[(part * ROWS + row) * STRIDE + OFFSET + output] = sum;
      return;
    }
    y[row * STRIDE + OFFSET + output] = epilogue(row, output, sum);
  }
}

var<private> part: u32;  // of the depth

fn store(row: u32, output: u32, sums: vec4<f32>) {
  store_sum(row, output, sums.x, part);
  store_sum(row, output + 1u, sums.y, part);
  store_sum(row, output + 2u, sums.z, part);
  store_sum(row, output + 3u, sums.w, part);
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) tile: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  part = tile.z;
  let first_row = tile.y * 64u;
  let first_output = tile.x * COLUMNS;
  let steps = (K4 + 3u) / 4u;
  let first = tile.z * steps / SPLITS * 4u;
  let last = (tile.z + 1u) * steps / SPLITS * 4u;
  let across = me % 16u;
  let down = me / 16u;
  // Eight rows of two times four outputs; names, not an array, so that they stay in registers.
  var s00 = vec4<f32>();
  var s01 = vec4<f32>();
  var s10 = vec4<f32>();
  var s11 = vec4<f32>();
  var s20 = vec4<f32>();
  var s21 = vec4<f32>();
  var s30 = vec4<f32>();
  var s31 = vec4<f32>();
  var s40 = vec4<f32>();
  var s41 = vec4<f32>();
  var s50 = vec4<f32>();
  var s51 = vec4<f32>();
  var s60 = vec4<f32>();
  var s61 = vec4<f32>();
  var s70 = vec4<f32>();
  var s71 = vec4<f32>();
  // Fetched as blocks of 4 rows by 4 deep, rotated in registers, stored as rows of depth; the
  // next tile is fetched before this one is used, so that its loads are under way meanwhile.
  let fetch_k = me % 4u;
  let fetch_row = me / 4u;
  let w_row = first_output + fetch_row * 4u;
  let x_row = first_row + fetch_row * 4u;
  let to = fetch_k * 4u;
  var r0 = vec4<f32>();
  var r1 = vec4<f32>();
  var r2 = vec4<f32>();
  var r3 = vec4<f32>();
  if (fetch_row < ACROSS) {
    r0 = w_at(w_row, first + fetch_k);
    r1 = w_at(w_row + 1u, first + fetch_k);
    r2 = w_at(w_row + 2u, first + fetch_k);
    r3 = w_at(w_row + 3u, first + fetch_k);
  }
  var l0 = vec4<f32>();
  var l1 = vec4<f32>();
  var l2 = vec4<f32>();
  var l3 = vec4<f32>();
  if (fetch_row < 16u) {  // 64 rows of x are half as many as outputs
    l0 = x_at(x_row, first + fetch_k);
    l1 = x_at(x_row + 1u, first + fetch_k);
    l2 = x_at(x_row + 2u, first + fetch_k);
    l3 = x_at(x_row + 3u, first + fetch_k);
  }
  for (var k4 = first; k4 < last; k4 += 4u) {
    workgroupBarrier();
    if (fetch_row < ACROSS) {
      right[to * ACROSS + fetch_row] = vec4<f32>(r0.x, r1.x, r2.x, r3.x);
      right[(to + 1u) * ACROSS + fetch_row] = vec4<f32>(r0.y, r1.y, r2.y, r3.y);
      right[(to + 2u) * ACROSS + fetch_row] = vec4<f32>(r0.z, r1.z, r2.z, r3.z);
      right[(to + 3u) * ACROSS + fetch_row] = vec4<f32>(r0.w, r1.w, r2.w, r3.w);
    }
    if (fetch_row < 16u) {
      left[to * 16u + fetch_row] = vec4<f32>(l0.x, l1.x, l2.x, l3.x);
      left[(to + 1u) * 16u + fetch_row] = vec4<f32>(l0.y, l1.y, l2.y, l3.y);
      left[(to + 2u) * 16u + fetch_row] = vec4<f32>(l0.z, l1.z, l2.z, l3.z);
      left[(to + 3u) * 16u + fetch_row] = vec4<f32>(l0.w, l1.w, l2.w, l3.w);
    }
    workgroupBarrier();
    let next = k4 + 4u + fetch_k;
    if (fetch_row < ACROSS) {
      r0 = w_at(w_row, next);
      r1 = w_at(w_row + 1u, next);
      r2 = w_at(w_row + 2u, next);
      r3 = w_at(w_row + 3u, next);
    }
    if (fetch_row < 16u) {
      l0 = x_at(x_row, next);
      l1 = x_at(x_row + 1u, next);
      l2 = x_at(x_row + 2u, next);
      l3 = x_at(x_row + 3u, next);
    }
    for (var depth = 0u; depth < 16u; depth++) {
      let a0 = left[depth * 16u + down * 2u];
      let a1 = left[depth * 16u + down * 2u + 1u];
      let b0 = right[depth * ACROSS + across];
      s00 += a0.x * b0;
      s10 += a0.y * b0;
      s20 += a0.z * b0;
      s30 += a0.w * b0;
      s40 += a1.x * b0;
      s50 += a1.y * b0;
      s60 += a1.z * b0;
      s70 += a1.w * b0;
      if (COLUMNS > 64u) {
        let b1 = right[depth * ACROSS + 16u + across];
        s01 += a0.x * b1;
        s11 += a0.y * b1;
        s21 += a0.z * b1;
        s31 += a0.w * b1;
        s41 += a1.x * b1;
        s51 += a1.y * b1;
        s61 += a1.z * b1;
        s71 += a1.w * b1;
      }
    }
  }
  let row = first_row + down * 8u;
  let output = first_output + across * 4u;
  store(row, output, s00);
  store(row + 1u, output, s10);
  store(row + 2u, output, s20);
  store(row + 3u, output, s30);
  store(row + 4u, output, s40);
  store(row + 5u, output, s50);
  store(row + 6u, output, s60);
  store(row + 7u, output, s70);
  if (COLUMNS > 64u) {
    store(row, output + 64u, s01);
    store(row + 1u, output + 64u, s11);
    store(row + 2u, output + 64u, s21);
    store(row + 3u, output + 64u, s31);
    store(row + 4u, output + 64u, s41);
    store(row + 5u, output + 64u, s51);
    store(row + 6u, output + 64u, s61);
    store(row + 7u, output + 64u, s71);
  }
}
