// The candidates of a beam = its RANKS most likely tokens under rule e, with the log-probability that the
// whole of it would have; where nothing may follow, end-of-text alone, for nothing.
// parts [SOURCES, CHUNKS, 2] of PART_WORDS, candidates [SOURCES] of BEAM_CANDIDATE_WORDS; a source is row
// ROWS_PER_LOGITS times its number; params [SLOTS]. Launch (SOURCES).
// use _text_decoder_state
// use _decode_params
// use _neg_inf
// use _beam_candidates
const CHUNKS: u32 = 1u;
const ROWS_PER_LOGITS: u32 = 1u;

@group(0) @binding(0) var<storage, read> parts: array<u32>;
@group(0) @binding(1) var<storage, read> params: array<u32>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> candidates: array<u32>;

// use _workgroup_reduce_subgroup for WORKGROUP_REDUCE: subgroup, shared
// use _argmax

struct Total {
  top: f32,
  total: f32,
  broken: f32,
}

fn total_of(me: u32, source: u32, kind: u32) -> Total {
  var top = NEG_INF;
  var broken = 0.0;
  for (var chunk = me; chunk < CHUNKS; chunk += 128u) {
    let at = ((source * CHUNKS + chunk) * 2u + kind) * PART_WORDS;
    top = max(top, bitcast<f32>(parts[at]));
    broken = max(broken, f32(parts[at + 2u]));
  }
  top = workgroup_max(me, top);
  var total = 0.0;
  for (var chunk = me; chunk < CHUNKS; chunk += 128u) {
    let at = ((source * CHUNKS + chunk) * 2u + kind) * PART_WORDS;
    total += bitcast<f32>(parts[at + 1u]) * exp(bitcast<f32>(parts[at]) - top);
  }
  return Total(top, workgroup_sum(me, total), workgroup_max(me, broken));
}

// The best part after `last`: there is none before it that was not taken.
fn next_best(me: u32, source: u32, low: u32, last: Best) -> Best {
  var mine = Best(NEG_INF, 0u);
  for (var i = me; i < CHUNKS * 2u * RANKS; i += 128u) {
    let part = source * CHUNKS * 2u + i / RANKS;
    let at = part * PART_WORDS + 3u + 2u * (i % RANKS);
    let score = bitcast<f32>(parts[at]);
    let id = parts[at + 1u];
    let later = score < last.score || (score == last.score && id > last.id);
    if (part % 2u >= low && score > NEG_INF && later) {
      if (score > mine.score || (score == mine.score && id < mine.id)) {
        mine = Best(score, id);
      }
    }
  }
  return block_best(me, mine.score, mine.id);
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let source = workgroup.x;
  let base = source * ROWS_PER_LOGITS * WORDS;
  if (state[base + DONE] != 0u) {
    return;
  }
  let rule = state[base + SLOT] * PARAMS_WORDS;
  let text = total_of(me, source, 0u);
  let stamps = total_of(me, source, 1u);
  let top = max(text.top, stamps.top);
  let stamped = stamps.total * exp(stamps.top - top);
  let ruled = params[rule + TIMESTAMPS] != 0u && stamped > exp(text.top - top);
  let total = stamped + select(text.total * exp(text.top - top), 0.0, ruled);
  let so_far = bitcast<f32>(state[base + SUM_LOGPROB]);
  let to = source * BEAM_CANDIDATE_WORDS;
  if (me == 0u) {
    candidates[to] = u32(max(text.broken, stamps.broken));
  }
  var best = Best(-NEG_INF, 0u);
  // RANKS, told so that no compiler unrolls a loop with barriers.
  let ranks = (arrayLength(&candidates) / workgroups.x - 1u) / 2u;
  for (var rank = 0u; rank < ranks; rank++) {
    best = next_best(me, source, select(0u, 1u, ruled), best);
    if (me == 0u) {
      var score = NEG_INF;
      var token = best.id;
      if (best.score > NEG_INF) {
        score = so_far + (best.score - top - log(total));
      } else if (rank == 0u) {
        score = so_far;
        token = params[rule + END];
      }
      candidates[to + 1u + 2u * rank] = bitcast<u32>(score);
      candidates[to + 2u + 2u * rank] = token;
    }
  }
}
