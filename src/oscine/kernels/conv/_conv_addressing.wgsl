// The input of a row of a convolution, in vec4s: `row_offset(row, rows) + tap_offset(k4)`, in a padded input
// x, k4 = tap · TAP4 + channel. SKIP4: what dilation leaves out between two taps. SEQUENCES share the
// rows of x, and those of y, equally. Paste where x is bound.
const SEQUENCES: u32 = 1u;
const K4: u32 = 1u;
const TAP4: u32 = 1u;
const STEP4: u32 = 1u;
const SKIP4: u32 = 0u;
const OUTPUTS: u32 = 1u;
const BIAS: bool = false;
const ADD: bool = false;

// Offset of the first input of row `row` of `rows`.
fn row_offset(row: u32, rows: u32) -> u32 {
  if (SEQUENCES == 1u) {
    return row * STEP4;
  }
  let own = rows / SEQUENCES;
  return row / own * (arrayLength(&x) / SEQUENCES) + row % own * STEP4;
}

fn tap_offset(k4: u32) -> u32 {
  if (SKIP4 == 0u) {
    return k4;
  }
  return k4 + k4 / TAP4 * SKIP4;
}
