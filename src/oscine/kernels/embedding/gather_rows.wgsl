// y[b] = x[b, state.length - 1], and where the launch has 2·LINES rows y[LINES + b] = x[b, state.sot]
// x [LINES·L, D], D = 4·WIDTH4; state rows of any family, as long as WORDS, with sot at word SOT.
// Launch (ceil(WIDTH4 / 64), LINES or 2·LINES).
// use _header
const LINES: u32 = 1u;
const WIDTH4: u32 = 1u;
const WORDS: u32 = 8u;
const SOT: u32 = 0u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let line = at.y % LINES;
  let base = line * WORDS;
  if (at.x >= WIDTH4 || state[base + DONE] != 0u) {
    return;
  }
  let length = arrayLength(&x) / (LINES * WIDTH4);
  let row = select(state[base + SOT], max(state[base + LENGTH], 1u) - 1u, at.y < LINES);
  y[at.y * WIDTH4 + at.x] = x[(line * length + min(row, length - 1u)) * WIDTH4 + at.x];
}
