// y[t, m] = SCALE · ln(max(Σ_f bank[f, m] · p[t, f], FLOOR) + GUARD)      p = re² + im²
// With MAGNITUDE p = √(re² + im² + EPSILON). x [T, 8·BINS4] is re ‖ im, bank [4·BINS4, MELS], y [T, MELS];
// T is that of y's binding. A workgroup takes 4 frames, whose p it shares. Launch ceil(T / 4), folded at 65,535.
const BINS4: u32 = 1u;
const MELS: u32 = 1u;
const SCALE: f32 = 1.0;
const FLOOR: f32 = 0.0;
const GUARD: f32 = 0.0;
const MAGNITUDE: bool = false;
const EPSILON: f32 = 0.0;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> bank: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

var<workgroup> power: array<vec4<f32>, 4u * BINS4>;  // of a bin, in each of the 4 frames

// Of four bins of a frame.
fn power_at(frame: u32, bin4: u32) -> vec4<f32> {
  let at = frame * 2u * BINS4 + bin4;
  let re = x[at];
  let im = x[at + BINS4];
  let square = re * re + im * im;
  if (MAGNITUDE) {
    return sqrt(square + EPSILON);
  }
  return square;
}

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let frames = arrayLength(&y) / MELS;
  let first = (workgroup.y * workgroups.x + workgroup.x) * 4u;
  let last = frames - 1u;
  for (var i = me; i < BINS4; i += 128u) {
    let a = power_at(min(first, last), i);
    let b = power_at(min(first + 1u, last), i);
    let c = power_at(min(first + 2u, last), i);
    let d = power_at(min(first + 3u, last), i);
    power[4u * i] = vec4<f32>(a.x, b.x, c.x, d.x);
    power[4u * i + 1u] = vec4<f32>(a.y, b.y, c.y, d.y);
    power[4u * i + 2u] = vec4<f32>(a.z, b.z, c.z, d.z);
    power[4u * i + 3u] = vec4<f32>(a.w, b.w, c.w, d.w);
  }
  workgroupBarrier();
  for (var mel = me; mel < MELS; mel += 128u) {
    var sums = vec4<f32>();
    for (var f = 0u; f < 4u * BINS4; f++) {
      sums += bank[f * MELS + mel] * power[f];
    }
    let logs = SCALE * log(max(sums, vec4<f32>(FLOOR)) + GUARD);
    for (var i = 0u; i < 4u && first + i < frames; i++) {
      y[(first + i) * MELS + mel] = logs[i];
    }
  }
}
