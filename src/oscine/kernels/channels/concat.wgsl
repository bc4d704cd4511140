// y[t] = … ‖ a[t] ‖ b[t] ‖ c[t] ‖ d[t] ‖ …      up to four parts, among y's columns
// a [T, 4·A4] and so on, 0: no such part; y [T, 4·WIDTH4], of which they take the columns from
// 4·FIRST4 on. A part whose row has no STEP is one row, which is copied to every row of y. T is that of
// y's binding. Launch ceil(T · (A4 + B4 + C4 + D4) / 128), folded at 65,535.
const A4: u32 = 1u;
const B4: u32 = 0u;
const C4: u32 = 0u;
const D4: u32 = 0u;
const A_STEP4: u32 = A4;
const B_STEP4: u32 = B4;
const C_STEP4: u32 = C4;
const D_STEP4: u32 = D4;
const WIDTH4: u32 = 1u;
const FIRST4: u32 = 0u;
const TAKEN4: u32 = A4 + B4 + C4 + D4;

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> c: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> d: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

fn value(row: u32, column: u32) -> vec4<f32> {
  if (column < A4) {
    return a[row * A_STEP4 + column];
  }
  if (column < A4 + B4) {
    return b[row * B_STEP4 + column - A4];
  }
  if (column < A4 + B4 + C4) {
    return c[row * C_STEP4 + column - A4 - B4];
  }
  return d[row * D_STEP4 + column - A4 - B4 - C4];
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let i = (workgroup.y * workgroups.x + workgroup.x) * 128u + me;
  let row = i / TAKEN4;
  let column = i % TAKEN4;
  let at = row * WIDTH4 + FIRST4 + column;
  if (at < arrayLength(&y)) {
    y[at] = value(row, column);
  }
}
