// Candidates of each stretch of CHUNK logits, text and timestamps apart, filtered by all but rule e.
// logits [.., V], of which line b has row b / ROWS_PER_LOGITS; parts [LINES, CHUNKS, 2] of
// Candidates; params [SLOTS], masks [.., V].
// Launch (CHUNKS, LINES).
// use _text_decoder_state
// use _decode_params
// use _candidates
const CHUNK: u32 = 512u;
const ROWS_PER_LOGITS: u32 = 1u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> masks: array<u32>;
@group(0) @binding(2) var<storage, read> params: array<u32>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> parts: array<u32>;

// use _timestamp_rules
// use _gumbel

var<workgroup> pool: array<Candidates, 128>;

fn look_at(id: u32, row: u32, base: u32, rule: u32, so_far: Candidates) -> Candidates {
  let logit = logits[row + id];
  if ((bitcast<u32>(logit) & 0x7f800000u) == 0x7f800000u) {
    var broken = so_far;
    broken.broken = 1u;
    return broken;
  }
  if (!allowed_by_timestamp_rules(id, base, rule)) {
    return so_far;
  }
  var score = logit;
  let temperature = bitcast<f32>(state[base + TEMPERATURE]);
  if (temperature > 0.0) {
    score = logit / temperature + gumbel(state[base + SEED], state[base + COUNT], id);
  }
  return merge(so_far, Candidates(logit, 1.0, score, id, logit, 0u));
}

fn write_candidates(at: u32, c: Candidates) {
  parts[at] = bitcast<u32>(c.top);
  parts[at + 1u] = bitcast<u32>(c.total);
  parts[at + 2u] = bitcast<u32>(c.score);
  parts[at + 3u] = c.token;
  parts[at + 4u] = bitcast<u32>(c.logit);
  parts[at + 5u] = c.broken;
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let base = workgroup.y * WORDS;
  if (state[base + DONE] != 0u) {
    return;
  }
  let rule = state[base + SLOT] * PARAMS_WORDS;
  let count = params[rule + VOCABULARY];
  let begin = params[rule + TIMESTAMP_BEGIN];
  let row = workgroup.y / ROWS_PER_LOGITS * count;
  let start = workgroup.x * CHUNK;
  let end = min(start + CHUNK, count);
  let to = (workgroup.y * workgroups.x + workgroup.x) * 2u * CANDIDATE_WORDS;
  for (var kind = 0u; kind < 2u; kind++) {
    let low = select(start, max(start, begin), kind == 1u);
    let high = select(min(end, begin), end, kind == 1u);
    if (low >= high) {  // most stretches hold only text
      if (me == 0u) {
        write_candidates(to + kind * CANDIDATE_WORDS, no_candidates());
      }
      continue;
    }
    var found = no_candidates();
    for (var id = low + me; id < high; id += 128u) {
      found = look_at(id, row, base, rule, found);
    }
    pool[me] = found;
    workgroupBarrier();
    for (var half = 64u; half > 0u; half /= 2u) {
      if (me < half) {
        pool[me] = merge(pool[me], pool[me + half]);
      }
      workgroupBarrier();
    }
    if (me == 0u) {
      write_candidates(to + kind * CANDIDATE_WORDS, pool[0]);
    }
    workgroupBarrier();
  }
}
