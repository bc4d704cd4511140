// y = activation(x), of any shape. Launch ceil(values / 128), folded at 65,535.
// use _activation
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let i = (workgroup.y * workgroups.x + workgroup.x) * 128u + me;
  if (i < arrayLength(&y)) {
    y[i] = activate(x[i]);
  }
}
