// y[r, o] = activation(Σ_k x[r, k] w[o, k] + b[o]) + add[r, o]      a convolution of OUTPUTS <= 4
// x is lengthened already (lengthen.wgsl), w [OUTPUTS, 4·K4], y and add [R, OUTPUTS]; R is that of
// the binding. A row a team. Launch ceil(R / teams of a workgroup) workgroups, folded at 65,535.
// use _team_subgroup
// use _weights_f32
// use _activation
// use _convolved
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

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let rows = arrayLength(&y) / OUTPUTS;
  for (var row = team_first(workgroup.x); row < rows; row += team_step(workgroups.x)) {
    var sum = vec4<f32>();
    for (var k4 = TEAM.lane; k4 < K4; k4 += TEAM.lanes) {
      let v = x[row * STEP4 + spread(k4)];
      sum += vec4<f32>(product(0u, k4, v), product(1u, k4, v), product(2u, k4, v), product(3u, k4, v));
    }
    let total = team_sum4(sum);
    if (TEAM.lane < OUTPUTS) {
      let at = row * OUTPUTS + TEAM.lane;
      var value = total[TEAM.lane];
      if (BIAS) {
        value += bias[TEAM.lane];
      }
      value = activate(value);
      if (ADD) {
        value += add[at];
      }
      y[at] = value;
    }
  }
}
