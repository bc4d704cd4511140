// The weights that a lane loads at once: eight of two bytes, which are as many as hardware can.
// use _weights_f32 for WEIGHTS: f32, f16, bf16
const VEC4S: u32 = 2u;
alias Word = vec4<u32>;
alias Wide = vec4<u32>;

fn fetch_wide(at: u32) -> Wide {
  return w[at];
}

fn four_of(wide: Wide, which: u32) -> vec4<f32> {
  return unpack(select(wide.zw, wide.xy, which == 0u));
}
