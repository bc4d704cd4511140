// y[r, i] = activation(x[r, i]) · x[r, I + i]      x [R, 2·I], y [R, I], I = 4·WIDTH4
// Launch (ceil(WIDTH4 / 64), R), the rows folded at 65,535.
// use _activation
const ROWS: u32 = 1u;
const WIDTH4: u32 = 1u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(
  @builtin(global_invocation_id) me: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
) {
  let i = me.x;
  if (i >= WIDTH4) {
    return;
  }
  for (var r = me.y; r < ROWS; r += workgroups.y) {
    let gate = x[2u * r * WIDTH4 + i];
    let open = vec4<f32>(activate(gate.x), activate(gate.y), activate(gate.z), activate(gate.w));
    y[r * WIDTH4 + i] = open * x[(2u * r + 1u) * WIDTH4 + i];
  }
}
