// y = mean over time ‖ √max(variance, 1e-12)      x [T, 4·WIDTH4] -> y [1, 8·WIDTH4]
// With SCORES weighted by their softmax over time, channel by channel. T is that of the binding.
// A workgroup takes 4 columns of vec4s, 32 invocations each, which are summed in shared memory.
// Launch ceil(WIDTH4 / 4).
const WIDTH4: u32 = 1u;
const SCORES: bool = false;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> scores: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

var<workgroup> values: array<vec4<f32>, 128>;

fn column_sum(value: vec4<f32>, me: u32) -> vec4<f32> {
  values[me] = value;
  workgroupBarrier();
  var sum = vec4<f32>();
  for (var i = me % 4u; i < 128u; i += 4u) {
    sum += values[i];
  }
  workgroupBarrier();
  return sum;
}

fn column_max(value: vec4<f32>, me: u32) -> vec4<f32> {
  values[me] = value;
  workgroupBarrier();
  var top = value;
  for (var i = me % 4u; i < 128u; i += 4u) {
    top = max(top, values[i]);
  }
  workgroupBarrier();
  return top;
}

fn weight(at: u32, top: vec4<f32>) -> vec4<f32> {
  if (SCORES) {
    return exp(scores[at] - top);
  }
  return vec4<f32>(1.0);
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let count = arrayLength(&x);
  let column = workgroup.x * 4u + me % 4u;
  let begin = select(count, me / 4u * WIDTH4 + column, column < WIDTH4);
  let step = 32u * WIDTH4;
  var top = vec4<f32>(-3.0e38);
  if (SCORES) {
    for (var at = begin; at < count; at += step) {
      top = max(top, scores[at]);
    }
    top = column_max(top, me);
  }
  var weights = vec4<f32>();
  var sum = vec4<f32>();
  for (var at = begin; at < count; at += step) {
    let share = weight(at, top);
    weights += share;
    sum += share * x[at];
  }
  weights = column_sum(weights, me);
  let mean = column_sum(sum, me) / weights;
  var square = vec4<f32>();
  for (var at = begin; at < count; at += step) {
    let difference = x[at] - mean;
    square += weight(at, top) * difference * difference;
  }
  let variance = column_sum(square, me) / weights;
  if (me < 4u && column < WIDTH4) {
    y[column] = mean;
    y[WIDTH4 + column] = sqrt(max(variance, vec4<f32>(1e-12)));
  }
}
