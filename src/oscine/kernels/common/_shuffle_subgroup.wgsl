enable subgroups;
diagnostic(off, subgroup_uniformity);
// Values change hands between lanes of a subgroup, which has at least 8.
// Paste, then define `fn run(workgroup: vec3<u32>, me: u32)`.
const WORKGROUP: u32 = 128u;

fn shuffle(value: vec4<f32>, mask: u32, me: u32) -> vec4<f32> {
  return subgroupShuffleXor(value, mask);
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(subgroup_invocation_id) lane: u32,
  @builtin(subgroup_size) lanes: u32,
  @builtin(subgroup_id) index: u32,
) {
  run(workgroup, index * lanes + lane);
}
