// y[b] = logits[b], text of the line's tokens divided by the penalty where positive, else multiplied
// by it; NEVER for text that would end a run of no_repeat_ngram tokens that came before.
// Source: transformers generation/logits_process.py. Each workgroup marks the ids of its stretch of
// CHUNK logits that the line's tokens name. logits and y [LINES, V], tokens [LINES, ROOM].
// Launch (ceil(V / CHUNK), LINES).
// use _state
// use _rules
// use _never
const CHUNK: u32 = 512u;
const ROOM: u32 = 448u;
const SAID: u32 = 1u;
const AGAIN: u32 = 2u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> rules: array<u32>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read> tokens: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

var<workgroup> marks: array<atomic<u32>, CHUNK>;

// Whether the token at `last` ended a run that begins as the latest tokens do.
fn ends_a_run(line: u32, last: u32, count: u32) -> bool {
  let size = rules[NO_REPEAT_NGRAM];
  if (size == 0u || last + 1u < size) {
    return false;
  }
  for (var back = 1u; back < size; back++) {
    if (tokens[line * ROOM + last - back] != tokens[line * ROOM + count - back]) {
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
  let start = workgroup.x * CHUNK;
  let end = min(start + CHUNK, rules[VOCABULARY]);
  let count = min(state[base + COUNT], ROOM);
  for (var i = me; i < count; i += 128u) {
    let token = tokens[line * ROOM + i];
    if (token >= start && token < min(end, rules[END])) {
      atomicOr(&marks[token - start], select(SAID, SAID | AGAIN, ends_a_run(line, i, count)));
    }
  }
  workgroupBarrier();
  let penalty = bitcast<f32>(rules[REPETITION_PENALTY]);
  for (var id = start + me; id < end; id += 128u) {
    let mark = atomicLoad(&marks[id - start]);
    var logit = logits[line * rules[VOCABULARY] + id];
    if ((mark & SAID) != 0u) {
      logit = select(logit * penalty, logit / penalty, logit > 0.0);
    }
    if ((mark & AGAIN) != 0u) {
      logit = NEVER;
    }
    y[line * rules[VOCABULARY] + id] = logit;
  }
}
