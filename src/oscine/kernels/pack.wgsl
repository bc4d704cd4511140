// y = x rounded to float16, two to a word: no half-precision feature is needed
// x and y [ROWS, 4·WIDTH4]. Launch (ceil(WIDTH4 / 64), ROWS).
// use _stored_f16
const WIDTH4: u32 = 1u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<Stored>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  if (at.x >= WIDTH4) {
    return;
  }
  let i = at.y * WIDTH4 + at.x;
  y[i] = stored(x[i]);
}
