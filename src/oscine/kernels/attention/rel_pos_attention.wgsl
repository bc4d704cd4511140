// y[i] = softmax_j(((q[i] + u)·k[j] + (q[i] + v)·r[i - j]) / √W) v[j], per sequence and head
// qkv [BATCH·ROWS, 3·D] packed; y [BATCH·ROWS, D]; u, v [D]; D = HEADS·W, W = 4·W4.
// positions [LAST + 1, D]: distance i - j at row CENTRE - (i - j). Keys count that lie among the
// first ceil(frames / PER) rows and from i - BEFORE to i + AFTER; y is 0 past the frames.
// 32 queries a workgroup of 128; 32 keys at a time pass through shared memory with the 63 distances
// that they have to the queries, the softmax kept online as in attention.wgsl. An invocation holds
// queries down + 16·{0, 1}, first against keys across + 8·{0..3}: six rows of distances serve all
// eight scores; then against value columns across + 8·{0..3}.
// Launch (ceil(ROWS / 32), HEADS, BATCH·GROUPS), GROUPS = ceil(W4 / 32) value columns of 32.
// use _neg_inf
const ROWS: u32 = 1u;
const HEADS: u32 = 1u;
const W4: u32 = 16u;
const GROUPS: u32 = 1u;
const SCALE: f32 = 0.125;
const CENTRE: u32 = 0u;
const LAST: u32 = 0u;
const BEFORE: u32 = 1u;
const AFTER: u32 = 1u;
const PER: u32 = 1u;

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> positions: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> bias_u: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> bias_v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> frames: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;

// 64 rows of distances and 32 of keys, 8 vec4s of each at a time; then 32 rows of 16 of values.
const KEYS: u32 = 512u;
var<workgroup> tile: array<vec4<f32>, 768>;
var<workgroup> weights: array<vec4<f32>, 256>;  // [32 queries][8 of 4 keys], scores at first

var<private> BASE: u32;  // first row of this sequence

// Rows of 8 or 16 vec4s start in the same bank; rotating each by its index spreads a column over all.
fn turn8(row: u32, column: u32) -> u32 {
  return row * 8u + (column ^ (row & 7u));
}

fn turn16(row: u32, column: u32) -> u32 {
  return row * 16u + (column ^ (row & 7u));
}

// Part 0 is queries, 1 keys, 2 values.
fn packed_at(row: u32, part: u32, column: u32) -> vec4<f32> {
  return qkv[((BASE + min(row, ROWS - 1u)) * 3u + part) * HEADS * W4 + column];
}

// Vec4s `part` to part + 8 of the keys' rows, and of the rows of their distances.
fn fetch_keys(me: u32, first: u32, key: u32, head: u32, part: u32) {
  let c = me % 8u;
  let inside = part + c < W4;
  for (var row = me / 8u; row < 64u; row += 16u) {
    let place = i32(CENTRE + key + row) - i32(first + 31u);
    var value = vec4<f32>();
    if (inside) {
      value = positions[u32(clamp(place, 0, i32(LAST))) * HEADS * W4 + head + part + c];
    }
    tile[turn8(row, c)] = value;
  }
  for (var row = me / 8u; row < 32u; row += 16u) {
    var value = vec4<f32>();
    if (inside) {
      value = packed_at(key + row, 1u, head + part + c);
    }
    tile[KEYS + turn8(row, c)] = value;
  }
}

fn fetch_values(me: u32, key: u32, head: u32, column: u32) {
  let c = me % 16u;
  for (var row = me / 16u; row < 32u; row += 8u) {
    var value = vec4<f32>();
    if (column + c < W4) {
      value = packed_at(key + row, 2u, head + column + c);
    }
    tile[turn16(row, c)] = value;
  }
}

// use _row_max

// The four scores of a query for keys key + 8·{0..3}, masked outside the band and the length.
fn mask_scores(scores: vec4<f32>, row: u32, key: u32, count: u32) -> vec4<f32> {
  let keys = vec4<u32>(key, key + 8u, key + 16u, key + 24u);
  let near = (keys + BEFORE >= vec4<u32>(row)) & (keys <= vec4<u32>(row + AFTER));
  return select(vec4<f32>(NEG_INF), scores * SCALE, near & (keys < vec4<u32>(count)));
}

fn mix(p: vec4<f32>, a0: vec4<f32>, a1: vec4<f32>, a2: vec4<f32>, a3: vec4<f32>) -> vec4<f32> {
  return p.x * a0 + p.y * a1 + p.z * a2 + p.w * a3;
}

fn finish(row: u32, count: u32, at: u32, column: u32, value: vec4<f32>) {
  if (row < ROWS && column < W4) {
    y[(BASE + row) * HEADS * W4 + at + column] = select(vec4<f32>(), value, row < count);
  }
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let head = workgroup.y * W4;
  let first = workgroup.x * 32u;
  let b = workgroup.z / GROUPS;
  let columns = workgroup.z % GROUPS * 32u;
  BASE = b * ROWS;
  let count = min((frames[b] + PER - 1u) / PER, ROWS);
  let begin = select(0u, (first - BEFORE) / 32u * 32u, first > BEFORE);
  let end = select(0u, min(count, first + 32u + AFTER), first < count);
  let across = me % 8u;
  let down = me / 8u;
  let near = across + 31u - down;  // row of the distance from key across to query down
  var o00 = vec4<f32>();
  var o01 = vec4<f32>();
  var o02 = vec4<f32>();
  var o03 = vec4<f32>();
  var o10 = vec4<f32>();
  var o11 = vec4<f32>();
  var o12 = vec4<f32>();
  var o13 = vec4<f32>();
  var tops = vec2<f32>(NEG_INF);
  var totals = vec2<f32>();
  for (var key = begin; key < end; key += 32u) {
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    for (var part = 0u; part < W4; part += 8u) {
      workgroupBarrier();
      fetch_keys(me, first, key, head, part);
      workgroupBarrier();
      for (var c = 0u; c < min(8u, W4 - part); c++) {
        let q0 = packed_at(first + down, 0u, head + part + c);
        let q1 = packed_at(first + down + 16u, 0u, head + part + c);
        let u = bias_u[head + part + c];
        let v = bias_v[head + part + c];
        let k0 = tile[KEYS + turn8(across, c)];
        let k1 = tile[KEYS + turn8(across + 8u, c)];
        let k2 = tile[KEYS + turn8(across + 16u, c)];
        let k3 = tile[KEYS + turn8(across + 24u, c)];
        let a0 = q0 + u;
        let a1 = q1 + u;
        s0 += vec4<f32>(dot(a0, k0), dot(a0, k1), dot(a0, k2), dot(a0, k3));
        s1 += vec4<f32>(dot(a1, k0), dot(a1, k1), dot(a1, k2), dot(a1, k3));
        let r0 = tile[turn8(near - 16u, c)];
        let r1 = tile[turn8(near - 8u, c)];
        let r2 = tile[turn8(near, c)];
        let r3 = tile[turn8(near + 8u, c)];
        let r4 = tile[turn8(near + 16u, c)];
        let r5 = tile[turn8(near + 24u, c)];
        let b0 = q0 + v;
        let b1 = q1 + v;
        s0 += vec4<f32>(dot(b0, r2), dot(b0, r3), dot(b0, r4), dot(b0, r5));
        s1 += vec4<f32>(dot(b1, r0), dot(b1, r1), dot(b1, r2), dot(b1, r3));
      }
    }
    s0 = mask_scores(s0, first + down, key + across, count);
    s1 = mask_scores(s1, first + down + 16u, key + across, count);
    // Four keys eight apart share a vec4: the values are taken in the same order.
    weights[down * 8u + across] = s0;
    weights[(down + 16u) * 8u + across] = s1;
    workgroupBarrier();
    fetch_values(me, key, head, columns);
    let higher = max(tops, vec2<f32>(row_max(down), row_max(down + 16u)));
    let fade = exp(tops - higher);
    tops = higher;
    workgroupBarrier();
    weights[down * 8u + across] = exp(s0 - tops.x);
    weights[(down + 16u) * 8u + across] = exp(s1 - tops.y);
    totals *= fade;
    o00 *= fade.x;
    o01 *= fade.x;
    o02 *= fade.x;
    o03 *= fade.x;
    o10 *= fade.y;
    o11 *= fade.y;
    o12 *= fade.y;
    o13 *= fade.y;
    workgroupBarrier();
    for (var j = 0u; j < 8u; j++) {
      let p0 = weights[down * 8u + j];
      let p1 = weights[(down + 16u) * 8u + j];
      totals += vec2<f32>(dot(p0, vec4<f32>(1.0)), dot(p1, vec4<f32>(1.0)));
      var a0 = tile[turn16(j, across)];
      var a1 = tile[turn16(j + 8u, across)];
      var a2 = tile[turn16(j + 16u, across)];
      var a3 = tile[turn16(j + 24u, across)];
      o00 += mix(p0, a0, a1, a2, a3);
      o10 += mix(p1, a0, a1, a2, a3);
      a0 = tile[turn16(j, across + 8u)];
      a1 = tile[turn16(j + 8u, across + 8u)];
      a2 = tile[turn16(j + 16u, across + 8u)];
      a3 = tile[turn16(j + 24u, across + 8u)];
      o01 += mix(p0, a0, a1, a2, a3);
      o11 += mix(p1, a0, a1, a2, a3);
    }
    if (W4 > 16u) {
      workgroupBarrier();
      fetch_values(me, key, head, columns + 16u);
      workgroupBarrier();
      for (var j = 0u; j < 8u; j++) {
        let p0 = weights[down * 8u + j];
        let p1 = weights[(down + 16u) * 8u + j];
        var a0 = tile[turn16(j, across)];
        var a1 = tile[turn16(j + 8u, across)];
        var a2 = tile[turn16(j + 16u, across)];
        var a3 = tile[turn16(j + 24u, across)];
        o02 += mix(p0, a0, a1, a2, a3);
        o12 += mix(p1, a0, a1, a2, a3);
        a0 = tile[turn16(j, across + 8u)];
        a1 = tile[turn16(j + 8u, across + 8u)];
        a2 = tile[turn16(j + 16u, across + 8u)];
        a3 = tile[turn16(j + 24u, across + 8u)];
        o03 += mix(p0, a0, a1, a2, a3);
        o13 += mix(p1, a0, a1, a2, a3);
      }
    }
  }
  let row = first + down;
  finish(row, count, head, columns + across, o00 / totals.x);
  finish(row, count, head, columns + across + 8u, o01 / totals.x);
  finish(row, count, head, columns + across + 16u, o02 / totals.x);
  finish(row, count, head, columns + across + 24u, o03 / totals.x);
  finish(row + 16u, count, head, columns + across, o10 / totals.y);
  finish(row + 16u, count, head, columns + across + 8u, o11 / totals.y);
  finish(row + 16u, count, head, columns + across + 16u, o12 / totals.y);
  finish(row + 16u, count, head, columns + across + 24u, o13 / totals.y);
}
