// y[r, o] = activation(Σ_i norm(x[r])[i] w[o, i] + b[o]) + add[r, o]      ROWS ≤ 4 rows r
// x [ROWS, 4·K4], w [OUTPUTS, 4·K4], y and add [ROWS, STRIDE] from column OFFSET on.
// A row of w a subgroup or workgroup, read once for all rows of x. With NORM (ROWS = 1) the norm is folded:
// Σ w (g (x - m) s + h) + b = s (Σ w g x' - m' fold[o]) + bias[o], where fold = W g and
// bias = W h + b were computed beforehand, and x' = x - x̃ with x̃ the mean of x's first four
// values, which keeps the variance of rows with a large mean from cancelling.
// Launch ceil(OUTPUTS / rows of a workgroup) workgroups, folded at 65,535.
// use _row_reduce_subgroup for ROW_REDUCE: subgroup, workgroup, shared
// use _matrix_f32 for WEIGHTS: f32, f16, bf16, q8, q4
// use _all_done
// use _activation
const ROWS: u32 = 1u;
const K4: u32 = 1u;
const OUTPUTS: u32 = 1u;
const OFFSET: u32 = 0u;
const STRIDE: u32 = 1u;
const NORM: bool = false;
const EPS: f32 = 1e-5;
const BIAS: bool = false;
const ADD: bool = false;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> fold: array<f32>;
@group(0) @binding(3) var<storage, read> w: array<Word>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read> add: array<f32>;
@group(0) @binding(6) var<storage, read> state: array<u32>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;

const ONES: vec4<f32> = vec4<f32>(1.0);

fn finish(row: u32, o: u32, sum: f32) {
  var value = sum;
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

// Four rounds of loads of a row of w.
struct Ahead {
  i: Packed,
  j: Packed,
  k: Packed,
  l: Packed,
}

// Those from vec4 `i` of row `o` on; past the row's end any of its values.
fn four_rounds(o: u32, i: u32) -> Ahead {
  let row = min(o, OUTPUTS - 1u) * K4;
  let last = K4 - 1u;
  let lanes = ROW_GROUP.lanes;
  return Ahead(
    fetch(row + min(i, last)), fetch(row + min(i + lanes, last)),
    fetch(row + min(i + 2u * lanes, last)), fetch(row + min(i + 3u * lanes, last))
  );
}

// Past the row's end the weight is 0, and x any of its values.
fn weights_at(fetched: Packed, i: u32) -> vec4<f32> {
  return select(vec4<f32>(), unpack(fetched), vec4<bool>(i < K4));
}

// What a row with a norm adds up.
struct NormSums {
  product: vec4<f32>,
  sum: vec4<f32>,
  square: vec4<f32>,
}

// With two rounds more, at i and j.
fn with_two(before: NormSums, wi: vec4<f32>, i: u32, wj: vec4<f32>, j: u32, shift: f32) -> NormSums {
  let at = min(j, K4 - 1u);
  let xi = x[i] - shift;
  let xj = select(vec4<f32>(), x[at] - shift, vec4<bool>(j < K4));
  return NormSums(
    before.product + (wi * norm_weight[i] * xi + wj * norm_weight[at] * xj),
    before.sum + (xi + xj), before.square + (xi * xi + xj * xj)
  );
}

fn run_norm(o: u32, fetched: Ahead) {
  let shift = dot(x[0], vec4<f32>(0.25));
  let lanes = ROW_GROUP.lanes;
  var ahead = fetched;
  var sums = NormSums();
  for (var i = ROW_GROUP.lane; i < K4; i += 2u * lanes) {
    let wi = unpack(ahead.i);
    let wj = weights_at(ahead.j, i + lanes);
    ahead.i = ahead.k;
    ahead.j = ahead.l;
    let next = i + 4u * lanes;
    if (next < K4) {
      ahead.k = fetch(o * K4 + next);
      ahead.l = fetch(o * K4 + min(next + lanes, K4 - 1u));
    }
    sums = with_two(sums, wi, i, wj, i + lanes, shift);
  }
  let total = row_sum4(
    vec4<f32>(dot(sums.product, ONES), dot(sums.sum, ONES), dot(sums.square, ONES), 0.0)
  );
  if (ROW_GROUP.lane == 0u) {
    let mean = total.y / f32(4u * K4);
    let variance = max(total.z / f32(4u * K4) - mean * mean, 0.0);
    finish(0u, o, (total.x - mean * fold[OFFSET + o]) / sqrt(variance + EPS));
  }
}

fn run_plain(o: u32, fetched: Ahead) {
  var ahead = fetched;
  var p0 = vec4<f32>();
  var p1 = vec4<f32>();
  var p2 = vec4<f32>();
  var p3 = vec4<f32>();
  for (var i = ROW_GROUP.lane; i < K4; i += 4u * ROW_GROUP.lanes) {
    let j = i + ROW_GROUP.lanes;
    let k = j + ROW_GROUP.lanes;
    let l = k + ROW_GROUP.lanes;
    let wi = unpack(ahead.i);
    let wj = weights_at(ahead.j, j);
    let wk = weights_at(ahead.k, k);
    let wl = weights_at(ahead.l, l);
    let next = l + ROW_GROUP.lanes;
    if (next < K4) {
      ahead = four_rounds(o, next);
    }
    let jj = min(j, K4 - 1u);
    let kk = min(k, K4 - 1u);
    let ll = min(l, K4 - 1u);
    p0 += wi * x[i] + wj * x[jj] + wk * x[kk] + wl * x[ll];
    if (ROWS > 1u) {
      p1 += wi * x[K4 + i] + wj * x[K4 + jj] + wk * x[K4 + kk] + wl * x[K4 + ll];
    }
    if (ROWS > 2u) {
      p2 += wi * x[2u * K4 + i] + wj * x[2u * K4 + jj];
      p2 += wk * x[2u * K4 + kk] + wl * x[2u * K4 + ll];
    }
    if (ROWS > 3u) {
      p3 += wi * x[3u * K4 + i] + wj * x[3u * K4 + jj];
      p3 += wk * x[3u * K4 + kk] + wl * x[3u * K4 + ll];
    }
  }
  var total = vec4<f32>();
  if (ROWS > 1u) {
    total = row_sum4(vec4<f32>(dot(p0, ONES), dot(p1, ONES), dot(p2, ONES), dot(p3, ONES)));
  } else {
    total.x = row_sum(dot(p0, ONES));
  }
  if (ROW_GROUP.lane == 0u) {
    finish(0u, o, total.x);
    if (ROWS > 1u) {
      finish(1u, o, total.y);
    }
    if (ROWS > 2u) {
      finish(2u, o, total.z);
    }
    if (ROWS > 3u) {
      finish(3u, o, total.w);
    }
  }
}

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  // Weights are fetched rounds ahead, the first before it is known whether there is work.
  var o = first_row(workgroup.x);
  var ahead = four_rounds(o, ROW_GROUP.lane);
  if (all_done()) {
    return;
  }
  while (o < OUTPUTS) {
    if (NORM) {
      run_norm(o, ahead);
    } else {
      run_plain(o, ahead);
    }
    o += row_step(workgroups.x);
    if (o < OUTPUTS) {
      ahead = four_rounds(o, ROW_GROUP.lane);
    }
  }
}
