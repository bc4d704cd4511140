enable subgroups;
diagnostic(off, subgroup_uniformity);
// A row is reduced by a subgroup, of the size that the hardware has: no shared memory, no barrier.
// Paste, then define `fn run(workgroup: vec3<u32>, workgroups: vec3<u32>)`. ROW_GROUP.index counts the
// subgroups of a workgroup.
const WORKGROUP: u32 = 128u;

struct RowGroup {
  lane: u32,
  lanes: u32,
  index: u32,
  count: u32,
}

var<private> ROW_GROUP: RowGroup;

// The first row of this subgroup, and the step to its next one.
fn first_row(workgroup: u32) -> u32 {
  return workgroup * ROW_GROUP.count + ROW_GROUP.index;
}

fn row_step(workgroups: u32) -> u32 {
  return workgroups * ROW_GROUP.count;
}

fn row_sum(x: f32) -> f32 {
  return subgroupAdd(x);
}

fn row_sum4(x: vec4<f32>) -> vec4<f32> {
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
  ROW_GROUP = RowGroup(lane, lanes, index, count);
  run(workgroup, workgroups);
}
