// One LSTM layer of the prediction network for each line that is fresh:
// z = W_input x + W_hidden h + b, four gates i f g o;  c' = σ(f) c + σ(i) tanh(g);  h' = σ(o) tanh(c')
// x is table[track.token] in the lowest layer, h' of the layer below in others. hidden and cell
// [LAYERS, 2, LINES, P]: c and h lie in the half that track.half names, c' and h' go to the other.
// table [V + 1, P], weights [4·P, P], P = 4·P4. A team computes one of P for up to four lines, with
// its weights read once. Launch (some workgroups, ceil(LINES / 4)).
// use _team_subgroup
// use _weights_f32
// use _track
const LINES: u32 = 1u;
const LAYER: u32 = 0u;
const P4: u32 = 1u;

@group(0) @binding(0) var<storage, read> table: array<Packed>;
@group(0) @binding(1) var<storage, read> w_input: array<Packed>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> w_hidden: array<Packed>;
@group(0) @binding(4) var<storage, read> track: array<u32>;
@group(0) @binding(5) var<storage, read_write> hidden: array<f32>;
@group(0) @binding(6) var<storage, read_write> cell: array<f32>;

const P: u32 = 4u * P4;
const BELOW: u32 = max(LAYER, 1u) - 1u;  // some compilers look at what is never run

fn wanted(line: u32) -> bool {
  let at = min(line, LINES - 1u) * TRACK_WORDS;
  return line < LINES && track[at + DONE] == 0u && track[at + FRESH] == 1u;
}

// Where a line's P values begin in a layer's half.
fn place(layer: u32, half: u32, line: u32) -> u32 {
  return ((layer * 2u + half) * LINES + line) * P;
}

fn held(at: u32) -> vec4<f32> {
  return vec4<f32>(hidden[at], hidden[at + 1u], hidden[at + 2u], hidden[at + 3u]);
}

fn input(line: u32, i: u32) -> vec4<f32> {
  if (LAYER == 0u) {
    return unpack(table[track[line * TRACK_WORDS + TOKEN] * P4 + i]);
  }
  return held(place(BELOW, 1u - track[line * TRACK_WORDS + HALF], line) + 4u * i);
}

// What four of the inputs and four of the hidden values add to each gate; a column a gate.
fn gates(line: u32, i: u32, wx: mat4x4<f32>, wh: mat4x4<f32>) -> vec4<f32> {
  let h = held(place(LAYER, track[line * TRACK_WORDS + HALF], line) + 4u * i);
  return input(line, i) * wx + h * wh;
}

fn sigmoid(x: f32) -> f32 {
  return 1.0 / (1.0 + exp(min(-x, 80.0)));
}

fn squash(x: f32) -> f32 {
  return tanh(clamp(x, -20.0, 20.0));  // some drivers have no number for more
}

fn finish(line: u32, j: u32, sum: vec4<f32>) {
  if (TEAM.lane != 0u) {
    return;
  }
  let half = track[line * TRACK_WORDS + HALF];
  let z = sum + vec4<f32>(bias[j], bias[P + j], bias[2u * P + j], bias[3u * P + j]);
  let carry = sigmoid(z.y) * cell[place(LAYER, half, line) + j] + sigmoid(z.x) * squash(z.z);
  let to = place(LAYER, 1u - half, line) + j;
  cell[to] = carry;
  hidden[to] = sigmoid(z.w) * squash(carry);
}

fn run(workgroup: vec3<u32>, workgroups: vec3<u32>) {
  let line = workgroup.y * 4u;
  let w0 = wanted(line);
  let w1 = wanted(line + 1u);
  let w2 = wanted(line + 2u);
  let w3 = wanted(line + 3u);
  if (!(w0 || w1 || w2 || w3)) {
    return;
  }
  let gate = P * P4;
  for (var j = team_first(workgroup.x); j < P; j += team_step(workgroups.x)) {
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    for (var i = TEAM.lane; i < P4; i += TEAM.lanes) {
      let at = j * P4 + i;
      let wx = mat4x4<f32>(
        unpack(w_input[at]), unpack(w_input[at + gate]),
        unpack(w_input[at + 2u * gate]), unpack(w_input[at + 3u * gate]),
      );
      let wh = mat4x4<f32>(
        unpack(w_hidden[at]), unpack(w_hidden[at + gate]),
        unpack(w_hidden[at + 2u * gate]), unpack(w_hidden[at + 3u * gate]),
      );
      if (w0) {
        s0 += gates(line, i, wx, wh);
      }
      if (w1) {
        s1 += gates(line + 1u, i, wx, wh);
      }
      if (w2) {
        s2 += gates(line + 2u, i, wx, wh);
      }
      if (w3) {
        s3 += gates(line + 3u, i, wx, wh);
      }
    }
    if (w0) {
      finish(line, j, team_sum4(s0));
    }
    if (w1) {
      finish(line + 1u, j, team_sum4(s1));
    }
    if (w2) {
      finish(line + 2u, j, team_sum4(s2));
    }
    if (w3) {
      finish(line + 3u, j, team_sum4(s3));
    }
  }
}
