// y[r] = x[r] / sqrt(mean x[r]² + EPS) · weight      x, y [R, 4·WIDTH4]
// A row a subgroup or workgroup; launch ceil(R / rows of a workgroup) workgroups, folded at 65,535.
// use _row_reduce_subgroup for ROW_REDUCE: subgroup, workgroup, shared
// use _store_f32 for STORE: f32, f16
const ROWS: u32 = 1u;
const WIDTH4: u32 = 1u;
const EPS: f32 = 1e-6;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<Stored>;

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  for (var r = first_row(workgroup.x); r < ROWS; r += row_step(workgroups.x)) {
    var square = 0.0;
    for (var i = ROW_GROUP.lane; i < WIDTH4; i += ROW_GROUP.lanes) {
      let four = x[r * WIDTH4 + i];
      square += dot(four, four);
    }
    let scale = 1.0 / sqrt(row_sum(square) / f32(4u * WIDTH4) + EPS);
    for (var i = ROW_GROUP.lane; i < WIDTH4; i += ROW_GROUP.lanes) {
      y[r * WIDTH4 + i] = stored(scale * x[r * WIDTH4 + i] * weight[i]);
    }
  }
}
