// size[0] = invocations of a team      Launch one workgroup.
// use _team_subgroup
@group(0) @binding(0) var<storage, read_write> size: array<f32>;

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  if (TEAM.lane == 0u && TEAM.index == 0u) {
    size[0] = f32(TEAM.lanes);
  }
}
