// y[b, l] = w[token] + positions[state.position + l]      y [LINES·L, D], D = 4·WIDTH4
// The token is prompt[b, l], or state.token where PROMPT is false (L = 1). The table w holds rows
// FIRST to FIRST + COUNTED of the whole; other tokens are left to the launch for their part.
// Launch (ceil(WIDTH4 / 64), LINES·L).
// use _matrix_f32 for WEIGHTS: f32, f16, bf16, q8, q4
// use _text_decoder_state
const L: u32 = 1u;
const WIDTH4: u32 = 1u;
const POSITIONS: u32 = 1u;
const FIRST: u32 = 0u;
const COUNTED: u32 = 1u;
const PROMPT: bool = false;

@group(0) @binding(0) var<storage, read> w: array<Word>;
@group(0) @binding(1) var<storage, read> positions: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read> prompt: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let row = at.y;
  let base = row / L * WORDS;
  if (at.x >= WIDTH4 || state[base + DONE] != 0u) {
    return;
  }
  var token = state[base + TOKEN];
  if (PROMPT) {
    token = prompt[row];
  }
  if (token < FIRST || token >= FIRST + COUNTED) {
    return;
  }
  let position = min(state[base + POSITION] + row % L, POSITIONS - 1u);
  y[row * WIDTH4 + at.x] =
    unpack(fetch((token - FIRST) * WIDTH4 + at.x)) + positions[position * WIDTH4 + at.x];
}
