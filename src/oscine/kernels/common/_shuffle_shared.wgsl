// Values change hands by way of shared memory: for hardware without subgroups, or with small ones.
// Paste, then define `fn run(workgroup: vec3<u32>, me: u32)`.
const WORKGROUP: u32 = 128u;

var<workgroup> exchanged: array<vec4<f32>, WORKGROUP>;

fn shuffle(value: vec4<f32>, mask: u32, me: u32) -> vec4<f32> {
  exchanged[me] = value;
  workgroupBarrier();
  let other = exchanged[me ^ mask];
  workgroupBarrier();
  return other;
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  run(workgroup, me);
}
