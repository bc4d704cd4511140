// Where a convolution's row looks, in fours: `row · STEP4 + spread(k4)`, row by row of a lengthened
// input, k4 = place · TAP4 + channel. SKIP4: what dilation leaves out between two places.
const K4: u32 = 1u;
const TAP4: u32 = 1u;
const STEP4: u32 = 1u;
const SKIP4: u32 = 0u;
const OUTPUTS: u32 = 1u;
const BIAS: bool = false;
const ADD: bool = false;

fn spread(k4: u32) -> u32 {
  if (SKIP4 == 0u) {
    return k4;
  }
  return k4 + k4 / TAP4 * SKIP4;
}
