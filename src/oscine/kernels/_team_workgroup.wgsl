// A team is a whole workgroup: for hardware without subgroups.
// Paste, then define `fn run(workgroup: vec3<u32>, workgroups: vec3<u32>)`.
const WORKGROUP: u32 = 128u;

// use _whole_workgroup

var<workgroup> TEAM_SHARED: array<vec4<f32>, WORKGROUP>;

fn team_sum4(x: vec4<f32>) -> vec4<f32> {
  TEAM_SHARED[TEAM.lane] = x;
  workgroupBarrier();
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    if (TEAM.lane < half) {
      TEAM_SHARED[TEAM.lane] += TEAM_SHARED[TEAM.lane + half];
    }
    workgroupBarrier();
  }
  let sum = TEAM_SHARED[0];
  workgroupBarrier();
  return sum;
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  TEAM = Team(lane, WORKGROUP);
  run(workgroup, workgroups);
}
