// Sum and maximum over a workgroup of BLOCK_LANES, known to all of it: for hardware without subgroups.
// Eight invocations take sixteen values each, then all take those eight: fewer barriers than halving.
const BLOCK_LANES: u32 = 128u;

var<workgroup> block_values: array<f32, BLOCK_LANES>;
var<workgroup> block_eight: array<f32, 8>;

fn block_sum(me: u32, value: f32) -> f32 {
  block_values[me] = value;
  workgroupBarrier();
  if (me < 8u) {
    var part = 0.0;
    for (var i = me; i < BLOCK_LANES; i += 8u) {
      part += block_values[i];
    }
    block_eight[me] = part;
  }
  workgroupBarrier();
  var sum = 0.0;
  for (var i = 0u; i < 8u; i++) {
    sum += block_eight[i];
  }
  return sum;
}

fn block_max(me: u32, value: f32) -> f32 {
  block_values[me] = value;
  workgroupBarrier();
  if (me < 8u) {
    var part = block_values[me];
    for (var i = me + 8u; i < BLOCK_LANES; i += 8u) {
      part = max(part, block_values[i]);
    }
    block_eight[me] = part;
  }
  workgroupBarrier();
  var top = block_eight[0];
  for (var i = 1u; i < 8u; i++) {
    top = max(top, block_eight[i]);
  }
  return top;
}

// Without subgroups a lane has no neighbours: `lanes` is 1.
fn neighbour_sum(value: f32, lanes: u32) -> f32 {
  return value;
}
