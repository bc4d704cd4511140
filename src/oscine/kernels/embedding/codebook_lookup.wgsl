// y[t] = Σ_g tables[g, codes[t, FIRST + g]]
// codes [T, STRIDE], tables [COUNT, ENTRIES, 4·WIDTH4], y [T, 4·WIDTH4]; T is that of the binding. A
// code past the table's end is its last. Launch ceil(T · WIDTH4 / 128), folded at 65,535.
const COUNT: u32 = 1u;
const ENTRIES: u32 = 1u;
const FIRST: u32 = 0u;
const STRIDE: u32 = 1u;
const WIDTH4: u32 = 1u;

@group(0) @binding(0) var<storage, read> codes: array<u32>;
@group(0) @binding(1) var<storage, read> tables: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let i = (workgroup.y * workgroups.x + workgroup.x) * 128u + me;
  if (i >= arrayLength(&y)) {
    return;
  }
  let row = i / WIDTH4;
  var sum = vec4<f32>();
  for (var g = 0u; g < COUNT; g++) {
    let code = min(codes[row * STRIDE + FIRST + g], ENTRIES - 1u);
    sum += tables[(g * ENTRIES + code) * WIDTH4 + i % WIDTH4];
  }
  y[i] = sum;
}
