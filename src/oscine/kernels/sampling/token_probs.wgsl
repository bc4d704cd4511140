// y[b, l] = softmax(logits[b, l, ids below end])[prompt[b, l + 1]]; 0 for other tokens and row L - 1
// logits [LINES·L, V], prompt [LINES, L], y [LINES·L]; end is of params[state.slot], params [SLOTS].
// One workgroup a row; launch (LINES·L).
// use _text_decoder_state
// use _decode_params
// use _neg_inf
const L: u32 = 1u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> prompt: array<u32>;
@group(0) @binding(2) var<storage, read> params: array<u32>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

// use _workgroup_reduce_subgroup for WORKGROUP_REDUCE: subgroup, shared

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let l = workgroup.x % L;
  let rule = state[workgroup.x / L * WORDS + SLOT] * PARAMS_WORDS;
  let row = workgroup.x * params[rule + VOCABULARY];
  let count = params[rule + END];
  let token = prompt[workgroup.x + select(1u, 0u, l + 1u == L)];
  if (l + 1u == L || token >= count) {
    if (me == 0u) {
      y[workgroup.x] = 0.0;
    }
    return;
  }
  var top = NEG_INF;
  for (var id = me; id < count; id += 128u) {
    top = max(top, logits[row + id]);
  }
  top = workgroup_max(me, top);
  var total = 0.0;
  for (var id = me; id < count; id += 128u) {
    total += exp(logits[row + id] - top);
  }
  total = workgroup_sum(me, total);
  if (me == 0u) {
    y[workgroup.x] = exp(logits[row + token] - top) / total;
  }
}
