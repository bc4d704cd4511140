// y[r, o] = activation(Σ_i norm(x[r])[i] w[o, i] + b[o]) + add[r, o]      a few dozen rows r
// x [ROWS, 4·K4], w [OUTPUTS, 4·K4], y and add [ROWS, STRIDE] from column OFFSET on.
// LANES invocations are a group: they share the K4 vec4s of four rows of w and multiply
// each with TILE <= 16 rows of x, so that w is read once, and an x once for four outputs. Their sums
// are halved three times between adjacent lanes (a lane keeps one row of eight), then summed in
// shared memory. With NORM the norm is folded, as in gemv.wgsl, and each group sums x' and x'² of four
// rows: then LANES <= WORKGROUP / 4, or half of it for TILE <= 8.
// Launch (ceil(ROWS / TILE), ceil(OUTPUTS / (4 · WORKGROUP / LANES))).
// use _shuffle_subgroup for WORKGROUP_REDUCE: subgroup, shared
// use _skinny_sums
// use _matrix_f32 for WEIGHTS: f32, f16, bf16, q8, q4
// use _all_done
// use _activation
const ROWS: u32 = 1u;
const TILE: u32 = 16u;
const LANES: u32 = 64u;
const K4: u32 = 1u;
const OUTPUTS: u32 = 1u;
const OFFSET: u32 = 0u;
const STRIDE: u32 = 1u;
const NORM: bool = false;
const RMS: bool = false;   // which norm: root mean square, which needs no fold
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

const HELD: u32 = (TILE + 7u) / 8u * 8u;     // rows that the halving makes room for
const ACROSS: u32 = WORKGROUP / LANES * 4u;  // outputs of a workgroup

var<workgroup> sums: array<vec4<f32>, WORKGROUP / 8u * HELD>;  // [8 lanes each][HELD]
var<workgroup> marks: array<vec4<f32>, WORKGROUP / 4u>;        // [8 lanes each][2]: Σ x', Σ x'² twice

// Where row `row` of a tile begins in x: past the end the last row is read again.
fn begin(first: u32, row: u32) -> u32 {
  if (ROWS % TILE == 0u && row < TILE) {
    return (first + row) * K4;
  }
  return min(first + row, ROWS - 1u) * K4;
}

// Four rows of weights, four deep, transposed: a column for each of the four inputs.
fn transpose4(w0: Packed, w1: Packed, w2: Packed, w3: Packed, k: u32) -> mat4x4<f32> {
  if (NORM) {
    let g = norm_weight[k];
    return transpose(mat4x4<f32>(g * unpack(w0), g * unpack(w1), g * unpack(w2), g * unpack(w3)));
  }
  return transpose(mat4x4<f32>(unpack(w0), unpack(w1), unpack(w2), unpack(w3)));
}

// Σ v and Σ v².
fn sums_of(v: vec4<f32>) -> vec2<f32> {
  return vec2<f32>(dot(v, vec4<f32>(1.0)), dot(v, v));
}

// What the q-th result of the workgroup needs besides its sum: fetched ahead.
struct Rest {
  at: u32,      // where it goes; NOWHERE past the ends
  bias: f32,
  add: f32,
  fold: f32,
  shift: f32,
}

const NOWHERE: u32 = 0xffffffffu;

// The sum of a row's products, as if x had been normed before.
fn normed(product: f32, row: u32, rest: Rest) -> f32 {
  var total = vec4<f32>();
  for (var i = 0u; i < LANES / 8u; i++) {
    total += marks[(row / 4u * (LANES / 8u) + i) * 2u + row % 4u / 2u];
  }
  let both = select(total.xy, total.zw, row % 2u == 1u);
  if (RMS) {
    return product / sqrt(both.y / f32(4u * K4) + EPS);
  }
  let mean = both.x / f32(4u * K4);
  let variance = max(both.y / f32(4u * K4) - mean * mean, 0.0);
  return (product - (mean + rest.shift) * rest.fold) / sqrt(variance + EPS);
}

fn rest_of(q: u32, first: u32, begins: u32) -> Rest {
  var rest = Rest(NOWHERE, 0.0, 0.0, 0.0, 0.0);
  let row = first + q / ACROSS;
  let output = begins + q % ACROSS;
  if (q >= ACROSS * TILE || row >= ROWS || output >= OUTPUTS) {
    return rest;
  }
  rest.at = row * STRIDE + OFFSET + output;
  if (BIAS) {
    rest.bias = bias[OFFSET + output];
  }
  if (ADD) {
    rest.add = add[rest.at];
  }
  if (NORM && !RMS) {
    rest.fold = fold[OFFSET + output];
    rest.shift = dot(x[row * K4], vec4<f32>(0.25));
  }
  return rest;
}

fn run(workgroup: vec3<u32>, me: u32) {
  let first = select(workgroup.x * TILE, 0u, ROWS <= TILE);
  let lane = me % LANES;
  let begins = workgroup.y * ACROSS;
  let o = begins + me / LANES * 4u;
  let w0 = min(o, OUTPUTS - 1u) * K4;
  let w1 = min(o + 1u, OUTPUTS - 1u) * K4;
  let w2 = min(o + 2u, OUTPUTS - 1u) * K4;
  let w3 = min(o + 3u, OUTPUTS - 1u) * K4;
  // Weights are fetched a round ahead, the first before it is known whether there is work.
  let start = min(lane, K4 - 1u);
  var p0 = fetch(w0 + start);
  var p1 = fetch(w1 + start);
  var p2 = fetch(w2 + start);
  var p3 = fetch(w3 + start);
  if (all_done()) {
    return;
  }
  var rest = rest_of(me, first, begins);
  // Four rows whose sums this group keeps, less the mean of their first four values: that keeps the
  // variance of rows with a large mean from cancelling.
  var m0 = vec4<f32>();
  var m1 = vec4<f32>();
  let marked = me / LANES * 4u;
  let t0 = begin(first, marked);
  let t1 = begin(first, marked + 1u);
  let t2 = begin(first, marked + 2u);
  let t3 = begin(first, marked + 3u);
  var shift = vec4<f32>();
  if (NORM && !RMS && marked < TILE) {
    shift.x = dot(x[t0], vec4<f32>(0.25));
    shift.y = dot(x[t1], vec4<f32>(0.25));
    shift.z = dot(x[t2], vec4<f32>(0.25));
    shift.w = dot(x[t3], vec4<f32>(0.25));
  }
  let r0 = begin(first, 0u);
  let r1 = begin(first, 1u);
  let r2 = begin(first, 2u);
  let r3 = begin(first, 3u);
  let r4 = begin(first, 4u);
  let r5 = begin(first, 5u);
  let r6 = begin(first, 6u);
  let r7 = begin(first, 7u);
  let r8 = begin(first, 8u);
  let r9 = begin(first, 9u);
  let r10 = begin(first, 10u);
  let r11 = begin(first, 11u);
  let r12 = begin(first, 12u);
  let r13 = begin(first, 13u);
  let r14 = begin(first, 14u);
  let r15 = begin(first, 15u);
  // Names, not an array, so that they stay in registers: 16 rows of four outputs.
  var a0 = vec4<f32>();
  var a1 = vec4<f32>();
  var a2 = vec4<f32>();
  var a3 = vec4<f32>();
  var a4 = vec4<f32>();
  var a5 = vec4<f32>();
  var a6 = vec4<f32>();
  var a7 = vec4<f32>();
  var a8 = vec4<f32>();
  var a9 = vec4<f32>();
  var a10 = vec4<f32>();
  var a11 = vec4<f32>();
  var a12 = vec4<f32>();
  var a13 = vec4<f32>();
  var a14 = vec4<f32>();
  var a15 = vec4<f32>();
  for (var k = lane; k < K4; k += LANES) {
    let m = transpose4(p0, p1, p2, p3, k);
    let next = min(k + LANES, K4 - 1u);
    p0 = fetch(w0 + next);
    p1 = fetch(w1 + next);
    p2 = fetch(w2 + next);
    p3 = fetch(w3 + next);
    if (NORM && marked < TILE) {
      m0 += vec4<f32>(sums_of(x[t0 + k] - shift.x), sums_of(x[t1 + k] - shift.y));
      m1 += vec4<f32>(sums_of(x[t2 + k] - shift.z), sums_of(x[t3 + k] - shift.w));
    }
    let x0 = x[r0 + k];
    a0 = step(a0, x0, m);
    let x1 = x[r1 + k];
    a1 = step(a1, x1, m);
    let x2 = x[r2 + k];
    a2 = step(a2, x2, m);
    let x3 = x[r3 + k];
    a3 = step(a3, x3, m);
    let x4 = x[r4 + k];
    a4 = step(a4, x4, m);
    if (TILE > 5u) {
      let x5 = x[r5 + k];
      a5 = step(a5, x5, m);
    }
    if (TILE > 6u) {
      let x6 = x[r6 + k];
      a6 = step(a6, x6, m);
    }
    if (TILE > 7u) {
      let x7 = x[r7 + k];
      a7 = step(a7, x7, m);
    }
    if (TILE > 8u) {
      let x8 = x[r8 + k];
      a8 = step(a8, x8, m);
    }
    if (TILE > 9u) {
      let x9 = x[r9 + k];
      a9 = step(a9, x9, m);
    }
    if (TILE > 10u) {
      let x10 = x[r10 + k];
      a10 = step(a10, x10, m);
    }
    if (TILE > 11u) {
      let x11 = x[r11 + k];
      a11 = step(a11, x11, m);
    }
    if (TILE > 12u) {
      let x12 = x[r12 + k];
      a12 = step(a12, x12, m);
    }
    if (TILE > 13u) {
      let x13 = x[r13 + k];
      a13 = step(a13, x13, m);
    }
    if (TILE > 14u) {
      let x14 = x[r14 + k];
      a14 = step(a14, x14, m);
    }
    if (TILE > 15u) {
      let x15 = x[r15 + k];
      a15 = step(a15, x15, m);
    }
  }
  let c0 = halve(a0, a1, 1u, me);
  let c1 = halve(a2, a3, 1u, me);
  let c2 = halve(a4, a5, 1u, me);
  let c3 = halve(a6, a7, 1u, me);
  let d0 = halve(c0, c1, 2u, me);
  let d1 = halve(c2, c3, 2u, me);
  sums[me / 8u * HELD + me % 8u] = halve(d0, d1, 4u, me);
  if (HELD > 8u) {
    let c0 = halve(a8, a9, 1u, me);
    let c1 = halve(a10, a11, 1u, me);
    let c2 = halve(a12, a13, 1u, me);
    let c3 = halve(a14, a15, 1u, me);
    let d0 = halve(c0, c1, 2u, me);
    let d1 = halve(c2, c3, 2u, me);
    sums[me / 8u * HELD + 8u + me % 8u] = halve(d0, d1, 4u, me);
  }
  if (NORM) {
    var both = halve(m0, m1, 1u, me);
    both += shuffle(both, 2u, me);
    both += shuffle(both, 4u, me);
    if (me % 8u < 2u) {
      marks[me / 8u * 2u + me % 2u] = both;
    }
  }
  workgroupBarrier();
  for (var q = me; q < ACROSS * TILE; q += WORKGROUP) {
    let across = q % ACROSS;
    let row = q / ACROSS;
    let at = across / 4u * (LANES / 8u) * HELD + row;
    var sum = 0.0;
    for (var i = 0u; i < LANES / 8u; i++) {
      sum += sums[at + i * HELD][across % 4u];
    }
    if (rest.at != NOWHERE) {
      if (NORM) {
        sum = normed(sum, row, rest);
      }
      y[rest.at] = activate(sum + rest.bias) + rest.add;
    }
    rest = rest_of(q + WORKGROUP, first, begins);
  }
}
