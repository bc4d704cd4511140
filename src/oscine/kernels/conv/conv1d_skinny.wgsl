// y[r, o] = activation(Σ_k x[r, k] w[o, k] + b[o]) + add[r, o]      a few rows r of a convolution
// x is padded already (pad.wgsl), w [OUTPUTS, 4·K4], y and add [R, OUTPUTS]; R is that of
// the binding. LANES invocations are a group: they share the depth of four rows of w and
// multiply each with TILE (4, 8 or 16) rows of x, so that w is read once. Their sums are halved
// between adjacent lanes (a lane keeps one row of four or eight), then summed in shared memory.
// Launch (ceil(R / TILE), ceil(OUTPUTS / (4 · WORKGROUP / LANES))).
// use _shuffle_subgroup for WORKGROUP_REDUCE: subgroup, shared
// use _skinny_sums
// use _weights_f32 for WEIGHTS: f32, f16, bf16
// use _activation
// use _conv_addressing
const TILE: u32 = 16u;
const LANES: u32 = 128u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<Packed>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> add: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

const ACROSS: u32 = WORKGROUP / LANES * 4u;  // outputs of a workgroup

var<workgroup> sums: array<vec4<f32>, WORKGROUP / 4u * TILE>;  // [lanes, by the four or eight][TILE]

fn run(workgroup: vec3<u32>, me: u32) {
  let rows = arrayLength(&y) / OUTPUTS;
  let first = workgroup.x * TILE;
  let begins = workgroup.y * ACROSS;
  let o = begins + me / LANES * 4u;
  let w0 = min(o, OUTPUTS - 1u) * K4;
  let w1 = min(o + 1u, OUTPUTS - 1u) * K4;
  let w2 = min(o + 2u, OUTPUTS - 1u) * K4;
  let w3 = min(o + 3u, OUTPUTS - 1u) * K4;
  // Weights are fetched a round ahead.
  let lane = me % LANES;
  let start = min(lane, K4 - 1u);
  var p0 = w[w0 + start];
  var p1 = w[w1 + start];
  var p2 = w[w2 + start];
  var p3 = w[w3 + start];
  let end = rows - 1u;  // past the end the last row is read again
  let r0 = row_offset(min(first + 0u, end), rows);
  let r1 = row_offset(min(first + 1u, end), rows);
  let r2 = row_offset(min(first + 2u, end), rows);
  let r3 = row_offset(min(first + 3u, end), rows);
  let r4 = row_offset(min(first + 4u, end), rows);
  let r5 = row_offset(min(first + 5u, end), rows);
  let r6 = row_offset(min(first + 6u, end), rows);
  let r7 = row_offset(min(first + 7u, end), rows);
  let r8 = row_offset(min(first + 8u, end), rows);
  let r9 = row_offset(min(first + 9u, end), rows);
  let r10 = row_offset(min(first + 10u, end), rows);
  let r11 = row_offset(min(first + 11u, end), rows);
  let r12 = row_offset(min(first + 12u, end), rows);
  let r13 = row_offset(min(first + 13u, end), rows);
  let r14 = row_offset(min(first + 14u, end), rows);
  let r15 = row_offset(min(first + 15u, end), rows);
  // Names, not an array, so that they stay in registers.
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
    let m = transpose(mat4x4<f32>(unpack(p0), unpack(p1), unpack(p2), unpack(p3)));
    let next = min(k + LANES, K4 - 1u);
    p0 = w[w0 + next];
    p1 = w[w1 + next];
    p2 = w[w2 + next];
    p3 = w[w3 + next];
    let at = tap_offset(k);
    a0 = step(a0, x[r0 + at], m);
    a1 = step(a1, x[r1 + at], m);
    a2 = step(a2, x[r2 + at], m);
    a3 = step(a3, x[r3 + at], m);
    if (TILE > 4u) {
      a4 = step(a4, x[r4 + at], m);
      a5 = step(a5, x[r5 + at], m);
      a6 = step(a6, x[r6 + at], m);
      a7 = step(a7, x[r7 + at], m);
    }
    if (TILE > 8u) {
      a8 = step(a8, x[r8 + at], m);
      a9 = step(a9, x[r9 + at], m);
      a10 = step(a10, x[r10 + at], m);
      a11 = step(a11, x[r11 + at], m);
      a12 = step(a12, x[r12 + at], m);
      a13 = step(a13, x[r13 + at], m);
      a14 = step(a14, x[r14 + at], m);
      a15 = step(a15, x[r15 + at], m);
    }
  }
  let c0 = halve(a0, a1, 1u, me);
  let c1 = halve(a2, a3, 1u, me);
  let d0 = halve(c0, c1, 2u, me);
  if (TILE == 4u) {
    sums[me / 4u * 4u + me % 4u] = d0;
  } else {
    let c2 = halve(a4, a5, 1u, me);
    let c3 = halve(a6, a7, 1u, me);
    let d1 = halve(c2, c3, 2u, me);
    sums[me / 8u * TILE + me % 8u] = halve(d0, d1, 4u, me);
  }
  if (TILE > 8u) {
    let c0 = halve(a8, a9, 1u, me);
    let c1 = halve(a10, a11, 1u, me);
    let c2 = halve(a12, a13, 1u, me);
    let c3 = halve(a14, a15, 1u, me);
    let d0 = halve(c0, c1, 2u, me);
    let d1 = halve(c2, c3, 2u, me);
    sums[me / 8u * TILE + 8u + me % 8u] = halve(d0, d1, 4u, me);
  }
  workgroupBarrier();
  const KEPT: u32 = LANES / min(TILE, 8u);  // rows of sums of a group to add
  for (var q = me; q < ACROSS * TILE; q += WORKGROUP) {
    let across = q % ACROSS;
    let row = q / ACROSS;
    let output = begins + across;
    if (first + row >= rows || output >= OUTPUTS) {
      continue;
    }
    var sum = 0.0;
    for (var i = 0u; i < KEPT; i++) {
      sum += sums[(across / 4u * KEPT + i) * TILE + row][across % 4u];
    }
    let at = (first + row) * OUTPUTS + output;
    if (BIAS) {
      sum += bias[output];
    }
    sum = activate(sum);
    if (ADD) {
      sum += add[at];
    }
    y[at] = sum;
  }
}
