// y[b] = maximum ‖ mean ‖ standard deviation of the first frames[b] rows of x[b·T ..], column by column
// x [B·T, WIDTH], y [B, 3·WIDTH]. Of frames[b] 1 to T are taken; the divisor of the variance is one less than
// their number. Sums are of distances from the first row: equal values deviate by nothing, whatever rounding.
// A workgroup takes a column of a sequence. Launch (WIDTH, B).
// use _workgroup_reduce_subgroup for WORKGROUP_REDUCE: subgroup, shared
const WIDTH: u32 = 1u;
const PER: u32 = 1u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> frames: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP_LANES)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let rows = arrayLength(&x) / (WIDTH * workgroups.y);
  let count = clamp((frames[workgroup.y] + PER - 1u) / PER, 1u, rows);
  let begin = workgroup.y * rows * WIDTH + workgroup.x;
  let pivot = x[begin];
  var top = 0.0;
  var sum = 0.0;
  for (var row = me; row < count; row += WORKGROUP_LANES) {
    let distance = x[begin + row * WIDTH] - pivot;
    top = max(top, distance);
    sum += distance;
  }
  let greatest = workgroup_max(me, top);
  workgroupBarrier();
  let mean = workgroup_sum(me, sum) / f32(count);
  workgroupBarrier();
  var squares = 0.0;
  for (var row = me; row < count; row += WORKGROUP_LANES) {
    let distance = x[begin + row * WIDTH] - pivot - mean;
    squares += distance * distance;
  }
  let variance = workgroup_sum(me, squares) / f32(max(count, 2u) - 1u);
  if (me == 0u) {
    let to = workgroup.y * 3u * WIDTH + workgroup.x;
    y[to] = pivot + greatest;
    y[to + WIDTH] = pivot + mean;
    y[to + 2u * WIDTH] = sqrt(variance);
  }
}
