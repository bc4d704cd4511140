// Softmax sums and the RANKS best = highest logits of each stretch of CHUNK, text and timestamps
// apart, filtered by all but rule e: sample_token_partial for beams.
// logits [.., V], one row a source: every line, or (ROWS_PER_LOGITS = beams) the first line of every
// group.
// parts [SOURCES, CHUNKS, 2] of PART_WORDS; params [SLOTS], masks [.., V]. Launch (CHUNKS, SOURCES).
// use _text_decoder_state
// use _decode_params
// use _neg_inf
// use _beam_candidates
const CHUNK: u32 = 512u;
const ROWS_PER_LOGITS: u32 = 1u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> masks: array<u32>;
@group(0) @binding(2) var<storage, read> params: array<u32>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> parts: array<u32>;

// use _timestamp_rules
// use _workgroup_reduce_subgroup for WORKGROUP_REDUCE: subgroup, shared
// use _argmax

var<workgroup> scores: array<f32, CHUNK>;  // each invocation's own: no barrier between them

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let base = workgroup.y * ROWS_PER_LOGITS * WORDS;
  if (state[base + DONE] != 0u) {
    return;
  }
  let rule = state[base + SLOT] * PARAMS_WORDS;
  let count = params[rule + VOCABULARY];
  let begin = params[rule + TIMESTAMP_BEGIN];
  let row = workgroup.y * count;
  let start = workgroup.x * CHUNK;
  let end = min(start + CHUNK, count);
  // RANKS, told so that no compiler unrolls a loop with barriers.
  let ranks = (arrayLength(&parts) / (2u * workgroups.x * workgroups.y) - 3u) / 2u;
  for (var kind = 0u; kind < 2u; kind++) {
    let low = select(start, max(start, begin), kind == 1u);
    let high = select(min(end, begin), end, kind == 1u);
    let to = ((workgroup.y * workgroups.x + workgroup.x) * 2u + kind) * PART_WORDS;
    if (low >= high) {  // most stretches hold only text
      for (var word = me; word < PART_WORDS; word += 128u) {
        let zero = word == 1u || word == 2u;
        parts[to + word] = select(bitcast<u32>(NEG_INF), 0u, zero);
      }
      continue;
    }
    var top = NEG_INF;
    var broken = 0.0;
    for (var id = low + me; id < high; id += 128u) {
      let logit = logits[row + id];
      var score = NEG_INF;
      if ((bitcast<u32>(logit) & 0x7f800000u) == 0x7f800000u) {
        broken = 1.0;
      } else if (allowed_by_timestamp_rules(id, base, rule)) {
        score = logit;
      }
      scores[id - start] = score;
      top = max(top, score);
    }
    top = workgroup_max(me, top);
    broken = workgroup_max(me, broken);
    var total = 0.0;
    for (var id = low + me; id < high; id += 128u) {
      if (scores[id - start] > NEG_INF) {
        total += exp(scores[id - start] - top);
      }
    }
    total = workgroup_sum(me, total);
    if (me == 0u) {
      parts[to] = bitcast<u32>(top);
      parts[to + 1u] = bitcast<u32>(total);
      parts[to + 2u] = u32(broken);
    }
    for (var rank = 0u; rank < ranks; rank++) {
      var mine = Best(NEG_INF, 0u);
      for (var id = low + me; id < high; id += 128u) {
        if (scores[id - start] > mine.score) {
          mine = Best(scores[id - start], id);
        }
      }
      let best = block_best(me, mine.score, mine.id);
      if (mine.score > NEG_INF && mine.id == best.id) {
        scores[mine.id - start] = NEG_INF;
        parts[to + 3u + 2u * rank] = bitcast<u32>(best.score);
        parts[to + 4u + 2u * rank] = best.id;
      }
      if (me == 0u && best.score == NEG_INF) {
        parts[to + 3u + 2u * rank] = bitcast<u32>(NEG_INF);
      }
    }
  }
}
