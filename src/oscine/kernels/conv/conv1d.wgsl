// y[r, o] = activation(Σ_k x[r, k] w[o, k] + b[o]) + add[r, o]      many rows r of a convolution
// x is padded already (pad.wgsl), w [OUTPUTS, 4·K4], y and add [R, OUTPUTS]; R is that of
// the binding, OUTPUTS a multiple of 4. Tiles of 64 rows by COLUMNS (64, 96 or 128) outputs, 16 deep,
// an invocation each 8 rows by 4. Launch (ceil(OUTPUTS / COLUMNS), ceil(R / 64), parts of the depth):
// of several parts y is the sums, [parts, R, OUTPUTS], for conv1d_reduce.wgsl.
// use _weights_f32 for WEIGHTS: f32, f16, bf16
// use _conv_epilogue
// use _conv_addressing
const COLUMNS: u32 = 64u;
const OUTPUTS4: u32 = OUTPUTS / 4u;
const ACROSS: u32 = COLUMNS / 4u;
const WORKGROUP: u32 = 2u * COLUMNS;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<Packed>;
@group(0) @binding(2) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> add: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

var<workgroup> left: array<vec4<f32>, 256>;           // [16 deep][64 rows]
var<workgroup> right: array<vec4<f32>, 16u * ACROSS>;  // [16 deep][COLUMNS]

struct End {
  rows: u32,
  parts: u32,
  begin: u32,  // of this part's sums
}

fn store(end: End, row: u32, column: u32, sums: vec4<f32>) {
  if (row >= end.rows || column >= OUTPUTS4) {
    return;
  }
  let at = row * OUTPUTS4 + column;
  if (end.parts > 1u) {
    y[end.begin + at] = sums;
    return;
  }
  y[at] = epilogue(at, column, sums);
}

// Where a row of x begins, or one of the weight.
fn fetched(row: u32, rows: u32, of_x: bool) -> u32 {
  return select(row * K4, row_offset(row, rows), of_x);
}

// Past the depth's end the weight is 0, and x the last of its values.
fn weights_at(row: u32, k4: u32) -> vec4<f32> {
  if (K4 % 4u == 0u || k4 < K4) {
    return unpack(w[row + min(k4, K4 - 1u)]);
  }
  return vec4<f32>();
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) tile: vec3<u32>,
  @builtin(num_workgroups) tiles: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let rows = arrayLength(&y) / (OUTPUTS4 * tiles.z);
  let first_row = tile.y * 64u;
  let first_output = tile.x * COLUMNS;
  let steps = (K4 + 3u) / 4u;
  let first = tile.z * steps / tiles.z * 4u;
  let last = (tile.z + 1u) * steps / tiles.z * 4u;
  // The first COLUMNS invocations fetch weights, the last 64 rows of x: blocks of 4 rows by 4 deep,
  // rotated in registers, stored as rows of depth. The next tile is fetched before this one is used,
  // so that its loads are under way meanwhile.
  let fetches_x = me >= WORKGROUP - 64u;
  let slot = select(me, me - (WORKGROUP - 64u), fetches_x);
  let deep = slot % 4u;
  let block = slot / 4u;
  let limit = select(OUTPUTS, rows, fetches_x) - 1u;
  let begin = select(first_output, first_row, fetches_x) + 4u * block;
  let f0 = fetched(min(begin, limit), rows, fetches_x);
  let f1 = fetched(min(begin + 1u, limit), rows, fetches_x);
  let f2 = fetched(min(begin + 2u, limit), rows, fetches_x);
  let f3 = fetched(min(begin + 3u, limit), rows, fetches_x);
  var r0 = vec4<f32>();
  var r1 = vec4<f32>();
  var r2 = vec4<f32>();
  var r3 = vec4<f32>();
  if (fetches_x) {
    let k = tap_offset(min(first + deep, K4 - 1u));
    r0 = x[f0 + k];
    r1 = x[f1 + k];
    r2 = x[f2 + k];
    r3 = x[f3 + k];
  } else if (me < COLUMNS) {
    let k = first + deep;
    r0 = weights_at(f0, k);
    r1 = weights_at(f1, k);
    r2 = weights_at(f2, k);
    r3 = weights_at(f3, k);
  }
  let across = me % ACROSS;
  let down = me / ACROSS;
  // Names, not an array, so that they stay in registers.
  var s0 = vec4<f32>();
  var s1 = vec4<f32>();
  var s2 = vec4<f32>();
  var s3 = vec4<f32>();
  var s4 = vec4<f32>();
  var s5 = vec4<f32>();
  var s6 = vec4<f32>();
  var s7 = vec4<f32>();
  for (var k4 = first; k4 < last; k4 += 4u) {
    workgroupBarrier();
    if (fetches_x) {
      left[(deep * 4u) * 16u + block] = vec4<f32>(r0.x, r1.x, r2.x, r3.x);
      left[(deep * 4u + 1u) * 16u + block] = vec4<f32>(r0.y, r1.y, r2.y, r3.y);
      left[(deep * 4u + 2u) * 16u + block] = vec4<f32>(r0.z, r1.z, r2.z, r3.z);
      left[(deep * 4u + 3u) * 16u + block] = vec4<f32>(r0.w, r1.w, r2.w, r3.w);
    } else if (me < COLUMNS) {
      right[(deep * 4u) * ACROSS + block] = vec4<f32>(r0.x, r1.x, r2.x, r3.x);
      right[(deep * 4u + 1u) * ACROSS + block] = vec4<f32>(r0.y, r1.y, r2.y, r3.y);
      right[(deep * 4u + 2u) * ACROSS + block] = vec4<f32>(r0.z, r1.z, r2.z, r3.z);
      right[(deep * 4u + 3u) * ACROSS + block] = vec4<f32>(r0.w, r1.w, r2.w, r3.w);
    }
    workgroupBarrier();
    let next = k4 + 4u + deep;
    if (fetches_x) {
      let k = tap_offset(min(next, K4 - 1u));
      r0 = x[f0 + k];
      r1 = x[f1 + k];
      r2 = x[f2 + k];
      r3 = x[f3 + k];
    } else if (me < COLUMNS) {
      r0 = weights_at(f0, next);
      r1 = weights_at(f1, next);
      r2 = weights_at(f2, next);
      r3 = weights_at(f3, next);
    }
    for (var depth = 0u; depth < 16u; depth++) {
      let a0 = left[depth * 16u + down * 2u];
      let a1 = left[depth * 16u + down * 2u + 1u];
      let b = right[depth * ACROSS + across];
      s0 += a0.x * b;
      s1 += a0.y * b;
      s2 += a0.z * b;
      s3 += a0.w * b;
      s4 += a1.x * b;
      s5 += a1.y * b;
      s6 += a1.z * b;
      s7 += a1.w * b;
    }
  }
  let end = End(rows, tiles.z, tile.z * rows * OUTPUTS4);
  let row = first_row + down * 8u;
  let column = first_output / 4u + across;
  store(end, row, column, s0);
  store(end, row + 1u, column, s1);
  store(end, row + 2u, column, s2);
  store(end, row + 3u, column, s3);
  store(end, row + 4u, column, s4);
  store(end, row + 5u, column, s5);
  store(end, row + 6u, column, s6);
  store(end, row + 7u, column, s7);
}
