// y[r] = (argmax logits[r], its softmax); (-1, 0) where a logit is not finite
// logits [ROWS, WIDTH], y [ROWS, 2]. One workgroup a row; launch (GRID_WIDTH, ceil(ROWS / GRID_WIDTH)).
// use _neg_inf
const ROWS: u32 = 1u;
const WIDTH: u32 = 1u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<vec2<f32>>;

// use _workgroup_reduce_subgroup for WORKGROUP_REDUCE: subgroup, shared
// use _argmax

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let row = workgroup.y * workgroups.x + workgroup.x;
  if (row >= ROWS) {
    return;
  }
  var top = NEG_INF;
  var id = 0u;
  var broken = 0.0;
  for (var i = me; i < WIDTH; i += 128u) {
    let logit = logits[row * WIDTH + i];
    if ((bitcast<u32>(logit) & 0x7f800000u) == 0x7f800000u) {
      broken = 1.0;
    } else if (logit > top) {
      top = logit;
      id = i;
    }
  }
  let best = block_best(me, top, id);
  broken = workgroup_max(me, broken);
  var total = 0.0;
  for (var i = me; i < WIDTH; i += 128u) {
    total += exp(min(logits[row * WIDTH + i] - best.score, 0.0));
  }
  total = workgroup_sum(me, total);
  if (me == 0u) {
    y[row] = select(vec2<f32>(f32(best.id), 1.0 / total), vec2<f32>(-1.0, 0.0), broken > 0.0);
  }
}
