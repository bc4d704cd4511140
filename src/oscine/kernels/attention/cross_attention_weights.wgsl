// y[a, r] = softmax(q_r kᵀ / √W) of head chosen[a], over the first state.frames keys; 0 beyond
// q [LINES·L, D]; keys are the first half of kv [WINDOWS, KEYS, 2·D], those of state.window;
// D = HEADS·4·W4; chosen [A]; y [A, LINES·L, KEYS]. Each invocation keeps its scores in y, where no
// other one looks: any number of keys will do. Launch (A, LINES·L).
// use _text_decoder_state
// use _weights_f32 for WEIGHTS: f32, f16, bf16
const L: u32 = 1u;
const KEYS: u32 = 1u;
const HEADS: u32 = 1u;
const W4: u32 = 16u;
const SCALE: f32 = 0.125;

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k: array<Packed>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read> chosen: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

var<workgroup> query: array<vec4<f32>, W4>;

// use _workgroup_reduce_subgroup for WORKGROUP_REDUCE: subgroup, shared

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let row = workgroup.y;
  let base = row / L * WORDS;
  let frames = min(state[base + FRAMES], KEYS);
  let head = chosen[workgroup.x] * W4;
  if (me < W4) {
    query[me] = q[row * HEADS * W4 + head + me] * SCALE;
  }
  workgroupBarrier();
  let out = (workgroup.x * workgroups.y + row) * KEYS;
  var top = -1e30;
  for (var key = me; key < frames; key += 128u) {
    let at = (state[base + WINDOW] * KEYS + key) * 2u * HEADS * W4 + head;
    var products = vec4<f32>();
    for (var i = 0u; i < W4; i++) {
      products += query[i] * unpack(k[at + i]);
    }
    let score = dot(products, vec4<f32>(1.0));
    y[out + key] = score;
    top = max(top, score);
  }
  top = workgroup_max(me, top);
  var total = 0.0;
  for (var key = me; key < frames; key += 128u) {
    let weight = exp(y[out + key] - top);
    y[out + key] = weight;
    total += weight;
  }
  total = workgroup_sum(me, total);
  for (var key = me; key < KEYS; key += 128u) {
    y[out + key] = select(0.0, y[out + key] / total, key < frames);
  }
}
