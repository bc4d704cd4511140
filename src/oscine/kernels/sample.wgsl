// The choice of a code among what rules leave, by one workgroup a line, and the line moves on:
// id = argmax(score + noise), score = logit / temperature of the ids that top_k and top_p leave.
// logits [LINES·L, V], of each line's the last row; codes [LINES, F, GROUPS]; seen [LINES, ..]. Of
// scores the first KEPT are held in shared memory, the others are computed again when they are needed.
// Borders are found digit by digit, 8 bits at a time, of numbers that are in order as scores are.
// Launch (LINES); V <= 65536.
// use _utterance
// use _sampling
// use _never
const GROUPS: u32 = 16u;
const KEPT: u32 = 2048u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> rules: array<u32>;
@group(0) @binding(2) var<storage, read_write> utterances: array<u32>;
@group(0) @binding(3) var<storage, read_write> codes: array<u32>;
@group(0) @binding(4) var<storage, read_write> seen: array<u32>;

// use _block_subgroup
// use _best
// use _gumbel

const STOP_END: u32 = 1u;
const STOP_LENGTH: u32 = 3u;
const STOP_NONFINITE: u32 = 4u;
const WHOLE: f32 = 1073741824.0;  // the likeliest's mass, 2^30: kept in two halves, summed exactly

struct Line {
  logits: u32,  // where its row of them begins
  seen: u32,
  count: u32,
  group: u32,
}

var<private> LINE: Line;

var<workgroup> start: vec4<u32>;
var<workgroup> kept: array<f32, KEPT>;
var<workgroup> bins: array<atomic<u32>, 256>;       // how many, or lower halves of masses
var<workgroup> bins_upper: array<atomic<u32>, 256>;
var<workgroup> sixteen: array<u32, 64>;             // sums of sixteen bins
var<workgroup> sixteen_upper: array<u32, 64>;

fn broken(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u;
}

fn score_of(id: u32) -> f32 {
  var score = logits[LINE.logits + id];
  if (broken(score)) {
    return NEVER;
  }
  if (LINE.group == 0u) {
    let end = id == rules[END];
    if (select(id >= rules[SUPPRESS], LINE.count < rules[MINIMUM], end)) {
      return NEVER;
    }
    if (seen[LINE.seen + id] != 0u) {
      let penalty = bitcast<f32>(rules[REPETITION_PENALTY]);
      score = select(score * penalty, score / penalty, score > 0.0);
    }
  }
  let temperature = bitcast<f32>(rules[TEMPERATURE]);
  score /= select(1.0, temperature, temperature > 0.0);
  return select(score, 0.0, score == 0.0);  // of the two zeros one
}

fn score(id: u32) -> f32 {
  if (id < KEPT) {
    return kept[id];
  }
  return score_of(id);
}

// In order as scores are.
fn rank(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

fn clear_bins(me: u32) {
  for (var bin = me; bin < 256u; bin += 128u) {
    atomicStore(&bins[bin], 0u);
    atomicStore(&bins_upper[bin], 0u);
  }
  workgroupBarrier();
}

fn sum_sixteens(me: u32) {
  workgroupBarrier();
  if (me < 16u) {
    var sum = 0u;
    var upper = 0u;
    for (var bin = 16u * me; bin < 16u * me + 16u; bin++) {
      sum += atomicLoad(&bins[bin]);
      upper += atomicLoad(&bins_upper[bin]);
    }
    sixteen[me] = sum;
    sixteen_upper[me] = upper;
  }
  workgroupBarrier();
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
    for (var id = me; id < rules[VOCABULARY]; id += 128u) {
      let mine = rank(score(id));
      if (((mine ^ found) & above(shift)) == 0u) {
        atomicAdd(&bins[(mine >> shift) & 255u], 1u);
      }
    }
    sum_sixteens(me);
    var high = 15u;
    while (high > 0u && sixteen[high] < left) {
      left -= sixteen[high];
      high--;
    }
    var bin = 16u * high + 15u;
    while (bin > 16u * high && atomicLoad(&bins[bin]) < left) {
      left -= atomicLoad(&bins[bin]);
      bin--;
    }
    found |= bin << shift;
    workgroupBarrier();
  }
  return found;
}

fn mass(lower: u32, upper: u32) -> f32 {
  return f32(upper) * 65536.0 + f32(lower);
}

// The rank of the least score, of those from `border` on, that has more than 1 - top_p of the mass
// together with all below it.
fn border_by_mass(me: u32, border: u32, top: f32, digits: u32) -> u32 {
  var found = 0u;
  var lower = 0u;
  var upper = 0u;
  var limit = 0.0;
  for (var digit = 0u; digit < digits; digit++) {
    let shift = 24u - 8u * digit;
    clear_bins(me);
    for (var id = me; id < rules[VOCABULARY]; id += 128u) {
      let value = score(id);
      let mine = rank(value);
      if (mine >= border && ((mine ^ found) & above(shift)) == 0u) {
        let share = u32(WHOLE * exp(value - top));
        atomicAdd(&bins[(mine >> shift) & 255u], share & 0xffffu);
        atomicAdd(&bins_upper[(mine >> shift) & 255u], share >> 16u);
      }
    }
    sum_sixteens(me);
    if (digit == 0u) {
      var all = vec2<u32>();
      for (var i = 0u; i < 16u; i++) {
        all += vec2<u32>(sixteen[i], sixteen_upper[i]);
      }
      limit = (1.0 - bitcast<f32>(rules[TOP_P])) * mass(all.x, all.y);
    }
    var low = 0u;
    while (low < 15u && mass(lower + sixteen[low], upper + sixteen_upper[low]) <= limit) {
      lower += sixteen[low];
      upper += sixteen_upper[low];
      low++;
    }
    var bin = 16u * low;
    loop {
      let next_lower = lower + atomicLoad(&bins[bin]);
      let next_upper = upper + atomicLoad(&bins_upper[bin]);
      if (bin == 16u * low + 15u || mass(next_lower, next_upper) > limit) {
        break;
      }
      lower = next_lower;
      upper = next_upper;
      bin++;
    }
    found |= bin << shift;
    workgroupBarrier();
  }
  return min(found, rank(top));  // the likeliest stays
}

fn advance(line: u32, code: u32) {
  let base = line * UTTERANCE_WORDS;
  let lines = arrayLength(&utterances) / UTTERANCE_WORDS;
  let room = arrayLength(&codes) / (lines * GROUPS);
  codes[(line * room + LINE.count) * GROUPS + LINE.group] = code;
  utterances[base + CODE] = code;
  if (LINE.group == 0u) {
    seen[LINE.seen + code] = 1u;
  }
  if (LINE.group + 1u < GROUPS) {
    utterances[base + GROUP] = LINE.group + 1u;
    return;
  }
  utterances[base + GROUP] = 0u;
  utterances[base + COUNT] = LINE.count + 1u;
  utterances[base + POSITION] += utterances[base + LENGTH];
  utterances[base + LENGTH] = 1u;
  if (LINE.count + 1u >= min(utterances[base + LIMIT], room)) {
    utterances[base + DONE] = STOP_LENGTH;
  }
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let line = workgroup.x;
  let base = line * UTTERANCE_WORDS;
  if (me == 0u) {
    start = vec4<u32>(
      utterances[base + DONE], utterances[base + COUNT], utterances[base + GROUP],
      utterances[base + SEED]
    );
  }
  let at = workgroupUniformLoad(&start);
  if (at.x != 0u) {
    return;
  }
  let vocabulary = rules[VOCABULARY];
  let row = arrayLength(&logits) / (vocabulary * workgroups.x) * (line + 1u) - 1u;
  LINE = Line(row * vocabulary, arrayLength(&seen) / workgroups.x * line, at.y, at.z);
  var top = NEVER;
  var bad = 0.0;
  for (var id = me; id < vocabulary; id += 128u) {
    let value = score_of(id);
    if (id < KEPT) {
      kept[id] = value;
    }
    top = max(top, value);
    bad = select(bad, 1.0, broken(logits[LINE.logits + id]));
  }
  top = block_max(me, top);
  bad = block_max(me, bad);
  let drawn = bitcast<f32>(rules[TEMPERATURE]) > 0.0;
  let most = rules[TOP_K];
  let by_count = drawn && most > 0u && most < vocabulary;
  let by_mass = drawn && bitcast<f32>(rules[TOP_P]) < 1.0;
  var border = border_by_count(me, most, select(0u, 4u, by_count));
  border = max(border, border_by_mass(me, border, top, select(0u, 4u, by_mass)));
  var best = Best(NEVER, 0u);
  for (var id = me; id < vocabulary; id += 128u) {
    var value = score(id);
    if (value <= NEVER || rank(value) < border) {
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
  let code = select(best.id, 0u, best.score <= NEVER);
  if (bad > 0.0) {
    utterances[base + DONE] = STOP_NONFINITE;
  } else if (at.z == 0u && code == rules[END]) {
    utterances[base + DONE] = STOP_END;
  } else {
    advance(line, code);
  }
}
