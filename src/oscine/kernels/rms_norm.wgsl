// y[r] = x[r] / sqrt(mean x[r]² + EPS) · weight      x, y [R, 4·WIDTH4]
// One row a team; launch ceil(R / teams of a workgroup) workgroups, folded at 65,535.
// use _team_subgroup
// use _store_f32
const ROWS: u32 = 1u;
const WIDTH4: u32 = 1u;
const EPS: f32 = 1e-6;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<Stored>;

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  for (var r = team_first(workgroup.x); r < ROWS; r += team_step(workgroups.x)) {
    var square = 0.0;
    for (var i = TEAM.lane; i < WIDTH4; i += TEAM.lanes) {
      let four = x[r * WIDTH4 + i];
      square += dot(four, four);
    }
    let scale = 1.0 / sqrt(team_sum(square) / f32(4u * WIDTH4) + EPS);
    for (var i = TEAM.lane; i < WIDTH4; i += TEAM.lanes) {
      y[r * WIDTH4 + i] = stored(scale * x[r * WIDTH4 + i] * weight[i]);
    }
  }
}
