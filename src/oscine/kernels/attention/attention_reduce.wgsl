// y[r, h] = Σ_s sums[r, h, s] e^(top_s - top) / Σ_s total_s e^(top_s - top)
// sums [LINES·L, HEADS, SPLITS, W], marks [LINES·L, HEADS, SPLITS] of (top, total),
// y [LINES·L, HEADS·4·W4]. An invocation has four outputs; launch (ceil(HEADS·W4 / 64), LINES·L).
// use _text_decoder_state
const L: u32 = 1u;
const HEADS: u32 = 1u;
const W4: u32 = 16u;
const SPLITS: u32 = 1u;

@group(0) @binding(0) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> marks: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let row = at.y;
  if (at.x >= HEADS * W4 || state[row / L * WORDS + DONE] != 0u) {
    return;
  }
  let head = (row * HEADS + at.x / W4) * SPLITS;
  var top = -1e30;
  for (var s = 0u; s < SPLITS; s++) {
    top = max(top, marks[head + s].x);
  }
  var sum = vec4<f32>();
  var total = 0.0;
  for (var s = 0u; s < SPLITS; s++) {
    let fade = exp(marks[head + s].x - top);
    sum += fade * sums[(head + s) * W4 + at.x % W4];
    total += fade * marks[head + s].y;
  }
  y[row * HEADS * W4 + at.x] = sum / total;
}
