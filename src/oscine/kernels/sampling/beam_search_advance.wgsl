// The decision of beam search: of a group's candidates by log-probability, those that end = finished
// beams while there is space, the others = its BEAMS new beams, each a copy of its parent.
// Source: openai whisper/decoding.py, BeamSearchDecoder. candidates [SOURCES] of BEAM_CANDIDATE_WORDS; tokens and
// cache_indirection [SLOTS, CAPACITY]; pool_rows [SLOTS, MAX_FINISHED] of POOL, pool_tokens [SLOTS, MAX_FINISHED, CAPACITY], of which
// a group has those of its first beam; params [SLOTS]. A beam keeps its slot, whatever its parent is.
// Everything is copied column by column: an invocation has read all beams' values of a column before
// it writes one, so that no second buffer is needed. Launch (GROUPS).
// use _text_decoder_state
// use _decode_params
// use _neg_inf
// use _beam_candidates
// use _finished_beam
const BEAMS: u32 = 5u;
const MAX_FINISHED: u32 = 5u;
const ROWS_PER_LOGITS: u32 = 1u;
const CAPACITY: u32 = 448u;
const SOURCES: u32 = BEAMS / ROWS_PER_LOGITS;
const OFFERS: u32 = SOURCES * RANKS;
const BROKEN: u32 = 2u;

@group(0) @binding(0) var<storage, read> candidates: array<u32>;
@group(0) @binding(1) var<storage, read> params: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(4) var<storage, read_write> cache_indirection: array<u32>;
@group(0) @binding(5) var<storage, read_write> pool_rows: array<u32>;
@group(0) @binding(6) var<storage, read_write> pool_tokens: array<u32>;

// use _advance

struct Beam {
  parent: u32,  // of the group
  token: u32,
  score: f32,
}

var<workgroup> given: array<Beam, OFFERS>;
var<workgroup> next: array<Beam, BEAMS>;
var<workgroup> ended: array<Beam, MAX_FINISHED>;
var<workgroup> column: array<u32, BEAMS * 128u>;
var<workgroup> slots: array<u32, BEAMS>;
var<workgroup> seen: atomic<u32>;  // 1: a beam is alive, BROKEN: its logits are not finite
var<workgroup> occupied: atomic<u32>;
var<workgroup> going: atomic<u32>;
var<workgroup> ending: atomic<u32>;
var<workgroup> verdict: u32;

fn collect(me: u32, group: u32) {
  for (var i = me; i < OFFERS; i += 128u) {
    let parent = i / RANKS * ROWS_PER_LOGITS;
    let offer = (group * SOURCES + i / RANKS) * BEAM_CANDIDATE_WORDS;
    let at = offer + 1u + 2u * (i % RANKS);
    given[i] = Beam(parent, candidates[at + 1u], NEG_INF);
    if (state[(group * BEAMS + parent) * WORDS + DONE] == 0u) {
      given[i].score = bitcast<f32>(candidates[at]);
      atomicOr(&seen, 1u + BROKEN * candidates[offer]);
    }
  }
  if (me < BEAMS) {
    slots[me] = state[(group * BEAMS + me) * WORDS + SLOT];
  }
  let pool = state[group * BEAMS * WORDS + SLOT] * MAX_FINISHED;
  for (var place = me; place < MAX_FINISHED; place += 128u) {
    atomicAdd(&occupied, pool_rows[(pool + place) * BEAM_WORDS + BEAM_FILLED]);
  }
}

// Each candidate counts those before it that continue and that end: no more going on than there are beams
// to be, and none that ends after these. Among equals the lower beam comes first, then the better
// rank: the order they came in. `count` is OFFERS, told so that no compiler unrolls the loop.
fn choose(me: u32, count: u32) {
  let end_of_text = params[slots[0] * PARAMS_WORDS + END];
  let free = MAX_FINISHED - atomicLoad(&occupied);
  for (var i = me; i < count; i += 128u) {
    let offer = given[i];
    var going_before = 0u;
    var ended_before = 0u;
    for (var other = 0u; other < count; other++) {
      let score = given[other].score;
      if (score > offer.score || (score == offer.score && other < i)) {
        let ends = given[other].token == end_of_text;
        going_before += select(1u, 0u, ends);
        ended_before += select(0u, 1u, ends);
      }
    }
    if (offer.score > NEG_INF && going_before < BEAMS) {
      if (offer.token != end_of_text) {
        next[going_before] = offer;
        atomicAdd(&going, 1u);
      } else if (ended_before < free) {
        ended[ended_before] = offer;
        atomicAdd(&ending, 1u);
      }
    }
  }
}

fn copy_columns(me: u32, first: u32, first_place: u32, beams: u32, endings: u32) {
  for (var at = me; at < CAPACITY; at += 128u) {
    for (var beam = 0u; beam < BEAMS; beam++) {
      column[beam * 128u + me] = tokens[slots[beam] * CAPACITY + at];
    }
    for (var beam = 0u; beam < beams; beam++) {
      tokens[slots[beam] * CAPACITY + at] = column[next[beam].parent * 128u + me];
    }
    for (var i = 0u; i < endings; i++) {
      pool_tokens[(first_place + i) * CAPACITY + at] = column[ended[i].parent * 128u + me];
    }
    for (var beam = 0u; beam < BEAMS; beam++) {
      column[beam * 128u + me] = cache_indirection[slots[beam] * CAPACITY + at];
    }
    for (var beam = 0u; beam < beams; beam++) {
      let parent = (first + next[beam].parent) * WORDS;
      if (at < state[parent + POSITION] + state[parent + LENGTH]) {
        cache_indirection[slots[beam] * CAPACITY + at] = column[next[beam].parent * 128u + me];
      }
    }
  }
  for (var i = me; i < endings; i += 128u) {
    let to = (first_place + i) * BEAM_WORDS;
    pool_rows[to + BEAM_FILLED] = 1u;
    pool_rows[to + BEAM_COUNT] = state[(first + ended[i].parent) * WORDS + COUNT];
    pool_rows[to + BEAM_SUM_LOGPROB] = bitcast<u32>(ended[i].score);
  }
}

fn copy_state(me: u32, first: u32, beams: u32) {
  if (me < WORDS && me != SLOT) {
    for (var beam = 0u; beam < BEAMS; beam++) {
      column[beam * 128u + me] = state[(first + beam) * WORDS + me];
    }
    for (var beam = 0u; beam < beams; beam++) {
      state[(first + beam) * WORDS + me] = column[next[beam].parent * 128u + me];
    }
  }
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let group = workgroup.x;
  let first = group * BEAMS;
  let base = (first + me) * WORDS;
  if (me == 0u) {  // not every driver clears them for every workgroup
    atomicStore(&seen, 0u);
    atomicStore(&occupied, 0u);
    atomicStore(&going, 0u);
    atomicStore(&ending, 0u);
  }
  workgroupBarrier();
  collect(me, group);
  workgroupBarrier();
  if (me == 0u) {
    verdict = atomicLoad(&seen);
  }
  let found = workgroupUniformLoad(&verdict);
  if (found == 0u) {
    return;
  }
  if (found > 1u) {
    if (me < BEAMS) {
      state[base + DONE] = STOP_NONFINITE;
    }
    return;
  }
  choose(me, arrayLength(&candidates) / BEAM_CANDIDATE_WORDS / workgroups.x * RANKS);
  workgroupBarrier();
  let before = atomicLoad(&occupied);
  let beams = atomicLoad(&going);
  let endings = atomicLoad(&ending);
  copy_columns(me, first, slots[0] * MAX_FINISHED + before, beams, endings);
  storageBarrier();
  workgroupBarrier();
  copy_state(me, first, beams);
  storageBarrier();
  workgroupBarrier();
  if (me < beams) {
    state[base + SUM_LOGPROB] = bitcast<u32>(next[me].score);
    advance(first + me, next[me].token);
  } else if (me < BEAMS) {  // nothing is left for these
    state[base + SUM_LOGPROB] = bitcast<u32>(NEG_INF);
    state[base + DONE] = STOP_END;
  }
  if (me < BEAMS && before + endings == MAX_FINISHED) {
    state[base + DONE] = STOP_END;
  }
}
