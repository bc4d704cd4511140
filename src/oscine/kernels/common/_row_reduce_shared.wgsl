// A row is reduced by a workgroup in shared memory: for hardware without subgroups.
// Paste, then define `fn run(workgroup: vec3<u32>, workgroups: vec3<u32>)`.
const WORKGROUP: u32 = 128u;

// use _row_per_workgroup

var<workgroup> ROW_SHARED: array<vec4<f32>, WORKGROUP>;

fn row_sum4(x: vec4<f32>) -> vec4<f32> {
  ROW_SHARED[ROW_GROUP.lane] = x;
  workgroupBarrier();
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    if (ROW_GROUP.lane < half) {
      ROW_SHARED[ROW_GROUP.lane] += ROW_SHARED[ROW_GROUP.lane + half];
    }
    workgroupBarrier();
  }
  let sum = ROW_SHARED[0];
  workgroupBarrier();
  return sum;
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  ROW_GROUP = RowGroup(lane, WORKGROUP);
  run(workgroup, workgroups);
}
