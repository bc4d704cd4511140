// y[b, t] = silu(bias + Σ_k w[k] g[b, t + k - TAPS/2]), g = value · sigmoid(gate)
// x [BATCH·ROWS, 2·D] value‖gate, w [TAPS, D], y [BATCH·ROWS, D], D = 4·WIDTH4
// g is 0 outside the first ceil(frames / PER) rows of b, and y at rows past them.
// A workgroup gates the rows it needs once: FRAMES + TAPS - 1 of 16 columns, at most 64 rows.
// Launch (ceil(WIDTH4 / 16), ceil(ROWS / FRAMES), BATCH).
// use _store_f32 for STORE: f32, f16
const ROWS: u32 = 1u;
const WIDTH4: u32 = 1u;
const TAPS: u32 = 9u;
const FRAMES: u32 = 32u;
const PER: u32 = 1u;
const BIAS: bool = false;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> frames: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<Stored>;

var<workgroup> gated: array<vec4<f32>, 1024>;  // [64 rows][16 columns]

// The exponent is cut off where it would overflow.
fn sigmoid(x: vec4<f32>) -> vec4<f32> {
  return 1.0 / (1.0 + exp(min(-x, vec4<f32>(80.0))));
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let across = me % 16u;
  let column = workgroup.x * 16u + across;
  let first = workgroup.y * FRAMES;
  let b = workgroup.z;
  let count = min((frames[b] + PER - 1u) / PER, ROWS);
  for (var i = me / 16u; i < FRAMES + TAPS - 1u; i += 8u) {
    let t = first + i;  // TAPS / 2 more than the row
    var value = vec4<f32>();
    if (t >= TAPS / 2u && t < count + TAPS / 2u && column < WIDTH4) {
      let source = (b * ROWS + t - TAPS / 2u) * 2u * WIDTH4 + column;
      value = x[source] * sigmoid(x[source + WIDTH4]);
    }
    gated[i * 16u + across] = value;
  }
  workgroupBarrier();
  if (column >= WIDTH4) {
    return;
  }
  for (var i = me / 16u; i < FRAMES; i += 8u) {
    let t = first + i;
    if (t >= ROWS) {
      break;
    }
    var sum = vec4<f32>();
    if (t < count) {
      if (BIAS) {
        sum = bias[column];
      }
      for (var k = 0u; k < TAPS; k++) {
        sum += w[k * WIDTH4 + column] * gated[(i + k) * 16u + across];
      }
      sum *= sigmoid(sum);
    }
    y[(b * ROWS + t) * WIDTH4 + column] = stored(sum);
  }
}
