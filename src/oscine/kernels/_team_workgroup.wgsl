// A team is a whole workgroup: for hardware without subgroups.
// Paste, then define `fn run(workgroup: vec3<u32>, workgroups: vec3<u32>)`; TEAM.index is always 0.
const WORKGROUP: u32 = 128u;

struct Team {
  lane: u32,
  lanes: u32,
  index: u32,
  count: u32,
}

var<private> TEAM: Team;

// The first row of this team, and the step to its next one: not from TEAM, since Tint holds private
// variables for non-uniform and refuses the barriers of a loop over them.
fn team_first(workgroup: u32) -> u32 {
  return workgroup;
}

fn team_step(workgroups: u32) -> u32 {
  return workgroups;
}

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

fn team_sum(x: f32) -> f32 {
  return team_sum4(vec4<f32>(x, 0.0, 0.0, 0.0)).x;
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  TEAM = Team(lane, WORKGROUP, 0u, 1u);
  run(workgroup, workgroups);
}
