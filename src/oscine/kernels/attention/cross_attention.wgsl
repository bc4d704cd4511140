// The keys of softmax(q kᵀ / √W) v cut into SPLITS of MAX_KEYS keys, one workgroup each, per head
// q [LINES·L, D]; k and v are one buffer kv [WINDOWS, KEYS, 2·D], float32 or float16; D = HEADS·4·W4. Line b listens to
// state.window[b]; a line that is done costs nothing.
// sums [LINES·L, HEADS, SPLITS, W] undivided, marks [LINES·L, HEADS, SPLITS] of (top, total);
// attention_reduce puts them together. Launch (SPLITS, HEADS, LINES·L).
// use _text_decoder_state
// use _weights_f32 for WEIGHTS: f32, f16, bf16
const L: u32 = 1u;
const KEYS: u32 = 1u;
const HEADS: u32 = 1u;
const W4: u32 = 16u;
const MAX_KEYS: u32 = 128u;

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> k: array<Packed>;
@group(0) @binding(2) var<storage, read> v: array<Packed>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> sums: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> marks: array<vec2<f32>>;

fn kv_offset(key: u32) -> u32 {
  return key * 2u * HEADS * W4;
}

fn key4(at: u32) -> vec4<f32> {
  return unpack(k[at]);
}

fn value4(at: u32) -> vec4<f32> {
  return unpack(v[at]);
}

// use _attention

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let row = workgroup.z;
  let base = row / L * WORDS;
  if (state[base + DONE] != 0u) {
    return;
  }
  let width4 = HEADS * W4;
  let head = workgroup.y * W4;
  let first = workgroup.x * MAX_KEYS;
  let at = (state[base + WINDOW] * KEYS + first) * 2u * width4 + head;
  let found = attend(me, row * width4 + head, at, at + width4, min(MAX_KEYS, KEYS - first));
  let slot = (row * HEADS + workgroup.y) * workgroups.x + workgroup.x;
  if (me < W4) {
    sums[slot * W4 + me] = found.sum;
  }
  if (me == 0u) {
    marks[slot] = vec2<f32>(found.top, found.total);
  }
}
