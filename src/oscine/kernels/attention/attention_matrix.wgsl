// y[s] = softmax(q[s] kᵀ / √W) v, unmasked, per head and window, on matrix units; as attention.wgsl
// N windows of ROWS rows: qkv in float16, packed [N·ROWS, 3·D]; y [N·ROWS, D] in float32. W = 8·W8,
// a multiple of 16 up to 64. 64 queries a workgroup of four subgroups of 32 lanes, 16
// each; 64 keys at a time. Factors are float16, products and sums float32, weights e^(score - top).
// What matrix units hold cannot be scaled row by row, so `top` stays behind the highest score by
// up to SLACK, and only then are the sums taken out and scaled (Shah 2024, arXiv:2407.08608, has
// exact tops; e^SLACK is far below float16's 65504).
// Launch (ceil(ROWS / 64), HEADS, N).
// use _neg_inf
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, subgroup_uniformity);
diagnostic(off, chromium.subgroup_matrix_uniformity);
const ROWS: u32 = 1u;
const HEADS: u32 = 1u;
const W8: u32 = 8u;
const SCALE: f32 = 0.125;

const SLACK: f32 = 6.0;
const PITCH: u32 = 9u;        // of 64 float16, in eights
const SUMS_PITCH: u32 = 17u;  // of 64 float32, in vec4s
const V_FIRST: u32 = 64u * PITCH;
const SUMS_FIRST: u32 = 128u * PITCH;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

@group(0) @binding(0) var<storage, read> qkv: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;

// 64 keys, at first queries; 64 values; then each subgroup's sums [16][64], or weights [16][64].
var<workgroup> tile: array<vec4<u32>, 128u * PITCH + 64u * SUMS_PITCH>;
var<workgroup> behind: u32;

fn halves(values: vec4<f32>) -> vec2<u32> {
  let safe = clamp(values, vec4<f32>(-65504.0), vec4<f32>(65504.0));
  return vec2<u32>(pack2x16float(safe.xy), pack2x16float(safe.zw));
}

// Eight numbers of a query (part 0), key (1) or value (2).
fn eight(row: u32, part: u32, head: u32, column: u32) -> vec4<u32> {
  let at = (min(row, ROWS - 1u) * 3u + part) * HEADS + head;
  return qkv[at * W8 + min(column, W8 - 1u)];
}

// Four scores, masked past the last key.
fn scores(at: u32, key: u32) -> vec4<f32> {
  let keys = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
  return select(vec4<f32>(NEG_INF), SCALE * bitcast<vec4<f32>>(tile[at]), keys < vec4<u32>(ROWS));
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let window = workgroup.z * ROWS * HEADS;    // where it begins in y, in heads of a row
  let head = 3u * window + workgroup.y;       // where this head begins in qkv
  let first = workgroup.x * 64u;
  let group = me / 32u;
  let row = me % 32u / 2u;  // two lanes a query: each takes every other eight of its numbers
  let half = me % 2u;
  let offset = SUMS_FIRST + group * 16u * SUMS_PITCH;
  let mine = offset + row * SUMS_PITCH + half * 2u;
  let line = me / 8u;  // that this invocation brings, of each 16
  let column = me % 8u;
  let to_k = line * PITCH + column;
  let to_v = V_FIRST + to_k;
  tile[to_k] = eight(first + line, 0u, head, column);
  tile[to_k + 16u * PITCH] = eight(first + line + 16u, 0u, head, column);
  tile[to_k + 32u * PITCH] = eight(first + line + 32u, 0u, head, column);
  tile[to_k + 48u * PITCH] = eight(first + line + 48u, 0u, head, column);
  workgroupBarrier();
  let query = group * 16u * PITCH;
  let q0 = subgroupMatrixLoad<Left, row_major>(&tile, query, PITCH);
  let q1 = subgroupMatrixLoad<Left, row_major>(&tile, query + 2u, PITCH);
  let q2 = subgroupMatrixLoad<Left, row_major>(&tile, query + 4u, PITCH);
  let q3 = subgroupMatrixLoad<Left, row_major>(&tile, query + 6u, PITCH);
  // Names, not arrays or structures, so that all stay in registers.
  var o0 = Sums();
  var o1 = Sums();
  var o2 = Sums();
  var o3 = Sums();
  var top = NEG_INF;
  var total = 0.0;
  // The next keys and values are fetched while these are used.
  var next_k0 = eight(line, 1u, head, column);
  var next_k1 = eight(line + 16u, 1u, head, column);
  var next_k2 = eight(line + 32u, 1u, head, column);
  var next_k3 = eight(line + 48u, 1u, head, column);
  var next_v0 = eight(line, 2u, head, column);
  var next_v1 = eight(line + 16u, 2u, head, column);
  var next_v2 = eight(line + 32u, 2u, head, column);
  var next_v3 = eight(line + 48u, 2u, head, column);
  for (var key = 0u; key < ROWS; key += 64u) {
    workgroupBarrier();
    tile[to_k] = next_k0;
    tile[to_k + 16u * PITCH] = next_k1;
    tile[to_k + 32u * PITCH] = next_k2;
    tile[to_k + 48u * PITCH] = next_k3;
    tile[to_v] = next_v0;
    tile[to_v + 16u * PITCH] = next_v1;
    tile[to_v + 32u * PITCH] = next_v2;
    tile[to_v + 48u * PITCH] = next_v3;
    if (me == 0u) {
      behind = 0u;
    }
    workgroupBarrier();
    next_k0 = eight(key + 64u + line, 1u, head, column);
    next_k1 = eight(key + 64u + line + 16u, 1u, head, column);
    next_k2 = eight(key + 64u + line + 32u, 1u, head, column);
    next_k3 = eight(key + 64u + line + 48u, 1u, head, column);
    next_v0 = eight(key + 64u + line, 2u, head, column);
    next_v1 = eight(key + 64u + line + 16u, 2u, head, column);
    next_v2 = eight(key + 64u + line + 32u, 2u, head, column);
    next_v3 = eight(key + 64u + line + 48u, 2u, head, column);
    var p0 = Sums();
    var p1 = Sums();
    var p2 = Sums();
    var p3 = Sums();
    let k0 = subgroupMatrixLoad<Right, col_major>(&tile, 0u, PITCH);
    p0 = subgroupMatrixMultiplyAccumulate(q0, k0, p0);
    let k1 = subgroupMatrixLoad<Right, col_major>(&tile, 16u * PITCH, PITCH);
    p1 = subgroupMatrixMultiplyAccumulate(q0, k1, p1);
    let k2 = subgroupMatrixLoad<Right, col_major>(&tile, 32u * PITCH, PITCH);
    p2 = subgroupMatrixMultiplyAccumulate(q0, k2, p2);
    let k3 = subgroupMatrixLoad<Right, col_major>(&tile, 48u * PITCH, PITCH);
    p3 = subgroupMatrixMultiplyAccumulate(q0, k3, p3);
    if (W8 > 2u) {
      let k0 = subgroupMatrixLoad<Right, col_major>(&tile, 2u, PITCH);
      p0 = subgroupMatrixMultiplyAccumulate(q1, k0, p0);
      let k1 = subgroupMatrixLoad<Right, col_major>(&tile, 16u * PITCH + 2u, PITCH);
      p1 = subgroupMatrixMultiplyAccumulate(q1, k1, p1);
      let k2 = subgroupMatrixLoad<Right, col_major>(&tile, 32u * PITCH + 2u, PITCH);
      p2 = subgroupMatrixMultiplyAccumulate(q1, k2, p2);
      let k3 = subgroupMatrixLoad<Right, col_major>(&tile, 48u * PITCH + 2u, PITCH);
      p3 = subgroupMatrixMultiplyAccumulate(q1, k3, p3);
    }
    if (W8 > 4u) {
      let k0 = subgroupMatrixLoad<Right, col_major>(&tile, 4u, PITCH);
      p0 = subgroupMatrixMultiplyAccumulate(q2, k0, p0);
      let k1 = subgroupMatrixLoad<Right, col_major>(&tile, 16u * PITCH + 4u, PITCH);
      p1 = subgroupMatrixMultiplyAccumulate(q2, k1, p1);
      let k2 = subgroupMatrixLoad<Right, col_major>(&tile, 32u * PITCH + 4u, PITCH);
      p2 = subgroupMatrixMultiplyAccumulate(q2, k2, p2);
      let k3 = subgroupMatrixLoad<Right, col_major>(&tile, 48u * PITCH + 4u, PITCH);
      p3 = subgroupMatrixMultiplyAccumulate(q2, k3, p3);
    }
    if (W8 > 6u) {
      let k0 = subgroupMatrixLoad<Right, col_major>(&tile, 6u, PITCH);
      p0 = subgroupMatrixMultiplyAccumulate(q3, k0, p0);
      let k1 = subgroupMatrixLoad<Right, col_major>(&tile, 16u * PITCH + 6u, PITCH);
      p1 = subgroupMatrixMultiplyAccumulate(q3, k1, p1);
      let k2 = subgroupMatrixLoad<Right, col_major>(&tile, 32u * PITCH + 6u, PITCH);
      p2 = subgroupMatrixMultiplyAccumulate(q3, k2, p2);
      let k3 = subgroupMatrixLoad<Right, col_major>(&tile, 48u * PITCH + 6u, PITCH);
      p3 = subgroupMatrixMultiplyAccumulate(q3, k3, p3);
    }
    subgroupMatrixStore<row_major>(&tile, offset, p0, SUMS_PITCH);
    subgroupMatrixStore<row_major>(&tile, offset + 4u, p1, SUMS_PITCH);
    subgroupMatrixStore<row_major>(&tile, offset + 8u, p2, SUMS_PITCH);
    subgroupMatrixStore<row_major>(&tile, offset + 12u, p3, SUMS_PITCH);
    workgroupBarrier();
    let at = key + half * 8u;
    var s0 = scores(mine, at);
    var s1 = scores(mine + 1u, at + 4u);
    var s2 = scores(mine + 4u, at + 16u);
    var s3 = scores(mine + 5u, at + 20u);
    var s4 = scores(mine + 8u, at + 32u);
    var s5 = scores(mine + 9u, at + 36u);
    var s6 = scores(mine + 12u, at + 48u);
    var s7 = scores(mine + 13u, at + 52u);
    let most = max(max(max(s0, s1), max(s2, s3)), max(max(s4, s5), max(s6, s7)));
    var high = max(max(most.x, most.y), max(most.z, most.w));
    high = max(high, subgroupShuffleXor(high, 1u));
    if (high > top + SLACK) {
      behind = 1u;
    }
    if (workgroupUniformLoad(&behind) != 0u) {
      let higher = max(top, high);
      let fade = exp(top - higher);
      top = higher;
      total *= fade;
      subgroupMatrixStore<row_major>(&tile, offset, o0, SUMS_PITCH);
      subgroupMatrixStore<row_major>(&tile, offset + 4u, o1, SUMS_PITCH);
      subgroupMatrixStore<row_major>(&tile, offset + 8u, o2, SUMS_PITCH);
      subgroupMatrixStore<row_major>(&tile, offset + 12u, o3, SUMS_PITCH);
      workgroupBarrier();
      for (var c = 0u; c < 16u; c += 4u) {
        tile[mine + c] = bitcast<vec4<u32>>(fade * bitcast<vec4<f32>>(tile[mine + c]));
        tile[mine + c + 1u] = bitcast<vec4<u32>>(fade * bitcast<vec4<f32>>(tile[mine + c + 1u]));
      }
      workgroupBarrier();
      o0 = subgroupMatrixLoad<Sums, row_major>(&tile, offset, SUMS_PITCH);
      o1 = subgroupMatrixLoad<Sums, row_major>(&tile, offset + 4u, SUMS_PITCH);
      o2 = subgroupMatrixLoad<Sums, row_major>(&tile, offset + 8u, SUMS_PITCH);
      o3 = subgroupMatrixLoad<Sums, row_major>(&tile, offset + 12u, SUMS_PITCH);
      workgroupBarrier();
    }
    s0 = exp(s0 - top);
    s1 = exp(s1 - top);
    s2 = exp(s2 - top);
    s3 = exp(s3 - top);
    s4 = exp(s4 - top);
    s5 = exp(s5 - top);
    s6 = exp(s6 - top);
    s7 = exp(s7 - top);
    total += dot(((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)), vec4<f32>(1.0));
    let to = offset + row * PITCH + half;
    tile[to] = vec4<u32>(halves(s0), halves(s1));
    tile[to + 2u] = vec4<u32>(halves(s2), halves(s3));
    tile[to + 4u] = vec4<u32>(halves(s4), halves(s5));
    tile[to + 6u] = vec4<u32>(halves(s6), halves(s7));
    workgroupBarrier();
    for (var step = 0u; step < 4u; step++) {
      let values = V_FIRST + step * 16u * PITCH;
      let left = subgroupMatrixLoad<Left, row_major>(&tile, offset + 2u * step, PITCH);
      let v0 = subgroupMatrixLoad<Right, row_major>(&tile, values, PITCH);
      o0 = subgroupMatrixMultiplyAccumulate(left, v0, o0);
      if (W8 > 2u) {
        let v1 = subgroupMatrixLoad<Right, row_major>(&tile, values + 2u, PITCH);
        o1 = subgroupMatrixMultiplyAccumulate(left, v1, o1);
      }
      if (W8 > 4u) {
        let v2 = subgroupMatrixLoad<Right, row_major>(&tile, values + 4u, PITCH);
        o2 = subgroupMatrixMultiplyAccumulate(left, v2, o2);
      }
      if (W8 > 6u) {
        let v3 = subgroupMatrixLoad<Right, row_major>(&tile, values + 6u, PITCH);
        o3 = subgroupMatrixMultiplyAccumulate(left, v3, o3);
      }
    }
  }
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile, offset, o0, SUMS_PITCH);
  subgroupMatrixStore<row_major>(&tile, offset + 4u, o1, SUMS_PITCH);
  subgroupMatrixStore<row_major>(&tile, offset + 8u, o2, SUMS_PITCH);
  subgroupMatrixStore<row_major>(&tile, offset + 12u, o3, SUMS_PITCH);
  workgroupBarrier();
  total += subgroupShuffleXor(total, 1u);
  if (first + group * 16u + row < ROWS) {
    let at = window + (first + group * 16u + row) * HEADS + workgroup.y;
    let to = at * 2u * W8 + half * 2u;
    for (var c = 0u; c < 2u * W8; c += 4u) {
      y[to + c] = bitcast<vec4<f32>>(tile[mine + c]) / total;
      y[to + c + 1u] = bitcast<vec4<f32>>(tile[mine + c + 1u]) / total;
    }
  }
}
