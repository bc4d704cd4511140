// Sum and maximum over a workgroup of 128, known to all of it: for hardware without subgroups.
var<workgroup> block_values: array<f32, 128>;

fn block_sum(me: u32, value: f32) -> f32 {
  block_values[me] = value;
  workgroupBarrier();
  for (var half = 64u; half > 0u; half /= 2u) {
    if (me < half) {
      block_values[me] += block_values[me + half];
    }
    workgroupBarrier();
  }
  let sum = block_values[0];
  workgroupBarrier();
  return sum;
}

fn block_max(me: u32, value: f32) -> f32 {
  block_values[me] = value;
  workgroupBarrier();
  for (var half = 64u; half > 0u; half /= 2u) {
    if (me < half) {
      block_values[me] = max(block_values[me], block_values[me + half]);
    }
    workgroupBarrier();
  }
  let top = block_values[0];
  workgroupBarrier();
  return top;
}
