// y = (x - mean) / (deviation + EPSILON), of the column's, or with PEAK
// y = max(x, peak - RANGE) / 4 + 1, where peak is the greatest maximum of all columns
// x and y [B·T, WIDTH]; stats [B, 3·WIDTH] are maxima ‖ means ‖ deviations. Launch ceil(values / 128), folded at 65,535.
const WIDTH: u32 = 1u;
const PEAK: bool = false;
const RANGE: f32 = 8.0;
const EPSILON: f32 = 1e-5;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> stats: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let count = arrayLength(&x);
  let i = (workgroup.y * workgroups.x + workgroup.x) * 128u + me;
  if (i >= count) {
    return;
  }
  let sequences = arrayLength(&stats) / (3u * WIDTH);
  let begin = i / (count / sequences) * 3u * WIDTH;
  if (PEAK) {
    var peak = stats[begin];
    for (var column = 1u; column < WIDTH; column++) {
      peak = max(peak, stats[begin + column]);
    }
    y[i] = max(x[i], peak - RANGE) / 4.0 + 1.0;
  } else {
    let column = begin + i % WIDTH;
    y[i] = (x[i] - stats[column + WIDTH]) / (stats[column + 2u * WIDTH] + EPSILON);
  }
}
