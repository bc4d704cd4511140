// y[r, o] = activation(v[r, o] + b[o]) + add[r, o], where v = norm(x) wᵀ; or, GATED,
// y[r, o] = activation(v[r, o]) · v[r, OUTPUTS + o]      ROWS ≤ 4 rows r
// x [ROWS, 4·K4], w [OUTPUTS, 4·K4], GATED twice as many; y and add [ROWS, STRIDE] from column
// OFFSET on. Two rows of w a subgroup, so that x is read half as often: those of a gate and its
// value, or adjacent ones. RMS: norm(x) is x g / √(mean x² + EPS), and the root needs to be known
// only at the end.
// Launch ceil(PAIRS / pairs of a workgroup) workgroups, folded at 65,535.
// use _row_reduce_subgroup for ROW_REDUCE: subgroup, workgroup, shared
// use _load_four for LOAD: four, eight
// use _all_done
// use _activation
const ROWS: u32 = 1u;
const K4: u32 = 1u;
const OUTPUTS: u32 = 1u;
const OFFSET: u32 = 0u;
const STRIDE: u32 = 1u;
const RMS: bool = false;
const EPS: f32 = 1e-6;
const GATED: bool = false;
const BIAS: bool = false;
const ADD: bool = false;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> w: array<Word>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read> add: array<f32>;
@group(0) @binding(5) var<storage, read> state: array<u32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

const K: u32 = K4 / VEC4S;  // loads of a row of w
const PAIRS: u32 = select((OUTPUTS + 1u) / 2u, OUTPUTS, GATED);

// Σ x w of two rows of w and Σ x², a component for each row of x.
struct Sums {
  first: vec4<f32>,
  second: vec4<f32>,
  square: vec4<f32>,
}

// The products of four values of a row of x with those of w; their part of Σ x².
struct Share {
  first: f32,
  second: f32,
  square: f32,
}

fn share(at: u32, gain: vec4<f32>, a: vec4<f32>, b: vec4<f32>) -> Share {
  let v = x[at];
  if (RMS) {
    let scaled = gain * v;
    return Share(dot(scaled, a), dot(scaled, b), dot(v, v));
  }
  return Share(dot(v, a), dot(v, b), 0.0);
}

fn with_four(before: Sums, at: u32, a: vec4<f32>, b: vec4<f32>) -> Sums {
  var gain = vec4<f32>();
  if (RMS) {
    gain = norm_weight[at];
  }
  let s = share(at, gain, a, b);
  var first = vec4<f32>(s.first, 0.0, 0.0, 0.0);
  var second = vec4<f32>(s.second, 0.0, 0.0, 0.0);
  var square = vec4<f32>(s.square, 0.0, 0.0, 0.0);
  if (ROWS > 1u) {
    let s = share(K4 + at, gain, a, b);
    first.y = s.first;
    second.y = s.second;
    square.y = s.square;
  }
  if (ROWS > 2u) {
    let s = share(2u * K4 + at, gain, a, b);
    first.z = s.first;
    second.z = s.second;
    square.z = s.square;
  }
  if (ROWS > 3u) {
    let s = share(3u * K4 + at, gain, a, b);
    first.w = s.first;
    second.w = s.second;
    square.w = s.square;
  }
  return Sums(before.first + first, before.second + second, before.square + square);
}

fn with_wide(before: Sums, i: u32, a: Wide, b: Wide) -> Sums {
  let sums = with_four(before, VEC4S * i, four_of(a, 0u), four_of(b, 0u));
  if (VEC4S == 1u) {
    return sums;
  }
  return with_four(sums, VEC4S * i + 1u, four_of(a, 1u), four_of(b, 1u));
}

// Of all lanes.
fn summed(sums: Sums) -> Sums {
  if (ROWS == 1u) {
    let all = row_sum4(vec4<f32>(sums.first.x, sums.second.x, sums.square.x, 0.0));
    return Sums(vec4<f32>(all.x), vec4<f32>(all.y), vec4<f32>(all.z));
  }
  let first = row_sum4(sums.first);
  let second = row_sum4(sums.second);
  if (RMS) {
    return Sums(first, second, row_sum4(sums.square));
  }
  return Sums(first, second, vec4<f32>());
}

// What a result needs besides its sum: fetched ahead.
fn bias_of(o: u32) -> f32 {
  if (BIAS) {
    return bias[OFFSET + o];
  }
  return 0.0;
}

fn add_of(at: u32) -> f32 {
  if (ADD) {
    return add[at];
  }
  return 0.0;
}

// Two rounds of loads of two rows of w.
struct Ahead {
  a0: Wide,
  b0: Wide,
  a1: Wide,
  b1: Wide,
}

// The first rounds of a pair; past the end any.
fn first_rounds(pair: u32) -> Ahead {
  let o = first_of(min(pair, PAIRS - 1u)) * K;
  let other = second_of(min(pair, PAIRS - 1u)) * K;
  let i = min(ROW_GROUP.lane, K - 1u);
  let j = min(ROW_GROUP.lane + ROW_GROUP.lanes, K - 1u);
  return Ahead(fetch_wide(o + i), fetch_wide(other + i), fetch_wide(o + j), fetch_wide(other + j));
}

fn first_of(pair: u32) -> u32 {
  return select(2u * pair, pair, GATED);
}

fn second_of(pair: u32) -> u32 {
  return select(min(2u * pair + 1u, OUTPUTS - 1u), OUTPUTS + pair, GATED);
}

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  // Weights are fetched two rounds ahead, the first before it is known whether there is work.
  var pair = first_row(workgroup.x);
  var ahead = first_rounds(pair);
  if (all_done()) {
    return;
  }
  let row = min(ROW_GROUP.lane, ROWS - 1u);  // whose results this lane stores, if it is its own
  while (pair < PAIRS) {
    let o = first_of(pair);
    let other = second_of(pair);
    let at = row * STRIDE + OFFSET;
    let bias0 = bias_of(o);
    let bias1 = bias_of(other);
    let add0 = add_of(at + o);
    let add1 = add_of(at + other);
    var sums = Sums();
    for (var i = ROW_GROUP.lane; i < K; i += ROW_GROUP.lanes) {
      sums = with_wide(sums, i, ahead.a0, ahead.b0);
      ahead.a0 = ahead.a1;
      ahead.b0 = ahead.b1;
      let next = i + 2u * ROW_GROUP.lanes;
      if (next < K) {
        ahead.a1 = fetch_wide(o * K + next);
        ahead.b1 = fetch_wide(other * K + next);
      }
    }
    let all = summed(sums);
    if (ROW_GROUP.lane < ROWS) {
      var first = all.first[row];
      var second = all.second[row];
      if (RMS) {
        let scale = 1.0 / sqrt(all.square[row] / f32(4u * K4) + EPS);
        first *= scale;
        second *= scale;
      }
      if (GATED) {
        y[at + o] = activate(first) * second;
      } else {
        y[at + o] = activate(first + bias0) + add0;
        if (o + 1u < OUTPUTS) {
          y[at + other] = activate(second + bias1) + add1;
        }
      }
    }
    pair += row_step(workgroups.x);
    if (pair < PAIRS) {
      ahead = first_rounds(pair);
    }
  }
}
