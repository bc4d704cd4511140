// What teams that are a whole workgroup have in common; `row_sum4` and `main` are their own.
struct RowGroup {
  lane: u32,
  lanes: u32,
}

var<private> ROW_GROUP: RowGroup;

// The first row of this team, and the step to its next one: not from ROW_GROUP, since Tint holds private
// variables for non-uniform and refuses the barriers of a loop over them.
fn first_row(workgroup: u32) -> u32 {
  return workgroup;
}

fn row_step(workgroups: u32) -> u32 {
  return workgroups;
}

fn row_sum(x: f32) -> f32 {
  return row_sum4(vec4<f32>(x, 0.0, 0.0, 0.0)).x;
}
