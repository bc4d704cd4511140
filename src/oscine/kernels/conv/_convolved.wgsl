// The input of a row of a convolution, in vec4s: `first_of(row, rows) + spread(k4)`, in a padded input
// x, k4 = place · TAP4 + channel. SKIP4: what dilation leaves out between two places. VOICES share the
// rows of x, and those of y, equally. Paste where x is bound.
const VOICES: u32 = 1u;
const K4: u32 = 1u;
const TAP4: u32 = 1u;
const STEP4: u32 = 1u;
const SKIP4: u32 = 0u;
const OUTPUTS: u32 = 1u;
const BIAS: bool = false;
const ADD: bool = false;

// Offset of the first input of row `row` of `rows`.
fn first_of(row: u32, rows: u32) -> u32 {
  if (VOICES == 1u) {
    return row * STEP4;
  }
  let own = rows / VOICES;
  return row / own * (arrayLength(&x) / VOICES) + row % own * STEP4;
}

fn spread(k4: u32) -> u32 {
  if (SKIP4 == 0u) {
    return k4;
  }
  return k4 + k4 / TAP4 * SKIP4;
}
