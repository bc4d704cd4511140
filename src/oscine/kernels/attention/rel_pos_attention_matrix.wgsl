// y[i] = softmax_j(((q[i] + u)·k[j] + (q[i] + v)·r[i - j]) / √W) v[j], per sequence and head, on
// matrix units; as rel_pos_attention.wgsl
// qkv in float16, packed [N·ROWS, 3·D]; y [N·ROWS, D]; u, v [D]; D = HEADS·W, W = 8·W8: 64 or 128.
// positions in float16: distance i - j at row ORIGIN - (i - j), with rows from all queries to all
// keys of their workgroups (pad_positions.wgsl). Keys count that lie among the first
// ceil(frames / PER) rows and from i - BEFORE to i + AFTER; y is 0 past the frames.
// A subgroup of 32 lanes has 16 queries, two lanes the softmax of one; SUBGROUPS subgroups, 2 or 4,
// are a workgroup and share 32 keys and their values at a time. A query's scores of 48 distances
// serve it from the one at 15 minus its row on.
// Launch (ceil(ROWS / (16·SUBGROUPS)), HEADS, N).
// use _store_f32 for STORE: f32, f16
// use _attention_matrix
const ROWS: u32 = 1u;
const HEADS: u32 = 1u;
const W8: u32 = 16u;
const SCALE: f32 = 0.125;
const SUBGROUPS: u32 = 4u;
const ORIGIN: u32 = 64u;
const BEFORE: u32 = 1u;
const AFTER: u32 = 1u;
const PER: u32 = 1u;

const QUERIES: u32 = 16u * SUBGROUPS;
const PITCH: u32 = 17u;      // of 128 float16, in eights: an odd one uses all banks
const ROW_PITCH: u32 = 17u;  // of 32 float32 and 32 float16, and of 128 float16, in vec4s
const BAND_PITCH: u32 = 52u;  // of scores of 48 distances
const V_FIRST: u32 = 32u * PITCH;
const STEP: u32 = 2u * SUBGROUPS;  // lines that a workgroup fetches at once

@group(0) @binding(0) var<storage, read> qkv: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> positions: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> bias_u: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> bias_v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> frames: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<Stored>;

var<workgroup> tile: array<vec4<u32>, 64u * PITCH>;
var<workgroup> rows: array<vec4<u32>, QUERIES * ROW_PITCH>;
var<workgroup> band: array<f32, QUERIES * BAND_PITCH>;

// use _rel_pos_matrix_16x16x16 for MATRIX: 16x16x16, smaller
// Eight numbers of a query and a bias, no further than float16 reaches.
fn biased(query: vec4<u32>, a: vec4<f32>, b: vec4<f32>) -> vec4<u32> {
  let limit = vec4<f32>(65504.0);
  let low = a + vec4<f32>(unpack2x16float(query.x), unpack2x16float(query.y));
  let high = b + vec4<f32>(unpack2x16float(query.z), unpack2x16float(query.w));
  return halves(clamp(low, -limit, limit), clamp(high, -limit, limit));
}

fn banded(scores: vec4<f32>, at: u32) -> vec4<f32> {
  return scores + vec4<f32>(band[at], band[at + 1u], band[at + 2u], band[at + 3u]);
}

// Four scores, masked outside the band and the length.
fn masked(scores: vec4<f32>, query: u32, key: u32, count: u32) -> vec4<f32> {
  let at = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
  let near = (at + BEFORE >= vec4<u32>(query)) & (at <= vec4<u32>(query + AFTER));
  return select(vec4<f32>(NEG_INF), scores, near & (at < vec4<u32>(count)));
}

// Sums of 16 columns of the values, scaled query by query.
fn faded(sums: Sums, region: u32, mine: u32, fade: f32) -> Sums {
  put(region, sums);
  workgroupBarrier();
  rows[mine] = bitcast<vec4<u32>>(fade * floats(mine));
  rows[mine + 1u] = bitcast<vec4<u32>>(fade * floats(mine + 1u));
  workgroupBarrier();
  let scaled = taken(region);
  workgroupBarrier();
  return scaled;
}

// Write 16 columns of the result; a lane writes eight.
fn finish(sums: Sums, region: u32, mine: u32, query: u32, to: u32, inverse: f32) {
  workgroupBarrier();
  put(region, sums);
  workgroupBarrier();
  if (query < ROWS) {
    y[to] = stored(inverse * floats(mine));
    y[to + 1u] = stored(inverse * floats(mine + 1u));
  }
}

@compute @workgroup_size(32u * SUBGROUPS)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let sequence = workgroup.z * ROWS * HEADS;  // where it begins in y, in heads of a row
  let head = 3u * sequence + workgroup.y;     // where this head begins in qkv
  let first = workgroup.x * QUERIES;
  let group = me / 32u;
  let lane = me % 32u;
  let group_first = first + 16u * group;
  let region = group * 16u * ROW_PITCH;
  let line = me / 16u;  // of 16 columns of eight numbers
  let column = me % 16u;
  let bias = (workgroup.y * W8 + min(column, W8 - 1u)) * 2u;
  for (var row = lane / 16u; row < 16u; row += 2u) {
    let query = eight(group_first + row, 0u, head, column);
    rows[region + row * ROW_PITCH + column] = biased(query, bias_u[bias], bias_u[bias + 1u]);
  }
  workgroupBarrier();
  // Names, not arrays or structures, so that all stay in registers.
  let q0 = left(region);
  let q1 = left(region + 2u);
  let q2 = left(region + 4u);
  let q3 = left(region + 6u);
  let q4 = left(region + 8u);
  let q5 = left(region + 10u);
  let q6 = left(region + 12u);
  let q7 = left(region + 14u);
  workgroupBarrier();
  for (var row = lane / 16u; row < 16u; row += 2u) {
    let query = eight(group_first + row, 0u, head, column);
    rows[region + row * ROW_PITCH + column] = biased(query, bias_v[bias], bias_v[bias + 1u]);
  }
  workgroupBarrier();
  let r0 = left(region);
  let r1 = left(region + 2u);
  let r2 = left(region + 4u);
  let r3 = left(region + 6u);
  let r4 = left(region + 8u);
  let r5 = left(region + 10u);
  let r6 = left(region + 12u);
  let r7 = left(region + 14u);
  var o0 = Sums();
  var o1 = Sums();
  var o2 = Sums();
  var o3 = Sums();
  var o4 = Sums();
  var o5 = Sums();
  var o6 = Sums();
  var o7 = Sums();
  var top = LOWEST;
  var total = 0.0;
  let row = lane / 2u;  // two lanes a query: each takes 16 of its 32 scores
  let half = lane % 2u;
  let query = group_first + row;
  let mine = region + row * ROW_PITCH + half * 4u;       // its scores
  let sums = region + row * ROW_PITCH + half * 2u;       // its half of 16 columns of sums
  let shift = (group * 16u + row) * BAND_PITCH + 15u - row + half * 16u;
  let count = min((frames[workgroup.z] + PER - 1u) / PER, ROWS);
  let begin = select(0u, (first - BEFORE) / 32u * 32u, first > BEFORE);
  let end = select(0u, min(count, first + QUERIES + AFTER), first < count);
  // The next keys and values are fetched while these are used.
  let to = line * PITCH + column;
  var next_k0 = eight(begin + line, 1u, head, column);
  var next_v0 = eight(begin + line, 2u, head, column);
  var next_k1 = eight(begin + line + STEP, 1u, head, column);
  var next_v1 = eight(begin + line + STEP, 2u, head, column);
  var next_k2 = eight(begin + line + 2u * STEP, 1u, head, column);
  var next_v2 = eight(begin + line + 2u * STEP, 2u, head, column);
  var next_k3 = eight(begin + line + 3u * STEP, 1u, head, column);
  var next_v3 = eight(begin + line + 3u * STEP, 2u, head, column);
  var next_k4 = vec4<u32>();
  var next_v4 = vec4<u32>();
  var next_k5 = vec4<u32>();
  var next_v5 = vec4<u32>();
  var next_k6 = vec4<u32>();
  var next_v6 = vec4<u32>();
  var next_k7 = vec4<u32>();
  var next_v7 = vec4<u32>();
  if (SUBGROUPS < 4u) {
    next_k4 = eight(begin + line + 4u * STEP, 1u, head, column);
    next_v4 = eight(begin + line + 4u * STEP, 2u, head, column);
    next_k5 = eight(begin + line + 5u * STEP, 1u, head, column);
    next_v5 = eight(begin + line + 5u * STEP, 2u, head, column);
    next_k6 = eight(begin + line + 6u * STEP, 1u, head, column);
    next_v6 = eight(begin + line + 6u * STEP, 2u, head, column);
    next_k7 = eight(begin + line + 7u * STEP, 1u, head, column);
    next_v7 = eight(begin + line + 7u * STEP, 2u, head, column);
  }
  for (var key = begin; key < end; key += 32u) {
    workgroupBarrier();
    tile[to] = next_k0;
    tile[V_FIRST + to] = next_v0;
    tile[to + STEP * PITCH] = next_k1;
    tile[V_FIRST + to + STEP * PITCH] = next_v1;
    tile[to + 2u * STEP * PITCH] = next_k2;
    tile[V_FIRST + to + 2u * STEP * PITCH] = next_v2;
    tile[to + 3u * STEP * PITCH] = next_k3;
    tile[V_FIRST + to + 3u * STEP * PITCH] = next_v3;
    if (SUBGROUPS < 4u) {
      tile[to + 4u * STEP * PITCH] = next_k4;
      tile[V_FIRST + to + 4u * STEP * PITCH] = next_v4;
      tile[to + 5u * STEP * PITCH] = next_k5;
      tile[V_FIRST + to + 5u * STEP * PITCH] = next_v5;
      tile[to + 6u * STEP * PITCH] = next_k6;
      tile[V_FIRST + to + 6u * STEP * PITCH] = next_v6;
      tile[to + 7u * STEP * PITCH] = next_k7;
      tile[V_FIRST + to + 7u * STEP * PITCH] = next_v7;
    }
    if (me == 0u) {
      behind = 0u;
    }
    workgroupBarrier();
    let next = key + 32u + line;
    next_k0 = eight(next, 1u, head, column);
    next_v0 = eight(next, 2u, head, column);
    next_k1 = eight(next + STEP, 1u, head, column);
    next_v1 = eight(next + STEP, 2u, head, column);
    next_k2 = eight(next + 2u * STEP, 1u, head, column);
    next_v2 = eight(next + 2u * STEP, 2u, head, column);
    next_k3 = eight(next + 3u * STEP, 1u, head, column);
    next_v3 = eight(next + 3u * STEP, 2u, head, column);
    if (SUBGROUPS < 4u) {
      next_k4 = eight(next + 4u * STEP, 1u, head, column);
      next_v4 = eight(next + 4u * STEP, 2u, head, column);
      next_k5 = eight(next + 5u * STEP, 1u, head, column);
      next_v5 = eight(next + 5u * STEP, 2u, head, column);
      next_k6 = eight(next + 6u * STEP, 1u, head, column);
      next_v6 = eight(next + 6u * STEP, 2u, head, column);
      next_k7 = eight(next + 7u * STEP, 1u, head, column);
      next_v7 = eight(next + 7u * STEP, 2u, head, column);
    }
    let near = ((ORIGIN + key - (group_first + 15u)) * HEADS + workgroup.y) * W8;
    let farther = near + 16u * HEADS * W8;
    let farthest = farther + 16u * HEADS * W8;
    var d0 = Sums();
    var d1 = Sums();
    var d2 = Sums();
    d0 = product(r0, distances(near), d0);
    d1 = product(r0, distances(farther), d1);
    d2 = product(r0, distances(farthest), d2);
    d0 = product(r1, distances(near + 2u), d0);
    d1 = product(r1, distances(farther + 2u), d1);
    d2 = product(r1, distances(farthest + 2u), d2);
    d0 = product(r2, distances(near + 4u), d0);
    d1 = product(r2, distances(farther + 4u), d1);
    d2 = product(r2, distances(farthest + 4u), d2);
    d0 = product(r3, distances(near + 6u), d0);
    d1 = product(r3, distances(farther + 6u), d1);
    d2 = product(r3, distances(farthest + 6u), d2);
    if (W8 > 8u) {
      d0 = product(r4, distances(near + 8u), d0);
      d1 = product(r4, distances(farther + 8u), d1);
      d2 = product(r4, distances(farthest + 8u), d2);
      d0 = product(r5, distances(near + 10u), d0);
      d1 = product(r5, distances(farther + 10u), d1);
      d2 = product(r5, distances(farthest + 10u), d2);
      d0 = product(r6, distances(near + 12u), d0);
      d1 = product(r6, distances(farther + 12u), d1);
      d2 = product(r6, distances(farthest + 12u), d2);
      d0 = product(r7, distances(near + 14u), d0);
      d1 = product(r7, distances(farther + 14u), d1);
      d2 = product(r7, distances(farthest + 14u), d2);
    }
    put_distances(group * 16u * BAND_PITCH, d0);
    put_distances(group * 16u * BAND_PITCH + 16u, d1);
    put_distances(group * 16u * BAND_PITCH + 32u, d2);
    var s0 = Sums();
    var s1 = Sums();
    s0 = product(q0, keys(0u), s0);
    s1 = product(q0, keys(16u * PITCH + 0u), s1);
    s0 = product(q1, keys(2u), s0);
    s1 = product(q1, keys(16u * PITCH + 2u), s1);
    s0 = product(q2, keys(4u), s0);
    s1 = product(q2, keys(16u * PITCH + 4u), s1);
    s0 = product(q3, keys(6u), s0);
    s1 = product(q3, keys(16u * PITCH + 6u), s1);
    if (W8 > 8u) {
      s0 = product(q4, keys(8u), s0);
      s1 = product(q4, keys(16u * PITCH + 8u), s1);
      s0 = product(q5, keys(10u), s0);
      s1 = product(q5, keys(16u * PITCH + 10u), s1);
      s0 = product(q6, keys(12u), s0);
      s1 = product(q6, keys(16u * PITCH + 12u), s1);
      s0 = product(q7, keys(14u), s0);
      s1 = product(q7, keys(16u * PITCH + 14u), s1);
    }
    put(region, s0);
    put(region + 4u, s1);
    workgroupBarrier();
    var t0 = banded(floats(mine), shift);
    var t1 = banded(floats(mine + 1u), shift + 4u);
    var t2 = banded(floats(mine + 2u), shift + 8u);
    var t3 = banded(floats(mine + 3u), shift + 12u);
    let last_query = first + QUERIES - 1u;
    if (key + 32u > count || key + BEFORE < last_query || key + 31u > first + AFTER) {
      let at = key + half * 16u;
      t0 = masked(t0, query, at, count);
      t1 = masked(t1, query, at + 4u, count);
      t2 = masked(t2, query, at + 8u, count);
      t3 = masked(t3, query, at + 12u, count);
    }
    let most = max(max(t0, t1), max(t2, t3));
    var high = max(max(most.x, most.y), max(most.z, most.w));
    high = SCALE * LOG2_E * max(high, subgroupShuffleXor(high, 1u));
    var fade = 1.0;
    if (high > top + SLACK) {
      fade = exp2(top - high);
      top = high;
      total *= fade;
      behind = 1u;
    }
    t0 = weights(t0, top);
    t1 = weights(t1, top);
    t2 = weights(t2, top);
    t3 = weights(t3, top);
    total += dot((t0 + t1) + (t2 + t3), vec4<f32>(1.0));
    rows[sums + 8u] = halves(t0, t1);
    rows[sums + 9u] = halves(t2, t3);
    if (workgroupUniformLoad(&behind) != 0u) {
      o0 = faded(o0, region, sums, fade);
      o1 = faded(o1, region, sums, fade);
      o2 = faded(o2, region, sums, fade);
      o3 = faded(o3, region, sums, fade);
      if (W8 > 8u) {
        o4 = faded(o4, region, sums, fade);
        o5 = faded(o5, region, sums, fade);
        o6 = faded(o6, region, sums, fade);
        o7 = faded(o7, region, sums, fade);
      }
    }
    for (var step = 0u; step < 2u; step++) {
      let p = left(region + 8u + 2u * step);
      let at = V_FIRST + step * 16u * PITCH;
      o0 = product(p, values(at), o0);
      o1 = product(p, values(at + 2u), o1);
      o2 = product(p, values(at + 4u), o2);
      o3 = product(p, values(at + 6u), o3);
      if (W8 > 8u) {
        o4 = product(p, values(at + 8u), o4);
        o5 = product(p, values(at + 10u), o5);
        o6 = product(p, values(at + 12u), o6);
        o7 = product(p, values(at + 14u), o7);
      }
    }
  }
  total += subgroupShuffleXor(total, 1u);
  let inside = query < count;
  let inverse = select(0.0, 1.0 / total, inside);
  let result = (sequence + query * HEADS + workgroup.y) * 2u * W8 + half * 2u;
  finish(o0, region, sums, query, result, inverse);
  finish(o1, region, sums, query, result + 4u, inverse);
  finish(o2, region, sums, query, result + 8u, inverse);
  finish(o3, region, sums, query, result + 12u, inverse);
  if (W8 > 8u) {
    finish(o4, region, sums, query, result + 16u, inverse);
    finish(o5, region, sums, query, result + 20u, inverse);
    finish(o6, region, sums, query, result + 24u, inverse);
    finish(o7, region, sums, query, result + 28u, inverse);
  }
}
