// What teams that are a whole workgroup have in common; `team_sum4` and `main` are their own.
struct Team {
  lane: u32,
  lanes: u32,
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

fn team_sum(x: f32) -> f32 {
  return team_sum4(vec4<f32>(x, 0.0, 0.0, 0.0)).x;
}
