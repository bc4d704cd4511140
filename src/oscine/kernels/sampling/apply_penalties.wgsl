// y[b] = logits[b], text of the line's tokens divided by the penalty where positive, else multiplied
// by it; NEG_INF for text that would end a run of no_repeat_ngram tokens that came before.
// Source: transformers generation/logits_process.py. Each workgroup marks the ids of its stretch of
// CHUNK logits that the line's tokens name; a penalty of 1 marks none, as y must be the logits then.
// logits and y [LINES, V], tokens [SLOTS, CAPACITY], params [SLOTS].
// Launch (ceil(V / CHUNK), LINES).
// use _text_decoder_state
// use _decode_params
// use _neg_inf
const CHUNK: u32 = 512u;
const CAPACITY: u32 = 448u;
const SAID: u32 = 1u;
const AGAIN: u32 = 2u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> params: array<u32>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read> tokens: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

var<workgroup> marks: array<atomic<u32>, CHUNK>;

// Whether the token at `last` ended a run that begins as the latest tokens do.
fn ends_a_run(first: u32, last: u32, count: u32, size: u32) -> bool {
  if (size == 0u || last + 1u < size) {
    return false;
  }
  for (var back = 1u; back < size; back++) {
    if (tokens[first + last - back] != tokens[first + count - back]) {
      return false;
    }
  }
  return true;
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let line = workgroup.y;
  let base = line * WORDS;
  if (state[base + DONE] != 0u) {
    return;
  }
  for (var i = me; i < CHUNK; i += 128u) {
    atomicStore(&marks[i], 0u);
  }
  workgroupBarrier();
  let slot = state[base + SLOT];
  let rule = slot * PARAMS_WORDS;
  let vocabulary = params[rule + VOCABULARY];
  let penalty = bitcast<f32>(params[rule + REPETITION_PENALTY]);
  let size = params[rule + NO_REPEAT_NGRAM];
  let said = select(SAID, 0u, penalty == 1.0);
  let start = workgroup.x * CHUNK;
  let end = min(start + CHUNK, vocabulary);
  let count = select(min(state[base + COUNT], CAPACITY), 0u, said == 0u && size == 0u);
  for (var i = me; i < count; i += 128u) {
    let token = tokens[slot * CAPACITY + i];
    if (token >= start && token < min(end, params[rule + END])) {
      let again = ends_a_run(slot * CAPACITY, i, count, size);
      atomicOr(&marks[token - start], select(said, said | AGAIN, again));
    }
  }
  workgroupBarrier();
  for (var id = start + me; id < end; id += 128u) {
    let mark = atomicLoad(&marks[id - start]);
    var logit = logits[line * vocabulary + id];
    if ((mark & SAID) != 0u) {
      logit = select(logit * penalty, logit / penalty, logit > 0.0);
    }
    if ((mark & AGAIN) != 0u) {
      logit = NEG_INF;
    }
    y[line * vocabulary + id] = logit;
  }
}
