// y[b] = total[s] + table[code] + text[s, min(count, texts) - 1], s the slot of b
// total [S, D], table [V, D], text [S, N, D], y [B, D], D = 4·WIDTH4.
// Launch (ceil(WIDTH4 / 64), B).
// use _talker_state
const WIDTH4: u32 = 1u;

@group(0) @binding(0) var<storage, read> total: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read> text: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

// use _code_table

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let base = at.y * WORDS;
  let slots = arrayLength(&total) / WIDTH4;
  let slot = state[base + SLOT];
  if (at.x >= WIDTH4 || state[base + DONE] != 0u || slot >= slots) {
    return;
  }
  let rows = arrayLength(&text) / (slots * WIDTH4);
  let row = max(min(state[base + COUNT], state[base + TEXTS]), 1u) - 1u;
  y[at.y * WIDTH4 + at.x] = total[slot * WIDTH4 + at.x]
    + load_code(state[base + TOKEN] * WIDTH4 + at.x)
    + text[(slot * rows + row) * WIDTH4 + at.x];
}
