// The decision on a code among the ids that params leave, one workgroup a sequence, and its advance:
// id = argmax(score + noise), score = logit / temperature of the ids that top_k and top_p leave.
// logits [B·L, V], the last row of each sequence counts; of its slot params [S], codes [S, F, GROUPS] and
// seen [S, ..]. Of scores the first KEPT are held in shared memory, the others are computed again when
// they are needed. Borders are found digit by digit, 8 bits at a time, of numbers in the order of scores.
// Launch (B); V <= 65536.
// use _talker_state
// use _sampling_params
// use _neg_inf
const L: u32 = 1u;
const GROUPS: u32 = 16u;
const KEPT: u32 = 2048u;  // 8 KiB of the 16 that every device has

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> params: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> codes: array<u32>;
@group(0) @binding(4) var<storage, read_write> seen: array<u32>;

// use _workgroup_reduce_subgroup for WORKGROUP_REDUCE: subgroup, shared
// use _argmax
// use _gumbel

const WORKGROUP: u32 = 256u;  // an invocation for each value of a digit
const STOP_END: u32 = 1u;
const STOP_LENGTH: u32 = 3u;
const STOP_NONFINITE: u32 = 4u;
const WHOLE: f32 = 1073741824.0;  // the most likely id's mass, 2^30: in two halves, summed exactly

struct Utterance {
  vocabulary: u32,
  logits: u32,  // where its row of them begins
  slot: u32,
  seen: u32,
  count: u32,
  group: u32,
  end: u32,
  suppress: u32,
  minimum: u32,
  penalty: f32,
  temperature: f32,  // by which is divided: 1 where choice is greedy
  top_p: f32,
}

var<private> MINE: Utterance;

var<workgroup> start: vec4<u32>;
var<workgroup> kept: array<f32, KEPT>;
var<workgroup> bins: array<atomic<u32>, 256>;  // how many, or lower halves of masses
var<workgroup> bins_upper: array<atomic<u32>, 256>;
var<workgroup> sixteens: array<atomic<u32>, 64>;  // sums of sixteen bins: 16
var<workgroup> sixteens_upper: array<atomic<u32>, 64>;
var<workgroup> border: vec3<u32>;  // a digit, and the count below it

fn broken(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u;
}

fn score_of(id: u32, logit: f32) -> f32 {
  var score = logit;
  if (broken(score)) {
    return NEG_INF;
  }
  if (MINE.group == 0u) {
    if (select(id >= MINE.suppress, MINE.count < MINE.minimum, id == MINE.end)) {
      return NEG_INF;
    }
    if (seen[MINE.seen + id] != 0u) {
      score = select(score * MINE.penalty, score / MINE.penalty, score > 0.0);
    }
  }
  score /= MINE.temperature;
  return select(score, 0.0, score == 0.0);  // of the two zeros one
}

fn score(id: u32) -> f32 {
  if (id < KEPT) {
    return kept[id];
  }
  return score_of(id, logit(id));
}

// The logit of an id, of the last one past the end.
fn logit(id: u32) -> f32 {
  return logits[MINE.logits + min(id, MINE.vocabulary - 1u)];
}

// Its score, put by.
fn keep(id: u32, logit: f32) -> f32 {
  if (id >= MINE.vocabulary) {
    return NEG_INF;
  }
  let value = score_of(id, logit);
  if (id < KEPT) {
    kept[id] = value;
  }
  return value;
}

// In order as scores are.
fn rank(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

fn clear_bins(me: u32) {
  atomicStore(&bins[me], 0u);
  atomicStore(&bins_upper[me], 0u);
  if (me < 16u) {
    atomicStore(&sixteens[me], 0u);
    atomicStore(&sixteens_upper[me], 0u);
  }
  workgroupBarrier();
}

// Add to the bin of a digit, and to its sixteen.
fn add(digit: u32, amount: vec2<u32>) {
  atomicAdd(&bins[digit], amount.x);
  atomicAdd(&sixteens[digit / 16u], amount.x);
  if (amount.y > 0u) {
    atomicAdd(&bins_upper[digit], amount.y);
    atomicAdd(&sixteens_upper[digit / 16u], amount.y);
  }
}

fn bin(i: u32, first: u32, end: u32) -> vec2<u32> {
  let held = vec2<u32>(atomicLoad(&bins[i]), atomicLoad(&bins_upper[i]));
  return select(vec2<u32>(), held, i >= first && i < end);
}

fn four_bins(i: u32, first: u32, end: u32) -> vec2<u32> {
  return bin(i, first, end) + bin(i + 1u, first, end) + bin(i + 2u, first, end)
    + bin(i + 3u, first, end);
}

fn sixteen(i: u32, first: u32, end: u32) -> vec2<u32> {
  let held = vec2<u32>(atomicLoad(&sixteens[i]), atomicLoad(&sixteens_upper[i]));
  return select(vec2<u32>(), held, i >= first && i < end);
}

fn four_sixteens(i: u32, first: u32, end: u32) -> vec2<u32> {
  return sixteen(i, first, end) + sixteen(i + 1u, first, end) + sixteen(i + 2u, first, end)
    + sixteen(i + 3u, first, end);
}

// What all bins hold, and those below `me`: whole sixteens, then of its own sixteen.
// Loads that are in flight together are written out: drivers do not unroll checked loops.
fn all_bins() -> vec2<u32> {
  return four_sixteens(0u, 0u, 16u) + four_sixteens(4u, 0u, 16u) + four_sixteens(8u, 0u, 16u)
    + four_sixteens(12u, 0u, 16u);
}

fn bins_below(me: u32) -> vec2<u32> {
  let own = me / 16u;
  let i = 16u * own;
  return four_sixteens(0u, 0u, own) + four_sixteens(4u, 0u, own) + four_sixteens(8u, 0u, own)
    + four_sixteens(12u, 0u, own) + four_bins(i, i, me) + four_bins(i + 4u, i, me)
    + four_bins(i + 8u, i, me) + four_bins(i + 12u, i, me);
}

// The bits above a digit, of which all are known.
fn above(shift: u32) -> u32 {
  return select(0xffffff00u << shift, 0u, shift == 24u);
}

// The rank of the `most`-th largest score. `digits` is 4, or 0 where no border is wanted: not a
// constant, since compilers unroll loops with barriers.
fn border_by_count(me: u32, most: u32, digits: u32) -> u32 {
  var found = 0u;
  var left = most;
  for (var digit = 0u; digit < digits; digit++) {
    let shift = 24u - 8u * digit;
    clear_bins(me);
    for (var id = me; id < MINE.vocabulary; id += WORKGROUP) {
      let mine = rank(score(id));
      if (((mine ^ found) & above(shift)) == 0u) {
        add((mine >> shift) & 255u, vec2<u32>(1u, 0u));
      }
    }
    workgroupBarrier();
    let higher = all_bins().x - bins_below(me).x - atomicLoad(&bins[me]);
    if (higher < left && left <= higher + atomicLoad(&bins[me])) {
      border = vec3<u32>(me, left - higher, 0u);
    }
    workgroupBarrier();
    found |= border.x << shift;
    left = border.y;
  }
  return found;
}

fn mass(sum: vec2<u32>) -> f32 {
  return f32(sum.y) * 65536.0 + f32(sum.x);
}

// The rank of the least score, of those from `least` on, that has more than 1 - top_p of the mass
// together with all below it.
fn border_by_mass(me: u32, least: u32, top: f32, digits: u32) -> u32 {
  var found = 0u;
  var below = vec2<u32>();
  var limit = 0.0;
  for (var digit = 0u; digit < digits; digit++) {
    let shift = 24u - 8u * digit;
    clear_bins(me);
    for (var id = me; id < MINE.vocabulary; id += WORKGROUP) {
      let value = score(id);
      let mine = rank(value);
      if (mine >= least && ((mine ^ found) & above(shift)) == 0u) {
        let share = u32(WHOLE * exp(value - top));
        add((mine >> shift) & 255u, vec2<u32>(share & 0xffffu, share >> 16u));
      }
    }
    workgroupBarrier();
    if (digit == 0u) {
      limit = (1.0 - MINE.top_p) * mass(all_bins());
    }
    let lower = below + bins_below(me);
    let with_own = lower + vec2<u32>(atomicLoad(&bins[me]), atomicLoad(&bins_upper[me]));
    if ((me == 0u || mass(lower) <= limit) && (me == 255u || mass(with_own) > limit)) {
      border = vec3<u32>(me, lower);
    }
    workgroupBarrier();
    found |= border.x << shift;
    below = border.yz;
  }
  return min(found, rank(top));  // the most likely id stays
}

fn slots() -> u32 {
  return arrayLength(&params) / PARAMS_WORDS;
}

fn advance(base: u32, code: u32) {
  let room = arrayLength(&codes) / (slots() * GROUPS);
  codes[(MINE.slot * room + MINE.count) * GROUPS + MINE.group] = code;
  state[base + TOKEN] = code;
  if (MINE.group == 0u) {
    seen[MINE.seen + code] = 1u;
  }
  if (MINE.group + 1u < GROUPS) {
    state[base + GROUP] = MINE.group + 1u;
    return;
  }
  state[base + GROUP] = 0u;
  state[base + COUNT] = MINE.count + 1u;
  state[base + POSITION] += state[base + LENGTH];
  state[base + LENGTH] = 1u;
  if (MINE.count + 1u >= min(state[base + LIMIT], room)) {
    state[base + DONE] = STOP_LENGTH;
  }
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let base = workgroup.x * WORDS;
  if (me == 0u) {
    let done = state[base + DONE] != 0u;
    start = vec4<u32>(
      select(state[base + SLOT], slots(), done), state[base + COUNT],
      state[base + GROUP], state[base + SEED]
    );
  }
  let at = workgroupUniformLoad(&start);
  if (at.x >= slots()) {
    return;
  }
  let vocabulary = arrayLength(&logits) / (workgroups.x * L);
  let own = at.x * PARAMS_WORDS;
  let temperature = bitcast<f32>(params[own + TEMPERATURE]);
  let drawn = temperature > 0.0;
  MINE = Utterance(
    vocabulary, (workgroup.x * L + L - 1u) * vocabulary, at.x, arrayLength(&seen) / slots() * at.x,
    at.y, at.z, params[own + END], params[own + SUPPRESS], params[own + MINIMUM],
    bitcast<f32>(params[own + REPETITION_PENALTY]), select(1.0, temperature, drawn),
    bitcast<f32>(params[own + TOP_P])
  );
  var top = NEG_INF;
  var bad = 0.0;
  for (var id = me; id < vocabulary; id += 4u * WORKGROUP) {
    let four = vec4<f32>(
      logit(id), logit(id + WORKGROUP), logit(id + 2u * WORKGROUP), logit(id + 3u * WORKGROUP)
    );
    let a = max(keep(id, four.x), keep(id + WORKGROUP, four.y));
    let b = max(keep(id + 2u * WORKGROUP, four.z), keep(id + 3u * WORKGROUP, four.w));
    top = max(top, max(a, b));
    bad = select(bad, 1.0, broken(four.x) || broken(four.y) || broken(four.z) || broken(four.w));
  }
  bad = select(bad, 1.0, broken(top));  // divided, it may be above all numbers
  top = workgroup_max(me, top);
  bad = workgroup_max(me, bad);
  let most = params[own + TOP_K];
  let by_count = drawn && most > 0u && most < vocabulary;
  let by_mass = drawn && bitcast<f32>(params[own + TOP_P]) < 1.0;
  let by_top_k = border_by_count(me, most, select(0u, 4u, by_count));
  let least = max(by_top_k, border_by_mass(me, by_top_k, top, select(0u, 4u, by_mass)));
  var best = Best(NEG_INF, 0u);
  for (var id = me; id < vocabulary; id += WORKGROUP) {
    var value = score(id);
    if (value <= NEG_INF || rank(value) < least) {
      continue;
    }
    if (drawn) {
      value += gumbel(at.w, at.y * GROUPS + at.z, id);
    }
    if (value > best.score) {
      best = Best(value, id);
    }
  }
  best = block_best(me, best.score, best.id);
  if (me != 0u) {
    return;
  }
  let code = select(best.id, 0u, best.score <= NEG_INF);
  if (bad > 0.0) {
    state[base + DONE] = STOP_NONFINITE;
  } else if (at.z == 0u && code == MINE.end) {
    state[base + DONE] = STOP_END;
  } else {
    advance(base, code);
  }
}
