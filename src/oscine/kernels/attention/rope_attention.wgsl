// y[b, l] = softmax(q kᵀ / √W) v over the keys visible to row l of sequence b, per head;
// HEADS / KEY_HEADS heads share keys; q is normalised and rotated first.
// qkv [B·L, (HEADS + 2·KEY_HEADS)·W], keys and values [SLOTS, P, KEY_HEADS·W], W = 4·W4; of the slot
// of b the cache holds position p at p mod P; row l sees those from WINDOW - 1 before its own on (0:
// all) to its own. With APPEND (L = 1) its key and value are taken from qkv, rounded as the cache
// rounds, and one of the workgroups that need them writes them to it; else the cache holds them.
// A block of 128 keys at a time, with the maximum so far: sums fade as a larger one is found.
// y [B·L, HEADS·W]; or, with SPLITS, the keys are cut among workgroups.z: y [B·L, HEADS,
// splits, W + 4] of sums that are not divided, and (top, total): see rope_attention_reduce.wgsl.
// Launch (HEADS, B·L, splits).
// use _talker_state
// use _store_f32 for CACHE: f32, f16
const HEADS: u32 = 1u;
const KEY_HEADS: u32 = 1u;
const W4: u32 = 16u;
const SCALE: f32 = 0.125;
const WINDOW: u32 = 0u;
const WITHIN_FRAME: bool = false;
const APPEND: bool = false;
const SPLITS: bool = false;
// Lanes that share a key, so that their loads are coalesced; 1 without subgroups.
const LANES_PER_KEY: u32 = 1u;

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> cosines: array<f32>;
@group(0) @binding(2) var<storage, read> sines: array<f32>;
@group(0) @binding(3) var<storage, read> norms: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read_write> keys: array<Stored>;
@group(0) @binding(6) var<storage, read_write> values: array<Stored>;
@group(0) @binding(7) var<storage, read_write> y: array<vec4<f32>>;

// use _neg_inf
// use _position
// use _rope
// use _workgroup_reduce_subgroup for WORKGROUP_REDUCE: subgroup, shared

var<workgroup> heads: array<vec4<f32>, 2u * HELD>;  // the query, and the row's own key
var<workgroup> weights: array<f32, 128>;  // of a block; 0 past its end
var<workgroup> parts: array<vec4<f32>, 128>;
var<workgroup> totals: array<f32, 128>;

// Loads of keys and of values that an invocation has in flight together: they are written out,
// since drivers do not unroll checked loops.
const LOADS: u32 = W4 / LANES_PER_KEY;
const TAKEN: u32 = select(select(select(1u, 2u, LOADS > 1u), 4u, LOADS > 2u), 8u, LOADS > 4u);
const VALUES: u32 = 8u;  // 4 or 8

// The product of four values of a query and a key; zeros past the head's end.
fn product(key: u32, i: u32) -> vec4<f32> {
  return select(vec4<f32>(), heads[min(i, W4 - 1u)], i < W4) 
    * restored(keys[key + min(i, W4 - 1u)]);
}

// The product of four values of the query and the row's own key.
fn own_product(i: u32) -> vec4<f32> {
  let at = min(i, W4 - 1u);
  return select(vec4<f32>(), heads[at] * heads[HELD + at], i < W4);
}

// The key of a block whose score an invocation holds.
fn own_key(me: u32, group_step: u32) -> u32 {
  return group_step * (128u / LANES_PER_KEY) + me / LANES_PER_KEY;
}

// The score of its key of the block, NEG_INF past the end. `first` is that of the head in the cache.
fn own_score(me: u32, begin: u32, end: u32, first: u32, at: RowPosition) -> f32 {
  let part = me % LANES_PER_KEY;
  var own = NEG_INF;
  for (var group_step = 0u; group_step < LANES_PER_KEY && begin + own_key(0u, group_step) < end; group_step++) {
    let position = begin + own_key(me, group_step);
    let key = first + held_at(min(position, end - 1u), at) * KEY_HEADS * W4;
    var products = vec4<f32>();
    for (var i = part; i < at.width4; i += TAKEN * LANES_PER_KEY) {
      products += product(key, i);
      if (LOADS > 1u) {
        products += product(key, i + LANES_PER_KEY);
      }
      if (LOADS > 2u) {
        products += product(key, i + 2u * LANES_PER_KEY) + product(key, i + 3u * LANES_PER_KEY);
      }
      if (LOADS > 4u) {
        products += product(key, i + 4u * LANES_PER_KEY) + product(key, i + 5u * LANES_PER_KEY)
          + product(key, i + 6u * LANES_PER_KEY) + product(key, i + 7u * LANES_PER_KEY);
      }
    }
    let score = SCALE * lanes_sum(dot(products, vec4<f32>(1.0)), LANES_PER_KEY);
    if (group_step == part && position < end) {
      own = score;
    }
  }
  return own;
}

struct Sum {
  values: vec4<f32>,
  weight: f32,
}

// Four values of key `key` of the block, and its weight.
fn weighted(key: u32, begin: u32, end: u32, first: u32, at: RowPosition) -> Sum {
  let weight = select(0.0, weights[min(key, 127u)], key < 128u);
  let value = first + held_at(min(begin + key, end - 1u), at) * KEY_HEADS * W4;
  return Sum(weight * restored(values[value]), weight);
}

fn plus(a: Sum, b: Sum) -> Sum {
  return Sum(a.values + b.values, a.weight + b.weight);
}

// The sum over four keys, `key` and those 1 to 3 steps after it.
fn weighted4(key: u32, step: u32, begin: u32, end: u32, first: u32, at: RowPosition) -> Sum {
  let a = weighted(key, begin, end, first, at);
  let b = weighted(key + step, begin, end, first, at);
  let c = weighted(key + 2u * step, begin, end, first, at);
  let d = weighted(key + 3u * step, begin, end, first, at);
  return plus(plus(a, b), plus(c, d));
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let row = workgroup.y;
  let at = position_of(row, workgroups.y);
  let shared_head = workgroup.x / (HEADS / KEY_HEADS) * W4;
  let row_at = row * (HEADS + 2u * KEY_HEADS) * W4;
  let key_at = row_at + HEADS * W4 + shared_head;
  let takes_fresh = APPEND && workgroup.z == 0u;
  // What does not depend on the state is under way while the state is waited for.
  let places = select(HELD, 2u * HELD, takes_fresh);
  for (var i = me; i < places; i += 128u) {
    if (i % HELD < W4) {
      let head = select(row_at + workgroup.x * W4, key_at, i >= HELD);
      stage(i / HELD, i % HELD, four_of_head(head, i / HELD, i % HELD));
    }
  }
  let columns = 128u / at.width4;  // groups of invocations that take a key's values each
  let column = me % W4;
  let group = me / W4;
  var own_value = vec4<f32>();
  if (takes_fresh) {
    own_value = restored(stored(qkv[key_at + KEY_HEADS * W4 + column]));
  }
  if (!at.counts) {
    return;
  }
  let first = at.cache + shared_head;
  let angles = angles_at(min(me % HELD, W4 - 1u), at.position);
  workgroupBarrier();
  for (var i = me; i < places; i += 128u) {
    if (i % HELD < W4) {
      let four = rope(i / HELD, i % HELD, angles, at.width4);
      heads[i] = select(four, restored(stored(four)), i >= HELD);
    }
  }
  workgroupBarrier();
  var top = NEG_INF;
  var total = 0.0;
  var sum = vec4<f32>();
  if (takes_fresh) {
    var products = vec4<f32>();
    for (var i = 0u; i < at.width4; i += 4u) {
      products += own_product(i) + own_product(i + 1u) + own_product(i + 2u) + own_product(i + 3u);
    }
    top = SCALE * dot(products, vec4<f32>(1.0));
    if (group == 0u) {
      total = 1.0;
      sum = own_value;
      if (workgroup.x % (HEADS / KEY_HEADS) == 0u) {
        let to = first + held_at(at.position, at) * KEY_HEADS * W4 + me;
        keys[to] = stored(heads[HELD + me]);
        values[to] = stored(own_value);
      }
    }
  }
  var end = at.position + select(1u, 0u, APPEND);
  var begin = at.begin;
  if (SPLITS) {
    let share = (end - begin + workgroups.z - 1u) / workgroups.z;
    begin += workgroup.z * share;
    end = min(end, begin + share);
  }
  // workgroup_max puts two barriers between the weights of one block and those of the next.
  for (; begin < end; begin += 128u) {
    let score = own_score(me, begin, end, first, at);
    let higher = max(top, workgroup_max(me, score));
    let fade = exp(top - higher);
    top = higher;
    weights[own_key(me, me % LANES_PER_KEY)] = exp(score - higher);
    workgroupBarrier();
    total *= fade;
    sum *= fade;
    let count = select(0u, min(128u, end - begin), group < columns);
    for (var key = group; key < count; key += VALUES * columns) {
      var found = weighted4(key, columns, begin, end, first + column, at);
      if (VALUES > 4u) {
        let more = weighted4(key + 4u * columns, columns, begin, end, first + column, at);
        found = plus(found, more);
      }
      sum += found.values;
      total += found.weight;
    }
  }
  parts[me] = sum;
  if (column == 0u && group < columns) {
    totals[group] = total;
  }
  workgroupBarrier();
  if (me >= W4) {
    return;
  }
  total = totals[0];
  for (var other = 1u; other < columns; other++) {
    sum += parts[other * W4 + me];
    total += totals[other];
  }
  if (SPLITS) {
    let to = ((row * HEADS + workgroup.x) * workgroups.z + workgroup.z) * (W4 + 1u);
    y[to + me] = sum;
    if (me == 0u) {
      y[to + W4] = vec4<f32>(top, total, 0.0, 0.0);
    }
  } else {
    y[(row * HEADS + workgroup.x) * W4 + me] = sum / total;
  }
}
