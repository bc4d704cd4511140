// y[t] = b + Σ_k w[k] (memory‖x)[t + k]      causal, each channel by itself; the memory moves on
// x and y [SEQUENCES·T, 4·WIDTH4], w [TAPS, ..], memory [slots, LEFT, ..], LEFT = TAPS - 1; T is that of
// the binding. A workgroup takes 2 columns of vec4s and all rows of a sequence: what it writes to the
// memory no other reads. Launch (ceil(WIDTH4 / 2), SEQUENCES).
// use _conv_state
const TAPS: u32 = 7u;
const BIAS: bool = false;
const CARRIED: u32 = 64u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> memory: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let count = arrayLength(&x) / (WIDTH4 * workgroups.y);
  let at = sequence_state(workgroup.y, count);
  let column = workgroup.x * 2u + me % 2u;
  let lane = me / 2u;
  if (column < WIDTH4) {
    for (var row = lane; row < count; row += 64u) {
      var sum = vec4<f32>();
      if (BIAS) {
        sum = bias[column];
      }
      for (var tap = 0u; tap < TAPS; tap++) {
        sum += w[tap * WIDTH4 + column] * joined(row + tap, column, at);
      }
      y[at.x + row * WIDTH4 + column] = sum;
    }
  }
  carry(column, lane, count, at);
}
