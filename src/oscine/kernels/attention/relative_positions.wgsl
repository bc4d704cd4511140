// y[r] = sin(p wᵢ), cos(p wᵢ) in turn, p = CENTRE - r      y [2·CENTRE + 1, D], D = 4·WIDTH4
// p = STEP a + b is rotated by two rotations from tables of sines and cosines: coarse [.., D] at
// multiples of STEP, fine [STEP, D]. WGSL's own sine of a large angle may be anything.
// Launch (ceil(WIDTH4 / 64), rows).
const CENTRE: u32 = 0u;
const WIDTH4: u32 = 1u;
const STEP: u32 = 256u;

@group(0) @binding(0) var<storage, read> coarse: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> fine: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(
  @builtin(global_invocation_id) at: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
) {
  if (at.x >= WIDTH4) {
    return;
  }
  for (var r = at.y; r <= 2u * CENTRE; r += workgroups.y) {
    let p = u32(abs(i32(CENTRE) - i32(r)));
    let a = coarse[p / STEP * WIDTH4 + at.x];
    let b = fine[p % STEP * WIDTH4 + at.x];
    let sines = a.xz * b.yw + a.yw * b.xz;
    let cosines = a.yw * b.yw - a.xz * b.xz;
    let rotated = select(sines, -sines, r > CENTRE);
    y[r * WIDTH4 + at.x] = vec4<f32>(rotated.x, cosines.x, rotated.y, cosines.y);
  }
}
