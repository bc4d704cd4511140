// Shared by the reductions of a row by a whole workgroup, which define `row_sum4` and `main`.
struct RowGroup {
  lane: u32,
  lanes: u32,
}

var<private> ROW_GROUP: RowGroup;

// The first row of this workgroup, and the step to its next one: not from ROW_GROUP, since Tint takes
// private variables as non-uniform and refuses the barriers of a loop over them.
fn first_row(workgroup: u32) -> u32 {
  return workgroup;
}

fn row_step(workgroups: u32) -> u32 {
  return workgroups;
}

fn row_sum(x: f32) -> f32 {
  return row_sum4(vec4<f32>(x, 0.0, 0.0, 0.0)).x;
}
