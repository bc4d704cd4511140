// y[b] = x[b, state.length - 1], y[LINES + b] = x[b, state.sot]
// x [LINES·L, D], y [2·LINES, D], D = 4·WIDTH4. Launch (ceil(WIDTH4 / 64), 2·LINES).
// use _state
const LINES: u32 = 1u;
const L: u32 = 1u;
const WIDTH4: u32 = 1u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  if (at.x >= WIDTH4) {
    return;
  }
  let line = at.y % LINES;
  let base = line * WORDS;
  let row = select(state[base + SOT], max(state[base + LENGTH], 1u) - 1u, at.y < LINES);
  y[at.y * WIDTH4 + at.x] = x[(line * L + min(row, L - 1u)) * WIDTH4 + at.x];
}
