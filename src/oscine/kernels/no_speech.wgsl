// state[b].no_speech_prob = softmax(logits[LINES + b])[rules.no_speech]
// logits [2·LINES, V]. One workgroup a line; launch (LINES).
// use _state
// use _rules
const LINES: u32 = 1u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> rules: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;

var<workgroup> shared_values: array<f32, 256>;

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let count = rules[VOCABULARY];
  let row = (LINES + workgroup.x) * count;
  var top = -1e30;
  for (var i = me; i < count; i += 256u) {
    top = max(top, logits[row + i]);
  }
  shared_values[me] = top;
  workgroupBarrier();
  for (var half = 128u; half > 0u; half /= 2u) {
    if (me < half) {
      shared_values[me] = max(shared_values[me], shared_values[me + half]);
    }
    workgroupBarrier();
  }
  top = shared_values[0];
  workgroupBarrier();
  var total = 0.0;
  for (var i = me; i < count; i += 256u) {
    total += exp(logits[row + i] - top);
  }
  shared_values[me] = total;
  workgroupBarrier();
  for (var half = 128u; half > 0u; half /= 2u) {
    if (me < half) {
      shared_values[me] += shared_values[me + half];
    }
    workgroupBarrier();
  }
  let base = workgroup.x * STATE_WORDS;
  if (me == 0u && state[base + DONE] == 0u) {
    let share = exp(logits[row + rules[NO_SPEECH]] - top) / shared_values[0];
    state[base + NO_SPEECH_PROB] = bitcast<u32>(share);
  }
}
