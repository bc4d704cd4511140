// y[b, h] = Σ_s sums[b, h, s] e^(top_s - top) / Σ_s total_s e^(top_s - top)
// sums [B, HEADS, SPLITS, W + 4] as rope_attention.wgsl leaves them, y [B, HEADS·W], W = 4·W4.
// An invocation has four outputs; launch (ceil(HEADS·W4 / 64), B).
// use _talker_state
// use _neg_inf
const HEADS: u32 = 1u;
const W4: u32 = 16u;
const SPLITS: u32 = 1u;

@group(0) @binding(0) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  if (at.x >= HEADS * W4 || state[at.y * WORDS + DONE] != 0u) {
    return;
  }
  let first = (at.y * HEADS + at.x / W4) * SPLITS;
  var top = NEG_INF;
  for (var s = first; s < first + SPLITS; s++) {
    top = max(top, sums[s * (W4 + 1u) + W4].x);
  }
  var sum = vec4<f32>();
  var total = 0.0;
  for (var s = first; s < first + SPLITS; s++) {
    let mark = sums[s * (W4 + 1u) + W4];
    let fade = exp(mark.x - top);
    sum += fade * sums[s * (W4 + 1u) + at.x % W4];
    total += fade * mark.y;
  }
  y[at.y * HEADS * W4 + at.x] = sum / total;
}
