// y[t] = x[t, 4·FIRST4 .. 4·(FIRST4 + COUNT4)] + add[t]
// x [T, 4·WIDTH4], y and add [T, 4·COUNT4]. Launch ceil(T · COUNT4 / 128), folded at 65,535.
const WIDTH4: u32 = 1u;
const FIRST4: u32 = 0u;
const COUNT4: u32 = 1u;
const ADD: bool = false;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> add: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let i = (workgroup.y * workgroups.x + workgroup.x) * 128u + me;
  if (i < arrayLength(&y)) {
    var value = x[i / COUNT4 * WIDTH4 + FIRST4 + i % COUNT4];
    if (ADD) {
      value += add[i];
    }
    y[i] = value;
  }
}
