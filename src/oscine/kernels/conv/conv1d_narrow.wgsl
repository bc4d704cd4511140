// y[r, o] = activation(Σ_k x[r, k] w[o, k] + b[o]) + add[r, o]      few outputs, or not a multiple of 4
// x is padded already (pad.wgsl), w [OUTPUTS, 4·K4], y and add [R, OUTPUTS]; R is that of
// the binding. A row and up to four outputs a subgroup or workgroup.
// Launch (ceil(R / rows of a workgroup), folded at 65,535, ceil(OUTPUTS / 4)).
// use _row_reduce_subgroup for ROW_REDUCE: subgroup, workgroup, shared
// use _weights_f32 for WEIGHTS: f32, f16, bf16
// use _activation
// use _conv_addressing
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<Packed>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> add: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

fn product(output: u32, k4: u32, value: vec4<f32>) -> f32 {
  if (output < OUTPUTS) {
    return dot(value, unpack(w[output * K4 + k4]));
  }
  return 0.0;
}

fn finish(row: u32, output: u32, sum: f32) {
  if (output >= OUTPUTS || ROW_GROUP.lane != output % 4u % ROW_GROUP.lanes) {
    return;
  }
  let at = row * OUTPUTS + output;
  var value = sum;
  if (BIAS) {
    value += bias[output];
  }
  value = activate(value);
  if (ADD) {
    value += add[at];
  }
  y[at] = value;
}

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let rows = arrayLength(&y) / OUTPUTS;
  let o = workgroup.y * 4u;
  for (var row = first_row(workgroup.x); row < rows; row += row_step(workgroups.x)) {
    let first = row_offset(row, rows);
    var sum = vec4<f32>();
    for (var k4 = ROW_GROUP.lane; k4 < K4; k4 += ROW_GROUP.lanes) {
      let v = x[first + tap_offset(k4)];
      sum.x += product(o, k4, v);
      sum.y += product(o + 1u, k4, v);
      sum.z += product(o + 2u, k4, v);
      sum.w += product(o + 3u, k4, v);
    }
    let total = row_sum4(sum);
    finish(row, o, total.x);
    finish(row, o + 1u, total.y);
    finish(row, o + 2u, total.z);
    finish(row, o + 3u, total.w);
  }
}
