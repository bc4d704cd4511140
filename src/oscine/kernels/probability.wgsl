// y[r] = softmax(logits[r, ids below rules.end])[prompt[r + 1]]; 0 for other tokens and the last row
// logits [ROWS, V], prompt [ROWS], y [ROWS]. One workgroup a row; launch (ROWS).
// use _rules
// use _never
const ROWS: u32 = 1u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> prompt: array<u32>;
@group(0) @binding(2) var<storage, read> rules: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

// use _block_subgroup

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let row = workgroup.x * rules[VOCABULARY];
  let count = rules[END];
  let token = prompt[min(workgroup.x + 1u, ROWS - 1u)];
  if (workgroup.x + 1u == ROWS || token >= count) {
    if (me == 0u) {
      y[workgroup.x] = 0.0;
    }
    return;
  }
  var top = NEVER;
  for (var id = me; id < count; id += 128u) {
    top = max(top, logits[row + id]);
  }
  top = block_max(me, top);
  var total = 0.0;
  for (var id = me; id < count; id += 128u) {
    total += exp(logits[row + id] - top);
  }
  total = block_sum(me, total);
  if (me == 0u) {
    y[workgroup.x] = exp(logits[row + token] - top) / total;
  }
}
