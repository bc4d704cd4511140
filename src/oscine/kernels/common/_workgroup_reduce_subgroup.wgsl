enable subgroups;
diagnostic(off, subgroup_uniformity);
// Sum and maximum over a workgroup of WORKGROUP_LANES, returned to all lanes: by subgroups, then one barrier.
const WORKGROUP_LANES: u32 = 128u;

var<workgroup> workgroup_values: array<f32, WORKGROUP_LANES>;

fn workgroup_sum(me: u32, value: f32) -> f32 {
  workgroup_values[me] = subgroupAdd(value);
  let lanes = subgroupAdd(1u);
  workgroupBarrier();
  var sum = 0.0;
  for (var i = 0u; i < WORKGROUP_LANES; i += lanes) {
    sum += workgroup_values[i];
  }
  workgroupBarrier();
  return sum;
}

fn workgroup_max(me: u32, value: f32) -> f32 {
  workgroup_values[me] = subgroupMax(value);
  let lanes = subgroupAdd(1u);
  workgroupBarrier();
  var top = workgroup_values[0];
  for (var i = lanes; i < WORKGROUP_LANES; i += lanes) {
    top = max(top, workgroup_values[i]);
  }
  workgroupBarrier();
  return top;
}

// Sum over 1 or 4 adjacent lanes, returned to each of them; no subgroup has fewer than 4.
fn lanes_sum(value: f32, lanes: u32) -> f32 {
  if (lanes == 1u) {
    return value;
  }
  let pair = value + subgroupShuffleXor(value, 1u);
  return pair + subgroupShuffleXor(pair, 2u);
}
