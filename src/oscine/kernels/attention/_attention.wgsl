// softmax(q kᵀ / √W) v of one query over `count` keys, by one workgroup of 128.
// Paste after q (an array of vec4), W4 = W/4, MAX_KEYS = the most keys, a function kv_offset(key) from the
// first key and value to those of a key, and key4(at), value4(at) for a vec4 of them.
// Results: every invocation of the first W4 holds its four outputs, not yet divided by the total.
// use _workgroup_reduce_subgroup for WORKGROUP_REDUCE: subgroup, shared
const SCALE: f32 = 0.125;
// Lanes that share a key, so that their loads are coalesced; 1 without subgroups.
const LANES_PER_KEY: u32 = 1u;

struct Attended {
  sum: vec4<f32>,
  top: f32,
  total: f32,
}

var<workgroup> attend_query: array<vec4<f32>, W4>;
var<workgroup> attend_scores: array<f32, MAX_KEYS>;
var<workgroup> attend_parts: array<vec4<f32>, 128>;

// q_at, k_at, v_at: where the query and the first key and value begin.
fn attend(me: u32, q_at: u32, k_at: u32, v_at: u32, count: u32) -> Attended {
  if (me < W4) {
    attend_query[me] = q[q_at + me] * SCALE;
  }
  workgroupBarrier();
  var top = -1e30;
  let part = me % LANES_PER_KEY;
  for (var begin = 0u; begin < count; begin += 128u / LANES_PER_KEY) {
    let key = begin + me / LANES_PER_KEY;
    let at = k_at + kv_offset(min(key, count - 1u));
    var products = vec4<f32>();
    for (var i = part; i < W4; i += LANES_PER_KEY) {
      products += attend_query[i] * key4(at + i);
    }
    let score = lanes_sum(dot(products, vec4<f32>(1.0)), LANES_PER_KEY);
    if (key < count) {
      if (part == 0u) {
        attend_scores[key] = score;
      }
      top = max(top, score);
    }
  }
  top = workgroup_max(me, top);
  var total = 0.0;
  for (var key = me; key < count; key += 128u) {
    let weight = exp(attend_scores[key] - top);
    attend_scores[key] = weight;
    total += weight;
  }
  total = workgroup_sum(me, total);
  // An invocation has four outputs; as many groups of keys as invocations allow.
  let groups = 128u / W4;
  let column = me % W4;
  let group = me / W4;
  var sum = vec4<f32>();
  if (group < groups) {
    for (var key = group; key < count; key += groups) {
      sum += attend_scores[key] * value4(v_at + kv_offset(key) + column);
    }
  }
  attend_parts[me] = sum;
  workgroupBarrier();
  if (me < W4) {
    for (var other = 1u; other < groups; other++) {
      sum += attend_parts[other * W4 + me];
    }
  }
  return Attended(sum, top, total);
}
