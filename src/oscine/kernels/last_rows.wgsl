// y[b] = x[b, length - 1]
// x [B·L, D], y [B, D], D = 4·WIDTH4. Launch (ceil(WIDTH4 / 64), B).
// use _utterance
const WIDTH4: u32 = 1u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> utterances: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(
  @builtin(global_invocation_id) at: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
) {
  let base = at.y * WORDS;
  if (at.x >= WIDTH4 || utterances[base + DONE] != 0u) {
    return;
  }
  let length = arrayLength(&x) / (workgroups.y * WIDTH4);
  let row = min(max(utterances[base + LENGTH], 1u), length) - 1u;
  y[at.y * WIDTH4 + at.x] = x[(at.y * length + row) * WIDTH4 + at.x];
}
