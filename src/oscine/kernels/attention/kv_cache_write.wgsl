// keys[state.slot, position + l] = k, values[..] = v of row l of sequence b      for rows l < state.length
// qkv [LINES·L, 3·D], keys and values [SLOTS, CAPACITY, D], D = 4·WIDTH4.
// Launch (ceil(WIDTH4 / 64), LINES·L).
// use _text_decoder_state
const L: u32 = 1u;
const WIDTH4: u32 = 1u;
const MAX_KEYS: u32 = 448u;  // positions
const CAPACITY: u32 = 448u;

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read_write> keys: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> values: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let row = at.y;
  let l = row % L;
  let base = row / L * WORDS;
  let position = state[base + POSITION] + l;
  if (at.x >= WIDTH4 || state[base + DONE] != 0u || l >= state[base + LENGTH] || position >= MAX_KEYS) {
    return;
  }
  let to = (state[base + SLOT] * CAPACITY + position) * WIDTH4 + at.x;
  keys[to] = qkv[row * 3u * WIDTH4 + WIDTH4 + at.x];
  values[to] = qkv[row * 3u * WIDTH4 + 2u * WIDTH4 + at.x];
}
