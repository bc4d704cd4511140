// The decision: put the stretches' candidates together, apply timestamp rule e (timestamps win
// when their probability together exceeds that of any text), write the token, advance the state.
// parts [LINES, CHUNKS, 2] of Candidates; tokens [SLOTS, CAPACITY], params [SLOTS].
// Launch (LINES).
// use _text_decoder_state
// use _decode_params
// use _candidates
const CHUNKS: u32 = 1u;
const CAPACITY: u32 = 448u;

@group(0) @binding(0) var<storage, read> parts: array<u32>;
@group(0) @binding(1) var<storage, read> params: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> tokens: array<u32>;

var<workgroup> pool: array<Candidates, 64>;

fn read_candidates(at: u32) -> Candidates {
  return Candidates(
    bitcast<f32>(parts[at]),
    bitcast<f32>(parts[at + 1u]),
    bitcast<f32>(parts[at + 2u]),
    parts[at + 3u],
    bitcast<f32>(parts[at + 4u]),
    parts[at + 5u],
  );
}

fn gather(line: u32, kind: u32, me: u32) -> Candidates {
  var found = no_candidates();
  for (var chunk = me; chunk < CHUNKS; chunk += 64u) {
    found = merge(found, read_candidates(((line * CHUNKS + chunk) * 2u + kind) * CANDIDATE_WORDS));
  }
  pool[me] = found;
  workgroupBarrier();
  for (var half = 32u; half > 0u; half /= 2u) {
    if (me < half) {
      pool[me] = merge(pool[me], pool[me + half]);
    }
    workgroupBarrier();
  }
  let result = pool[0];
  workgroupBarrier();
  return result;
}

// use _advance

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let line = workgroup.x;
  let base = line * WORDS;
  let text = gather(line, 0u, me);
  let stamps = gather(line, 1u, me);
  if (me != 0u || state[base + DONE] != 0u) {
    return;
  }
  if ((text.broken | stamps.broken) != 0u) {
    state[base + DONE] = STOP_NONFINITE;
    return;
  }
  var found = merge(text, stamps);
  let rule = state[base + SLOT] * PARAMS_WORDS;
  if (params[rule + TIMESTAMPS] != 0u && stamps.total > 0.0) {
    if (stamps.total * exp(stamps.top - found.top) > exp(text.top - found.top)) {
      found = stamps;
    }
  }
  if (found.total == 0.0) {  // nothing may follow
    advance(line, params[rule + END]);
    return;
  }
  let logprob = found.logit - found.top - log(found.total);
  state[base + SUM_LOGPROB] = bitcast<u32>(bitcast<f32>(state[base + SUM_LOGPROB]) + logprob);
  advance(line, found.token);
}
