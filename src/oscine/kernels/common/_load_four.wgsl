// A lane loads four weights at once.
// use _matrix_f32 for WEIGHTS: f32, f16, bf16, q8, q4
const VEC4S: u32 = 1u;
alias Wide = Packed;

fn fetch_wide(at: u32) -> Wide {
  return fetch(at);
}

fn four_of(wide: Wide, which: u32) -> vec4<f32> {
  return unpack(wide);
}
