enable subgroups;
diagnostic(off, subgroup_uniformity);
// A row is reduced by a workgroup of several subgroups, for long and few rows: each subgroup sums by
// itself, then all read the subgroups' sums after one barrier.
// Paste, then define `fn run(workgroup: vec3<u32>, workgroups: vec3<u32>)`.
const WORKGROUP: u32 = 128u;

// use _row_per_workgroup

var<private> ROW_SUBGROUP: u32;
var<workgroup> row_sums: array<vec4<f32>, WORKGROUP>;

fn row_sum4(x: vec4<f32>) -> vec4<f32> {
  row_sums[ROW_GROUP.lane] = subgroupAdd(x);
  workgroupBarrier();
  var sum = vec4<f32>();
  for (var i = 0u; i < WORKGROUP; i += ROW_SUBGROUP) {
    sum += row_sums[i];
  }
  workgroupBarrier();
  return sum;
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
  @builtin(subgroup_size) lanes: u32,
) {
  ROW_GROUP = RowGroup(lane, WORKGROUP);
  ROW_SUBGROUP = lanes;
  run(workgroup, workgroups);
}
