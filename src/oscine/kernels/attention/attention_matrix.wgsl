// y[s] = softmax(q[s] kᵀ / √W) v, unmasked, per head and window, on matrix units; as attention.wgsl
// N windows of ROWS rows: qkv in float16, packed [N·ROWS, 3·D]; y [N·ROWS, D]. W = 8·W8, a
// multiple of 16 up to 64. A subgroup of 32 lanes has 32 queries, a lane the softmax of one;
// SUBGROUPS subgroups, 4 or 8, are a workgroup and share 32 keys and their values at a time.
// Launch (ceil(ROWS / (32·SUBGROUPS)), HEADS, N).
// use _store_f32 for STORE: f32, f16
// use _attention_matrix
const ROWS: u32 = 1u;
const HEADS: u32 = 1u;
const W8: u32 = 8u;
const SCALE: f32 = 0.125;
const SUBGROUPS: u32 = 8u;

const PITCH: u32 = 9u;      // of 64 float16, in eights: an odd one uses all banks
const ROW_PITCH: u32 = 9u;  // of 32 float32 and of 64 float16, in vec4s
const V_FIRST: u32 = 32u * PITCH;
const STEP: u32 = 4u * SUBGROUPS;  // lines that a workgroup fetches at once

@group(0) @binding(0) var<storage, read> qkv: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> y: array<Stored>;

var<workgroup> tile: array<vec4<u32>, 64u * PITCH>;
var<workgroup> rows: array<vec4<u32>, 32u * SUBGROUPS * ROW_PITCH>;

// Four scores, masked past the last key.
fn masked(scores: vec4<f32>, key: u32) -> vec4<f32> {
  let at = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
  return select(vec4<f32>(NEG_INF), scores, at < vec4<u32>(ROWS));
}

// Scale 16 sums of a query's values, which both blocks of queries have just put there.
fn scale_sums(at: u32, fade: f32) {
  workgroupBarrier();
  for (var c = 0u; c < 4u; c++) {
    rows[at + c] = bitcast<vec4<u32>>(fade * floats(at + c));
  }
  workgroupBarrier();
}

// Write 16 columns of a query, which both blocks of queries have just put there.
fn finish(at: u32, query: u32, to: u32, inverse: f32) {
  workgroupBarrier();
  if (query < ROWS) {
    for (var c = 0u; c < 4u; c++) {
      y[to + c] = stored(inverse * floats(at + c));
    }
  }
  workgroupBarrier();
}

@compute @workgroup_size(32u * SUBGROUPS)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let window = workgroup.z * ROWS * HEADS;  // where it begins in y, in heads of a row
  let head = 3u * window + workgroup.y;     // where this head begins in qkv
  let group = me / 32u;
  let lane = me % 32u;
  let first = (workgroup.x * SUBGROUPS + group) * 32u;
  let above = group * 32u * ROW_PITCH;  // the first 16 queries of this subgroup
  let below = above + 16u * ROW_PITCH;  // the other 16
  let mine = above + lane * ROW_PITCH;
  for (var line = lane / 8u; line < 32u; line += 4u) {
    rows[above + line * ROW_PITCH + lane % 8u] = eight(first + line, 0u, head, lane % 8u);
  }
  workgroupBarrier();
  // Names, not arrays or structures, so that all stay in registers.
  let q00 = left(above);
  let q01 = left(above + 2u);
  let q02 = left(above + 4u);
  let q03 = left(above + 6u);
  let q10 = left(below);
  let q11 = left(below + 2u);
  let q12 = left(below + 4u);
  let q13 = left(below + 6u);
  var o00 = Sums();
  var o01 = Sums();
  var o02 = Sums();
  var o03 = Sums();
  var o10 = Sums();
  var o11 = Sums();
  var o12 = Sums();
  var o13 = Sums();
  var top = LOWEST;
  var total = 0.0;
  // The next keys and values are fetched while these are used.
  let line = me / 8u;
  let column = me % 8u;
  let to = line * PITCH + column;
  var next_k0 = eight(line, 1u, head, column);
  var next_v0 = eight(line, 2u, head, column);
  var next_k1 = vec4<u32>();
  var next_v1 = vec4<u32>();
  if (STEP < 32u) {
    next_k1 = eight(line + STEP, 1u, head, column);
    next_v1 = eight(line + STEP, 2u, head, column);
  }
  for (var key = 0u; key < ROWS; key += 32u) {
    workgroupBarrier();
    tile[to] = next_k0;
    tile[V_FIRST + to] = next_v0;
    if (STEP < 32u) {
      tile[to + STEP * PITCH] = next_k1;
      tile[V_FIRST + to + STEP * PITCH] = next_v1;
    }
    if (me == 0u) {
      behind = 0u;
    }
    workgroupBarrier();
    let next = key + 32u + line;
    next_k0 = eight(next, 1u, head, column);
    next_v0 = eight(next, 2u, head, column);
    if (STEP < 32u) {
      next_k1 = eight(next + STEP, 1u, head, column);
      next_v1 = eight(next + STEP, 2u, head, column);
    }
    var s00 = Sums();
    var s01 = Sums();
    var s10 = Sums();
    var s11 = Sums();
    let k0 = keys(0u);
    s00 = product(q00, k0, s00);
    s10 = product(q10, k0, s10);
    let k1 = keys(16u * PITCH + 0u);
    s01 = product(q00, k1, s01);
    s11 = product(q10, k1, s11);
    if (W8 > 2u) {
      let k0 = keys(2u);
      s00 = product(q01, k0, s00);
      s10 = product(q11, k0, s10);
      let k1 = keys(16u * PITCH + 2u);
      s01 = product(q01, k1, s01);
      s11 = product(q11, k1, s11);
    }
    if (W8 > 4u) {
      let k0 = keys(4u);
      s00 = product(q02, k0, s00);
      s10 = product(q12, k0, s10);
      let k1 = keys(16u * PITCH + 4u);
      s01 = product(q02, k1, s01);
      s11 = product(q12, k1, s11);
    }
    if (W8 > 6u) {
      let k0 = keys(6u);
      s00 = product(q03, k0, s00);
      s10 = product(q13, k0, s10);
      let k1 = keys(16u * PITCH + 6u);
      s01 = product(q03, k1, s01);
      s11 = product(q13, k1, s11);
    }
    put(above, s00);
    put(above + 4u, s01);
    put(below, s10);
    put(below + 4u, s11);
    workgroupBarrier();
    var t0 = floats(mine);
    var t1 = floats(mine + 1u);
    var t2 = floats(mine + 2u);
    var t3 = floats(mine + 3u);
    var t4 = floats(mine + 4u);
    var t5 = floats(mine + 5u);
    var t6 = floats(mine + 6u);
    var t7 = floats(mine + 7u);
    if (key + 32u > ROWS) {
      t0 = masked(t0, key);
      t1 = masked(t1, key + 4u);
      t2 = masked(t2, key + 8u);
      t3 = masked(t3, key + 12u);
      t4 = masked(t4, key + 16u);
      t5 = masked(t5, key + 20u);
      t6 = masked(t6, key + 24u);
      t7 = masked(t7, key + 28u);
    }
    let most = max(max(max(t0, t1), max(t2, t3)), max(max(t4, t5), max(t6, t7)));
    let high = SCALE * LOG2_E * max(max(most.x, most.y), max(most.z, most.w));
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
    t4 = weights(t4, top);
    t5 = weights(t5, top);
    t6 = weights(t6, top);
    t7 = weights(t7, top);
    total += dot(((t0 + t1) + (t2 + t3)) + ((t4 + t5) + (t6 + t7)), vec4<f32>(1.0));
    rows[mine] = halves(t0, t1);
    rows[mine + 1u] = halves(t2, t3);
    rows[mine + 2u] = halves(t4, t5);
    rows[mine + 3u] = halves(t6, t7);
    if (workgroupUniformLoad(&behind) != 0u) {
      put(above + 4u, o00);
      put(below + 4u, o10);
      scale_sums(mine + 4u, fade);
      o00 = taken(above + 4u);
      o10 = taken(below + 4u);
      workgroupBarrier();
      put(above + 4u, o01);
      put(below + 4u, o11);
      scale_sums(mine + 4u, fade);
      o01 = taken(above + 4u);
      o11 = taken(below + 4u);
      workgroupBarrier();
      put(above + 4u, o02);
      put(below + 4u, o12);
      scale_sums(mine + 4u, fade);
      o02 = taken(above + 4u);
      o12 = taken(below + 4u);
      workgroupBarrier();
      put(above + 4u, o03);
      put(below + 4u, o13);
      scale_sums(mine + 4u, fade);
      o03 = taken(above + 4u);
      o13 = taken(below + 4u);
      workgroupBarrier();
    }
    for (var step = 0u; step < 2u; step++) {
      let p0 = left(above + 2u * step);
      let p1 = left(below + 2u * step);
      let at = V_FIRST + step * 16u * PITCH;
      let v0 = values(at);
      o00 = product(p0, v0, o00);
      o10 = product(p1, v0, o10);
      if (W8 > 2u) {
        let v1 = values(at + 2u);
        o01 = product(p0, v1, o01);
        o11 = product(p1, v1, o11);
      }
      if (W8 > 4u) {
        let v2 = values(at + 4u);
        o02 = product(p0, v2, o02);
        o12 = product(p1, v2, o12);
      }
      if (W8 > 6u) {
        let v3 = values(at + 6u);
        o03 = product(p0, v3, o03);
        o13 = product(p1, v3, o13);
      }
    }
  }
  let query = first + lane;
  let result = (window + query * HEADS + workgroup.y) * 2u * W8;
  let inverse = 1.0 / total;
  workgroupBarrier();
  put(above, o00);
  put(below, o10);
  finish(mine, query, result, inverse);
  if (W8 > 2u) {
    put(above, o01);
    put(below, o11);
    finish(mine, query, result + 4u, inverse);
  }
  if (W8 > 4u) {
    put(above, o02);
    put(below, o12);
    finish(mine, query, result + 8u, inverse);
  }
  if (W8 > 6u) {
    put(above, o03);
    put(below, o13);
    finish(mine, query, result + 12u, inverse);
  }
}
