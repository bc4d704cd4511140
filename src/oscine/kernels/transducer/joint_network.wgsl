// y[row, f] = relu(x[first + position + f] + joint[slot])    f < AHEAD, frames past the end repeat it
// joint[slot] = W h' + b is kept, and computed only for rows that are fresh; h' is in the half of
// hidden [slots, LAYERS, 2, 4·P4] that state.half does not name. state [ROWS], x [.., J],
// w [J, 4·P4], joint [slots, J], y [ROWS·AHEAD, J]. A subgroup or workgroup computes one of J. Launch (some
// workgroups, ROWS).
// use _row_reduce_subgroup for ROW_REDUCE: subgroup, workgroup, shared
// use _weights_f32 for WEIGHTS: f32, f16, bf16
// use _transducer_state
const LAYERS: u32 = 1u;
const P4: u32 = 1u;
const J: u32 = 1u;
const AHEAD: u32 = 1u;
const BIAS: bool = false;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<Packed>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> state: array<u32>;
@group(0) @binding(4) var<storage, read> hidden: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> joint: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

// NaN is kept, to be found in the logits: max() may return the other operand.
fn relu(value: f32) -> f32 {
  let broken = (bitcast<u32>(value) & 0x7fffffffu) > 0x7f800000u;
  return select(max(value, 0.0), value, broken);
}

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let row = workgroup.y;
  let base = row * WORDS;
  if (state[base + DONE] != 0u) {
    return;
  }
  let fresh = state[base + FRESH] == 1u;
  let slot = min(state[base + SLOT], arrayLength(&joint) / J - 1u);
  let above = ((slot * LAYERS + LAYERS - 1u) * 2u + 1u - state[base + HALF]) * P4;
  let first = state[base + FIRST];
  let frame = state[base + POSITION];
  let last = max(state[base + LENGTH], 1u) - 1u;
  for (var j = first_row(workgroup.x); j < J; j += row_step(workgroups.x)) {
    var sum = 0.0;
    if (fresh) {
      var product = vec4<f32>();
      for (var i = ROW_GROUP.lane; i < P4; i += ROW_GROUP.lanes) {
        product += unpack(w[j * P4 + i]) * hidden[above + i];
      }
      sum = row_sum(dot(product, vec4<f32>(1.0)));
      if (BIAS) {
        sum += bias[j];
      }
      if (ROW_GROUP.lane == 0u) {
        joint[slot * J + j] = sum;
      }
    } else {
      sum = joint[slot * J + j];
    }
    for (var f = ROW_GROUP.lane; f < AHEAD; f += ROW_GROUP.lanes) {
      y[(row * AHEAD + f) * J + j] = relu(x[(first + min(frame + f, last)) * J + j] + sum);
    }
  }
}
