// y[r, o] = activation(Σ_i norm(x[r])[i] w[o, i] + b[o]) + add[r, o]      ROWS ≤ 4 rows r
// x [ROWS, 4·K4], w [OUTPUTS, 4·K4], y and add [ROWS, STRIDE] from column OFFSET on.
// One row of w a team, read once for all rows of x; no shared memory. The norm is folded:
// Σ w (g (x - m) s + h) = s (Σ w g x' - m' Σ w g) + Σ w h, where x' = x - x̃ and x̃ is the mean of
// x's first four values, which keeps the variance of rows with a large mean from cancelling.
// Launch ceil(OUTPUTS / teams of a workgroup) workgroups, folded at 65,535.
// use _team_subgroup
// use _weights_f32
// use _state
// use _guard
// use _activation
const ROWS: u32 = 1u;
const K4: u32 = 1u;
const OUTPUTS: u32 = 1u;
const OFFSET: u32 = 0u;
const STRIDE: u32 = 1u;
const NORM: bool = false;
const BIAS: bool = false;
const ADD: bool = false;
const LANES: u32 = 32u;  // of a team as the device reported: loops over K4 are unrolled for it

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> norm_bias: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> w: array<Packed>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read> add: array<f32>;
@group(0) @binding(6) var<storage, read> state: array<u32>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;

const ONES: vec4<f32> = vec4<f32>(1.0);

// What a row of x adds up to: Σ w g x', Σ x', Σ x'².
struct Sums {
  product: vec4<f32>,
  sum: vec4<f32>,
  square: vec4<f32>,
}

fn shift_of(row: u32) -> f32 {
  if (NORM && row < ROWS) {
    return dot(x[row * K4], vec4<f32>(0.25));
  }
  return 0.0;
}

fn gather(sums: Sums, row: u32, i: u32, shift: f32, weights: vec4<f32>) -> Sums {
  let values = x[row * K4 + i] - shift;
  if (NORM) {
    return Sums(sums.product + weights * values, sums.sum + values, sums.square + values * values);
  }
  return Sums(sums.product + weights * values, sums.sum, sums.square);
}

fn finish(sums: Sums, row: u32, o: u32, gain: f32, constant: f32) {
  let parts = vec4<f32>(dot(sums.product, ONES), dot(sums.sum, ONES), dot(sums.square, ONES), 0.0);
  let total = team_sum4(parts);
  if (TEAM.lane != 0u) {
    return;
  }
  var value = total.x;
  if (NORM) {
    let mean = total.y / f32(4u * K4);
    let variance = max(total.z / f32(4u * K4) - mean * mean, 0.0);
    value = (total.x - mean * gain) / sqrt(variance + 1e-5) + constant;
  }
  if (BIAS) {
    value += bias[OFFSET + o];
  }
  value = activate(value);
  let at = row * STRIDE + OFFSET + o;
  if (ADD) {
    value += add[at];
  }
  y[at] = value;
}

struct Row {
  s0: Sums,
  s1: Sums,
  s2: Sums,
  s3: Sums,
  gains: vec4<f32>,      // Σ w g
  constants: vec4<f32>,  // Σ w h
}

fn visit(so_far: Row, o: u32, i: u32, shifts: vec4<f32>) -> Row {
  var row = so_far;
  var weights = unpack(w[o * K4 + i]);
  if (NORM) {
    row.constants += weights * norm_bias[i];
    weights *= norm_weight[i];
    row.gains += weights;
  }
  row.s0 = gather(row.s0, 0u, i, shifts.x, weights);
  if (ROWS > 1u) {
    row.s1 = gather(row.s1, 1u, i, shifts.y, weights);
  }
  if (ROWS > 2u) {
    row.s2 = gather(row.s2, 2u, i, shifts.z, weights);
  }
  if (ROWS > 3u) {
    row.s3 = gather(row.s3, 3u, i, shifts.w, weights);
  }
  return row;
}

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  if (all_done()) {
    return;
  }
  let shifts = vec4<f32>(shift_of(0u), shift_of(1u), shift_of(2u), shift_of(3u));
  for (var o = team_first(workgroup.x); o < OUTPUTS; o += team_step(workgroups.x)) {
    var row = Row();
    if (TEAM.lanes == LANES) {  // a constant count of rounds, so that all loads start at once
      for (var round = 0u; round < (K4 + LANES - 1u) / LANES; round++) {
        let i = round * LANES + TEAM.lane;
        if (K4 % LANES == 0u || i < K4) {
          row = visit(row, o, i, shifts);
        }
      }
    } else {
      for (var i = TEAM.lane; i < K4; i += TEAM.lanes) {
        row = visit(row, o, i, shifts);
      }
    }
    var folded = vec4<f32>();
    if (NORM) {
      folded = team_sum4(vec4<f32>(dot(row.gains, ONES), dot(row.constants, ONES), 0.0, 0.0));
    }
    finish(row.s0, 0u, o, folded.x, folded.y);
    if (ROWS > 1u) {
      finish(row.s1, 1u, o, folded.x, folded.y);
    }
    if (ROWS > 2u) {
      finish(row.s2, 2u, o, folded.x, folded.y);
    }
    if (ROWS > 3u) {
      finish(row.s3, 3u, o, folded.x, folded.y);
    }
  }
}
