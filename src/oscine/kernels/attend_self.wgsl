// y[b, l] = softmax(q kᵀ / √W) v over keys 0 to position + l of line b, per head
// q is qkv [LINES·L, 3·D]; keys and values [LINES, MOST, D]; y [LINES·L, D]; D = HEADS·4·W4.
// With APPEND (one row a line) each workgroup first writes its head of k and v to the cache.
// Launch (HEADS, LINES·L).
// use _state
const L: u32 = 1u;
const HEADS: u32 = 1u;
const W4: u32 = 16u;
const MOST: u32 = 448u;
const APPEND: bool = true;

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read_write> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

// use _attend

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let head = workgroup.x * W4;
  let row = workgroup.y;
  let line = row / L;
  let l = row % L;
  let base = line * STATE_WORDS;
  let place = state[base + POSITION] + l;
  if (state[base + DONE] != 0u || l >= state[base + LENGTH] || place >= MOST) {
    return;
  }
  let width4 = HEADS * W4;
  let cache = line * MOST * width4 + head;
  if (APPEND) {
    if (me < W4) {
      k[cache + place * width4 + me] = q[row * 3u * width4 + width4 + head + me];
      v[cache + place * width4 + me] = q[row * 3u * width4 + 2u * width4 + head + me];
    }
    storageBarrier();
  }
  let found = attend(me, row * 3u * width4 + head, cache, cache, width4, place + 1u);
  if (me < W4) {
    y[row * width4 + head + me] = found.sum / found.total;
  }
}
