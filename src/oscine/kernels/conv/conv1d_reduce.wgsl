// y[r, o] = activation(Σ_s sums[s, r, o] + b[o]) + add[r, o]      sums [parts, R, OUTPUTS]
// y and add [R, OUTPUTS], OUTPUTS a multiple of 4; R and the parts are those of the bindings.
// Launch ceil(R · OUTPUTS / 512), folded at 65,535.
// use _conv_epilogue
const OUTPUTS: u32 = 4u;
const BIAS: bool = false;
const ADD: bool = false;

@group(0) @binding(0) var<storage, read> sums: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> add: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let i = (workgroup.y * workgroups.x + workgroup.x) * 128u + me;
  let count = arrayLength(&y);
  if (i >= count) {
    return;
  }
  var value = vec4<f32>();
  for (var at = i; at < arrayLength(&sums); at += count) {
    value += sums[at];
  }
  y[i] = epilogue(i, i % (OUTPUTS / 4u), value);
}
