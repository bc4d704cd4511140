enable subgroups;
diagnostic(off, subgroup_uniformity);
// A team is a subgroup, of whatever size the hardware gives: no shared memory, no barrier.
// Paste, then define `fn run(workgroup: vec3<u32>, workgroups: vec3<u32>)`. TEAM.index counts the
// teams of a workgroup.
const WORKGROUP: u32 = 128u;

struct Team {
  lane: u32,
  lanes: u32,
  index: u32,
  count: u32,
}

var<private> TEAM: Team;

// The first row of this team, and the step to its next one.
fn team_first(workgroup: u32) -> u32 {
  return workgroup * TEAM.count + TEAM.index;
}

fn team_step(workgroups: u32) -> u32 {
  return workgroups * TEAM.count;
}

fn team_sum(x: f32) -> f32 {
  return subgroupAdd(x);
}

fn team_sum4(x: vec4<f32>) -> vec4<f32> {
  return subgroupAdd(x);
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(subgroup_invocation_id) lane: u32,
  @builtin(subgroup_size) lanes: u32,
  @builtin(subgroup_id) index: u32,
  @builtin(num_subgroups) count: u32,
) {
  TEAM = Team(lane, lanes, index, count);
  run(workgroup, workgroups);
}
