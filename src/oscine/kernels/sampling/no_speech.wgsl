// state[b].no_speech_prob = softmax(logits[LINES + b])[params[state.slot].no_speech]
// logits [2·LINES, V], params [SLOTS]. One workgroup a line; launch (LINES).
// use _text_decoder_state
// use _decode_params
const LINES: u32 = 1u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> params: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;

// use _workgroup_reduce_subgroup for WORKGROUP_REDUCE: subgroup, shared

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let base = workgroup.x * WORDS;
  let rule = state[base + SLOT] * PARAMS_WORDS;
  let count = params[rule + VOCABULARY];
  let row = (LINES + workgroup.x) * count;
  var top = -1e30;
  for (var i = me; i < count; i += 128u) {
    top = max(top, logits[row + i]);
  }
  top = workgroup_max(me, top);
  var total = 0.0;
  for (var i = me; i < count; i += 128u) {
    total += exp(logits[row + i] - top);
  }
  total = workgroup_sum(me, total);
  if (me == 0u && state[base + DONE] == 0u) {
    let share = exp(logits[row + params[rule + NO_SPEECH]] - top) / total;
    state[base + NO_SPEECH_PROB] = bitcast<u32>(share);
  }
}
