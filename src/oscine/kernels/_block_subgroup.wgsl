enable subgroups;
diagnostic(off, subgroup_uniformity);
// Sum and maximum over a workgroup of BLOCK_LANES, known to all of it: by subgroups, then one barrier.
const BLOCK_LANES: u32 = 128u;

var<workgroup> block_values: array<f32, BLOCK_LANES>;

fn block_sum(me: u32, value: f32) -> f32 {
  block_values[me] = subgroupAdd(value);
  let lanes = subgroupAdd(1u);
  workgroupBarrier();
  var sum = 0.0;
  for (var i = 0u; i < BLOCK_LANES; i += lanes) {
    sum += block_values[i];
  }
  workgroupBarrier();
  return sum;
}

fn block_max(me: u32, value: f32) -> f32 {
  block_values[me] = subgroupMax(value);
  let lanes = subgroupAdd(1u);
  workgroupBarrier();
  var top = block_values[0];
  for (var i = lanes; i < BLOCK_LANES; i += lanes) {
    top = max(top, block_values[i]);
  }
  workgroupBarrier();
  return top;
}

// Sum over 1 or 4 lanes side by side, known to each of them; no subgroup has fewer than 4.
fn neighbour_sum(value: f32, lanes: u32) -> f32 {
  if (lanes == 1u) {
    return value;
  }
  let pair = value + subgroupShuffleXor(value, 1u);
  return pair + subgroupShuffleXor(pair, 2u);
}
