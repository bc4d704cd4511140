// One LSTM layer of the prediction network for each row that is fresh:
// z = W_input x + W_hidden h + b, four gates i f g o;  c' = σ(f) c + σ(i) tanh(g);  h' = σ(o) tanh(c')
// x is table[state.token] in the lowest layer, h' of the layer below in others. hidden and cell
// [slots, LAYERS, 2, P]: a row's place is state.slot; state.half names the half that holds c and h,
// c' and h' go to the other. state [ROWS], table [V + 1, P], weights [4·P, P], P = 4·P4. A subgroup or
// workgroup computes one of P for up to four rows, with its weights read once. Launch (some workgroups,
// ceil(ROWS / 4)).
// use _row_reduce_subgroup for ROW_REDUCE: subgroup, workgroup, shared
// use _weights_f32 for WEIGHTS: f32, f16, bf16
// use _transducer_state
const ROWS: u32 = 1u;
const LAYERS: u32 = 1u;
const LAYER: u32 = 0u;
const P4: u32 = 1u;

@group(0) @binding(0) var<storage, read> table: array<Packed>;
@group(0) @binding(1) var<storage, read> w_input: array<Packed>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> w_hidden: array<Packed>;
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read_write> hidden: array<f32>;
@group(0) @binding(6) var<storage, read_write> cell: array<f32>;

const P: u32 = 4u * P4;
const SLOT_SIZE: u32 = LAYERS * 2u * P;
// Where a layer's halves begin in a slot, and those of the layer below; some compilers evaluate what
// never runs.
const HERE: u32 = LAYER * 2u * P;
const BELOW: u32 = (max(LAYER, 1u) - 1u) * 2u * P;

// The token of a row, and the offsets of its state.
struct Row {
  fresh: bool,
  token: u32,   // offset of its embedding, in vec4s
  before: u32,  // of the slot's first layer: the half from before the token
  after: u32,   // and the half that is written
}

fn row_at(row: u32) -> Row {
  let at = min(row, ROWS - 1u) * WORDS;
  let fresh = row < ROWS && state[at + DONE] == 0u && state[at + FRESH] == 1u;
  let half = state[at + HALF];
  let slot = min(state[at + SLOT], arrayLength(&hidden) / SLOT_SIZE - 1u) * SLOT_SIZE;
  return Row(fresh, state[at + TOKEN] * P4, slot + half * P, slot + (1u - half) * P);
}

fn held(at: u32) -> vec4<f32> {
  return vec4<f32>(hidden[at], hidden[at + 1u], hidden[at + 2u], hidden[at + 3u]);
}

fn input(row: Row, i: u32) -> vec4<f32> {
  if (LAYER == 0u) {
    return unpack(table[row.token + i]);
  }
  return held(BELOW + row.after + 4u * i);
}

// The products of four inputs and four hidden values with the weights of each gate, a column a gate.
fn gates(row: Row, i: u32, wx: mat4x4<f32>, wh: mat4x4<f32>) -> vec4<f32> {
  return input(row, i) * wx + held(HERE + row.before + 4u * i) * wh;
}

fn sigmoid(x: f32) -> f32 {
  return 1.0 / (1.0 + exp(min(-x, 80.0)));
}

fn squash(x: f32) -> f32 {
  return tanh(clamp(x, -20.0, 20.0));  // some drivers have no number for more
}

fn finish(row: Row, j: u32, sum: vec4<f32>) {
  if (ROW_GROUP.lane != 0u) {
    return;
  }
  let z = sum + vec4<f32>(bias[j], bias[P + j], bias[2u * P + j], bias[3u * P + j]);
  let carry = sigmoid(z.y) * cell[HERE + row.before + j] + sigmoid(z.x) * squash(z.z);
  let to = HERE + row.after + j;
  cell[to] = carry;
  hidden[to] = sigmoid(z.w) * squash(carry);
}

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let row = workgroup.y * 4u;
  let r0 = row_at(row);
  let r1 = row_at(row + 1u);
  let r2 = row_at(row + 2u);
  let r3 = row_at(row + 3u);
  if (!(r0.fresh || r1.fresh || r2.fresh || r3.fresh)) {
    return;
  }
  let gate = P * P4;
  for (var j = first_row(workgroup.x); j < P; j += row_step(workgroups.x)) {
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    for (var i = ROW_GROUP.lane; i < P4; i += ROW_GROUP.lanes) {
      let at = j * P4 + i;
      let wx = mat4x4<f32>(
        unpack(w_input[at]), unpack(w_input[at + gate]),
        unpack(w_input[at + 2u * gate]), unpack(w_input[at + 3u * gate]),
      );
      let wh = mat4x4<f32>(
        unpack(w_hidden[at]), unpack(w_hidden[at + gate]),
        unpack(w_hidden[at + 2u * gate]), unpack(w_hidden[at + 3u * gate]),
      );
      if (r0.fresh) {
        s0 += gates(r0, i, wx, wh);
      }
      if (r1.fresh) {
        s1 += gates(r1, i, wx, wh);
      }
      if (r2.fresh) {
        s2 += gates(r2, i, wx, wh);
      }
      if (r3.fresh) {
        s3 += gates(r3, i, wx, wh);
      }
    }
    if (r0.fresh) {
      finish(r0, j, row_sum4(s0));
    }
    if (r1.fresh) {
      finish(r1, j, row_sum4(s1));
    }
    if (r2.fresh) {
      finish(r2, j, row_sum4(s2));
    }
    if (r3.fresh) {
      finish(r3, j, row_sum4(s3));
    }
  }
}
