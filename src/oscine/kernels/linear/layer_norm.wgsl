// y[r] = (x[r] - mean) / sqrt(variance + EPS) · weight + bias      x, y [R, 4·WIDTH4]
// A row a subgroup or workgroup; launch ceil(R / rows of a workgroup) workgroups, folded at 65,535.
// use _row_reduce_subgroup for ROW_REDUCE: subgroup, workgroup, shared
// use _store_f32 for STORE: f32, f16
const ROWS: u32 = 1u;
const WIDTH4: u32 = 1u;
const EPS: f32 = 1e-5;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<Stored>;

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let width = f32(4u * WIDTH4);
  for (var r = first_row(workgroup.x); r < ROWS; r += row_step(workgroups.x)) {
    var sum = vec4<f32>();
    for (var i = ROW_GROUP.lane; i < WIDTH4; i += ROW_GROUP.lanes) {
      sum += x[r * WIDTH4 + i];
    }
    let mean = dot(row_sum4(sum), vec4<f32>(1.0)) / width;
    var squares = vec4<f32>();
    for (var i = ROW_GROUP.lane; i < WIDTH4; i += ROW_GROUP.lanes) {
      let centred = x[r * WIDTH4 + i] - mean;
      squares += centred * centred;
    }
    let variance = dot(row_sum4(squares), vec4<f32>(1.0)) / width;
    let scale = 1.0 / sqrt(variance + EPS);
    for (var i = ROW_GROUP.lane; i < WIDTH4; i += ROW_GROUP.lanes) {
      let normal = (x[r * WIDTH4 + i] - mean) * scale;
      y[r * WIDTH4 + i] = stored(normal * weight[i] + bias[i]);
    }
  }
}
