// size[0] = invocations of a subgroup      Launch one workgroup.
// use _row_reduce_subgroup for ROW_REDUCE: subgroup, workgroup, shared
@group(0) @binding(0) var<storage, read_write> size: array<f32>;

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  if (ROW_GROUP.lane == 0u && ROW_GROUP.index == 0u) {
    size[0] = f32(ROW_GROUP.lanes);
  }
}
