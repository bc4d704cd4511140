// The weights that a lane loads at once: four.
// use _weights_f32
const FOURS: u32 = 1u;
alias Wide = Packed;

fn four_of(wide: Wide, which: u32) -> vec4<f32> {
  return unpack(wide);
}
