// y[r, o] = activation(Σ_i norm(x[r])[i] w[o, i] + b[o]) + add[r, o]      few rows r
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

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> norm_bias: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> w: array<Packed>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read> add: array<f32>;
@group(0) @binding(6) var<storage, read> state: array<u32>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  if (all_done()) {
    return;
  }
  for (var o = workgroup.x * TEAM.count + TEAM.index; o < OUTPUTS; o += workgroups.x * TEAM.count) {
    var products: array<vec4<f32>, ROWS>;
    var sums: array<vec2<f32>, ROWS>;  // Σ x', Σ x'²
    var shifts: array<f32, ROWS>;
    var wg = 0.0;
    var wh = 0.0;
    if (NORM) {
      for (var r = 0u; r < ROWS; r++) {
        shifts[r] = dot(x[r * K4], vec4<f32>(0.25));
      }
    }
    for (var i = TEAM.lane; i < K4; i += TEAM.lanes) {
      var weights = unpack(w[o * K4 + i]);
      if (NORM) {
        wh += dot(weights, norm_bias[i]);
        weights *= norm_weight[i];
        wg += dot(weights, vec4<f32>(1.0));
      }
      for (var r = 0u; r < ROWS; r++) {
        var values = x[r * K4 + i];
        if (NORM) {
          values -= shifts[r];
          sums[r] += vec2<f32>(dot(values, vec4<f32>(1.0)), dot(values, values));
        }
        products[r] += weights * values;
      }
    }
    var gains = vec2<f32>();
    if (NORM) {
      gains = team_sum4(vec4<f32>(wg, wh, 0.0, 0.0)).xy;
    }
    for (var r = 0u; r < ROWS; r++) {
      let product = dot(products[r], vec4<f32>(1.0));
      let total = team_sum4(vec4<f32>(product, sums[r], 0.0));
      var value = total.x;
      if (NORM) {
        let mean = total.y / f32(4u * K4);
        let variance = max(total.z / f32(4u * K4) - mean * mean, 0.0);
        value = (total.x - mean * gains.x) / sqrt(variance + 1e-5) + gains.y;
      }
      if (TEAM.lane == 0u) {
        if (BIAS) {
          value += bias[OFFSET + o];
        }
        value = activate(value);
        let at = r * STRIDE + OFFSET + o;
        if (ADD) {
          value += add[at];
        }
        y[at] = value;
      }
    }
  }
}
