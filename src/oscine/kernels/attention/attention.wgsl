// y[s] = softmax(q[s] kᵀ / √W) v, unmasked, per head and window      N windows of ROWS rows:
// qkv [N·ROWS, 3·D] packed, y [N·ROWS, D]. D = HEADS·W, W = 4·W4. 64 queries a workgroup of 128; 32 keys at a time pass through shared
// memory, with the softmax kept online (Milakov & Gimelshein 2018; Dao 2023, arXiv:2307.08691).
// An invocation holds queries down + 16·{0..3}, first against keys across + 8·{0..3}, then
// against value columns across + 8·{0, 1}; names, not arrays, so that all stay in registers.
// Launch (ceil(ROWS / 64), HEADS, N · GROUPS): a group takes 64 of a wider head's value columns.
// use _neg_inf
const ROWS: u32 = 1u;
const HEADS: u32 = 1u;
const W4: u32 = 16u;
const SCALE: f32 = 0.125;
const GROUPS: u32 = (W4 + 15u) / 16u;

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;

var<workgroup> tile: array<vec4<f32>, 512>;     // [32 keys][16 of their vec4s], rotated: see swizzle()
var<workgroup> weights: array<vec4<f32>, 512>;  // [64 queries][8 of 4 keys], scores at first

// Rows of 16 vec4s start in the same bank; rotating each by its index spreads a column over all.
fn swizzle(row: u32, column: u32) -> u32 {
  return row * 16u + (column ^ (row & 7u));
}

// The tile's 32 rows of keys (part 1) or values (part 2): 16 vec4s from `column` on.
fn fetch(me: u32, key: u32, part: u32, head: u32, column: u32) {
  let row = me / 16u;
  let c = me % 16u;
  for (var i = 0u; i < 32u; i += 8u) {
    let at = min(key + row + i, ROWS - 1u) * 3u * HEADS * W4 + part * HEADS * W4 + head;
    var value = vec4<f32>();
    if (column + c < W4) {
      value = qkv[at + column + c];
    }
    tile[swizzle(row + i, c)] = value;
  }
}

fn query(row: u32, head: u32, column: u32) -> vec4<f32> {
  return qkv[min(row, ROWS - 1u) * 3u * HEADS * W4 + head + column];
}

// use _row_max

// The four scores of a row for keys key + 8·{0..3}, masked past the last key.
fn mask_scores(scores: vec4<f32>, key: u32) -> vec4<f32> {
  let keys = vec4<u32>(key, key + 8u, key + 16u, key + 24u);
  return select(vec4<f32>(NEG_INF), scores * SCALE, keys < vec4<u32>(ROWS));
}

fn finish(row: u32, at: u32, column: u32, value: vec4<f32>) {
  if (row < ROWS && column < W4) {
    y[row * HEADS * W4 + at + column] = value;
  }
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let window = workgroup.z / GROUPS * ROWS * HEADS * W4;  // where it begins in y
  let head = 3u * window + workgroup.y * W4;              // where this head begins in qkv
  let to = window + workgroup.y * W4;
  let first = workgroup.x * 64u;
  let columns = workgroup.z % GROUPS * 16u;
  let across = me % 8u;
  let down = me / 8u;
  var o00 = vec4<f32>();
  var o01 = vec4<f32>();
  var o10 = vec4<f32>();
  var o11 = vec4<f32>();
  var o20 = vec4<f32>();
  var o21 = vec4<f32>();
  var o30 = vec4<f32>();
  var o31 = vec4<f32>();
  var tops = vec4<f32>(NEG_INF);
  var totals = vec4<f32>();
  for (var key = 0u; key < ROWS; key += 32u) {
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    for (var part = 0u; part < W4; part += 16u) {
      workgroupBarrier();
      fetch(me, key, 1u, head, part);
      workgroupBarrier();
      for (var c = 0u; c < min(16u, W4 - part); c++) {
        let k0 = tile[swizzle(across, c)];
        let k1 = tile[swizzle(across + 8u, c)];
        let k2 = tile[swizzle(across + 16u, c)];
        let k3 = tile[swizzle(across + 24u, c)];
        let q0 = query(first + down, head, part + c);
        s0 += vec4<f32>(dot(q0, k0), dot(q0, k1), dot(q0, k2), dot(q0, k3));
        let q1 = query(first + down + 16u, head, part + c);
        s1 += vec4<f32>(dot(q1, k0), dot(q1, k1), dot(q1, k2), dot(q1, k3));
        let q2 = query(first + down + 32u, head, part + c);
        s2 += vec4<f32>(dot(q2, k0), dot(q2, k1), dot(q2, k2), dot(q2, k3));
        let q3 = query(first + down + 48u, head, part + c);
        s3 += vec4<f32>(dot(q3, k0), dot(q3, k1), dot(q3, k2), dot(q3, k3));
      }
    }
    s0 = mask_scores(s0, key + across);
    s1 = mask_scores(s1, key + across);
    s2 = mask_scores(s2, key + across);
    s3 = mask_scores(s3, key + across);
    // Four keys eight apart share a vec4: the values are taken in the same order.
    weights[down * 8u + across] = s0;
    weights[(down + 16u) * 8u + across] = s1;
    weights[(down + 32u) * 8u + across] = s2;
    weights[(down + 48u) * 8u + across] = s3;
    workgroupBarrier();
    fetch(me, key, 2u, head, columns);
    let highs = vec4<f32>(
      row_max(down), row_max(down + 16u), row_max(down + 32u), row_max(down + 48u)
    );
    let higher = max(tops, highs);
    let fade = exp(tops - higher);
    tops = higher;
    workgroupBarrier();
    weights[down * 8u + across] = exp(s0 - tops.x);
    weights[(down + 16u) * 8u + across] = exp(s1 - tops.y);
    weights[(down + 32u) * 8u + across] = exp(s2 - tops.z);
    weights[(down + 48u) * 8u + across] = exp(s3 - tops.w);
    totals *= fade;
    o00 *= fade.x;
    o01 *= fade.x;
    o10 *= fade.y;
    o11 *= fade.y;
    o20 *= fade.z;
    o21 *= fade.z;
    o30 *= fade.w;
    o31 *= fade.w;
    workgroupBarrier();
    for (var j = 0u; j < 8u; j++) {
      let p0 = weights[down * 8u + j];
      let p1 = weights[(down + 16u) * 8u + j];
      let p2 = weights[(down + 32u) * 8u + j];
      let p3 = weights[(down + 48u) * 8u + j];
      totals += vec4<f32>(
        dot(p0, vec4<f32>(1.0)),
        dot(p1, vec4<f32>(1.0)),
        dot(p2, vec4<f32>(1.0)),
        dot(p3, vec4<f32>(1.0)),
      );
      var a = tile[swizzle(j, across)];
      var b = tile[swizzle(j, across + 8u)];
      o00 += p0.x * a;
      o01 += p0.x * b;
      o10 += p1.x * a;
      o11 += p1.x * b;
      o20 += p2.x * a;
      o21 += p2.x * b;
      o30 += p3.x * a;
      o31 += p3.x * b;
      a = tile[swizzle(j + 8u, across)];
      b = tile[swizzle(j + 8u, across + 8u)];
      o00 += p0.y * a;
      o01 += p0.y * b;
      o10 += p1.y * a;
      o11 += p1.y * b;
      o20 += p2.y * a;
      o21 += p2.y * b;
      o30 += p3.y * a;
      o31 += p3.y * b;
      a = tile[swizzle(j + 16u, across)];
      b = tile[swizzle(j + 16u, across + 8u)];
      o00 += p0.z * a;
      o01 += p0.z * b;
      o10 += p1.z * a;
      o11 += p1.z * b;
      o20 += p2.z * a;
      o21 += p2.z * b;
      o30 += p3.z * a;
      o31 += p3.z * b;
      a = tile[swizzle(j + 24u, across)];
      b = tile[swizzle(j + 24u, across + 8u)];
      o00 += p0.w * a;
      o01 += p0.w * b;
      o10 += p1.w * a;
      o11 += p1.w * b;
      o20 += p2.w * a;
      o21 += p2.w * b;
      o30 += p3.w * a;
      o31 += p3.w * b;
    }
  }
  finish(first + down, to, columns + across, o00 / totals.x);
  finish(first + down, to, columns + across + 8u, o01 / totals.x);
  finish(first + down + 16u, to, columns + across, o10 / totals.y);
  finish(first + down + 16u, to, columns + across + 8u, o11 / totals.y);
  finish(first + down + 32u, to, columns + across, o20 / totals.z);
  finish(first + down + 32u, to, columns + across + 8u, o21 / totals.z);
  finish(first + down + 48u, to, columns + across, o30 / totals.w);
  finish(first + down + 48u, to, columns + across + 8u, o31 / totals.w);
}
