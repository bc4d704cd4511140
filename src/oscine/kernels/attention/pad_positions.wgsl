// y[i] = x[clamp(FIRST + i, 0, LAST)] in float16, for i below COUNT: rows by distance, the outer
// ones again where there are none
// x [LAST + 1, 4·D4]; y [COUNT, 4·D4]. Launch (ceil(D4 / 64), min(COUNT, 65,535)).
// use _store_f16
const COUNT: u32 = 1u;
const D4: u32 = 1u;
const FIRST: i32 = 0;
const LAST: u32 = 0u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<Stored>;

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let c = workgroup.x * 64u + me;
  if (c >= D4) {
    return;
  }
  for (var i = workgroup.y; i < COUNT; i += workgroups.y) {
    let row = u32(clamp(FIRST + i32(i), 0, i32(LAST)));
    y[i * D4 + c] = stored(x[row * D4 + c]);
  }
}
