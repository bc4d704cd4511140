// y = x in float16, for matrix units      4·COUNT4 numbers
// Launch up to ceil(COUNT4 / 256) workgroups.
// use _stored_f16
const COUNT4: u32 = 1u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<Stored>;

@compute @workgroup_size(256)
fn main(
  @builtin(global_invocation_id) me: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
) {
  for (var at = me.x; at < COUNT4; at += 256u * workgroups.x) {
    y[at] = stored(x[at]);
  }
}
