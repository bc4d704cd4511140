// Sum and maximum over a workgroup of WORKGROUP_LANES, returned to all lanes: for hardware without subgroups.
// Eight invocations sum sixteen values each, then all sum those eight: fewer barriers than a tree.
const WORKGROUP_LANES: u32 = 128u;

var<workgroup> workgroup_values: array<f32, WORKGROUP_LANES>;
var<workgroup> workgroup_partials: array<f32, 8>;

fn workgroup_sum(me: u32, value: f32) -> f32 {
  workgroup_values[me] = value;
  workgroupBarrier();
  if (me < 8u) {
    var part = 0.0;
    for (var i = me; i < WORKGROUP_LANES; i += 8u) {
      part += workgroup_values[i];
    }
    workgroup_partials[me] = part;
  }
  workgroupBarrier();
  var sum = 0.0;
  for (var i = 0u; i < 8u; i++) {
    sum += workgroup_partials[i];
  }
  return sum;
}

fn workgroup_max(me: u32, value: f32) -> f32 {
  workgroup_values[me] = value;
  workgroupBarrier();
  if (me < 8u) {
    var part = workgroup_values[me];
    for (var i = me + 8u; i < WORKGROUP_LANES; i += 8u) {
      part = max(part, workgroup_values[i]);
    }
    workgroup_partials[me] = part;
  }
  workgroupBarrier();
  var top = workgroup_partials[0];
  for (var i = 1u; i < 8u; i++) {
    top = max(top, workgroup_partials[i]);
  }
  return top;
}

// Without subgroups `lanes` is 1.
fn lanes_sum(value: f32, lanes: u32) -> f32 {
  return value;
}
