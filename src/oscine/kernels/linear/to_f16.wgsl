// y = x rounded to float16, two to a word: no half-precision feature is needed
// x and y of 4·COUNT4 values. Launch ceil(COUNT4 / 64) workgroups, folded at 65,535.
// use _store_f16
const COUNT4: u32 = 1u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<Stored>;

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let i = (workgroup.y * workgroups.x + workgroup.x) * 64u + me;
  if (i < COUNT4) {
    y[i] = stored(x[i]);
  }
}
