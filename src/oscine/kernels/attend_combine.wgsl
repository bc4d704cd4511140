// y[r, h] = Σ_s sums[r, h, s] e^(top_s - top) / Σ_s total_s e^(top_s - top)
// sums [ROWS, HEADS, SPLITS, W], marks [ROWS, HEADS, SPLITS] of (top, total), y [ROWS, HEADS·W].
// One invocation four outputs; launch ceil(COUNT4 / 64), COUNT4 = ROWS·HEADS·W4.
// use _state
// use _guard
const COUNT4: u32 = 1u;
const W4: u32 = 16u;
const SPLITS: u32 = 1u;

@group(0) @binding(0) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> marks: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  if (at.x >= COUNT4 || all_done()) {
    return;
  }
  let head = at.x / W4 * SPLITS;
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
  y[at.x] = sum / total;
}
