// y[b, l] = softmax(q kᵀ / √W) v over the keys that row l of line b may see, per head, of which
// HEADS / KEY_HEADS share keys; q is normalised and turned first.
// qkv [LINES·L, (HEADS + 2·KEY_HEADS)·W], keys and values [LINES, P, KEY_HEADS·W], W = 4·W4; position
// p lies at p mod P, row l sees those from WINDOW - 1 before its own on (0: all) to its own.
// With APPEND (one row a line) its key and value are taken from qkv, and one of the workgroups that
// need them writes them to the cache; else the cache holds them.
// A block of 128 keys at a time, with the maximum so far: sums fade as a larger one is found.
// y [LINES·L, HEADS·W]; or, with SPLITS, the keys are cut among workgroups.z: y [LINES·L, HEADS,
// splits, W + 4] of sums that are not divided, and (top, total): see combine_rotary.wgsl.
// Launch (HEADS, LINES·L, splits).
// use _utterance
const HEADS: u32 = 1u;
const KEY_HEADS: u32 = 1u;
const W4: u32 = 16u;
const SCALE: f32 = 0.125;
const WINDOW: u32 = 0u;
const INNER: bool = false;
const APPEND: bool = false;
const SPLITS: bool = false;
// Lanes that share a key, so that what they load lies side by side in memory; 1 without subgroups.
const NEIGHBOURS: u32 = 1u;

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> cosines: array<f32>;
@group(0) @binding(2) var<storage, read> sines: array<f32>;
@group(0) @binding(3) var<storage, read> norms: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> utterances: array<u32>;
@group(0) @binding(5) var<storage, read_write> keys: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> values: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> y: array<vec4<f32>>;

// use _never
// use _place
// use _rotary

const COLUMNS: u32 = 128u / W4;  // groups of invocations that take a key's values each

var<workgroup> query: array<vec4<f32>, W4>;
var<workgroup> scores: array<f32, 128>;
var<workgroup> parts: array<vec4<f32>, 128>;

// The score of key `begin + me`, by way of scores; NEVER past the end.
fn score_block(me: u32, begin: u32, end: u32, at: Place, head_at: u32) -> f32 {
  let part = me % NEIGHBOURS;
  for (var turn = 0u; turn < NEIGHBOURS; turn++) {
    let mine = turn * (128u / NEIGHBOURS) + me / NEIGHBOURS;
    let place = min(begin + mine, end - 1u);
    let from_key = at.cache + slot_of(place, at.room) * KEY_HEADS * W4 + head_at;
    var products = vec4<f32>();
    for (var i = part; i < W4; i += NEIGHBOURS) {
      products += query[i] * keys[from_key + i];
    }
    let score = neighbour_sum(dot(products, vec4<f32>(1.0)), NEIGHBOURS);
    if (part == 0u) {
      scores[mine] = select(NEVER, score, begin + mine < end);
    }
  }
  workgroupBarrier();
  return scores[me];
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let row = workgroup.y;
  let at = place_of(row, workgroups.y);
  if (!at.counts) {
    return;
  }
  let head_at = workgroup.x / (HEADS / KEY_HEADS) * W4;
  let row_at = row * (HEADS + 2u * KEY_HEADS) * W4;
  let column = me % W4;
  let group = me / W4;
  let asked = SCALE * head(me, row_at + workgroup.x * W4, 0u, at.place);
  if (me < W4) {
    query[me] = asked;
  }
  workgroupBarrier();
  var top = NEVER;
  var total = 0.0;
  var sum = vec4<f32>();
  if (APPEND && workgroup.z == 0u) {
    let key_at = row_at + HEADS * W4 + head_at;
    let key = head(me, key_at, 1u, at.place);
    let value = qkv[key_at + KEY_HEADS * W4 + column];
    top = block_sum(me, dot(asked, key));
    total = select(0.0, 1.0, me == 0u);
    sum = select(vec4<f32>(), value, group == 0u);
    if (me < W4 && workgroup.x % (HEADS / KEY_HEADS) == 0u) {
      let to = at.cache + slot_of(at.place, at.room) * KEY_HEADS * W4 + head_at + me;
      keys[to] = key;
      values[to] = value;
    }
  }
  var end = at.place + select(1u, 0u, APPEND);
  var begin = 0u;
  if (WINDOW > 0u) {
    begin = max(at.place + 1u, WINDOW) - WINDOW;
  }
  if (SPLITS) {
    let share = (end - begin + workgroups.z - 1u) / workgroups.z;
    begin += workgroup.z * share;
    end = min(end, begin + share);
  }
  for (; begin < end; begin += 128u) {
    let score = score_block(me, begin, end, at, head_at);
    let higher = max(top, block_max(me, score));
    let fade = exp(top - higher);
    let weight = exp(score - higher);
    top = higher;
    total = total * fade + weight;
    sum *= fade;
    scores[me] = weight;
    workgroupBarrier();
    let count = min(128u, end - begin);
    for (var key = select(count, group, group < COLUMNS); key < count; key += COLUMNS) {
      let from_value = at.cache + slot_of(begin + key, at.room) * KEY_HEADS * W4 + head_at;
      sum += scores[key] * values[from_value + column];
    }
    workgroupBarrier();
  }
  total = block_sum(me, total);
  parts[me] = sum;
  workgroupBarrier();
  if (me >= W4) {
    return;
  }
  for (var other = 1u; other < COLUMNS; other++) {
    sum += parts[other * W4 + me];
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
