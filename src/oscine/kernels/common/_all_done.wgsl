// Whether every row of `state` is done, so that a step after the end costs nothing. The rows of any
// family, of WORDS words; LINES is their number, 0 in plans without state rows.
// use _header
const LINES: u32 = 0u;
const WORDS: u32 = 8u;

fn all_done() -> bool {
  for (var line = 0u; line < LINES; line++) {
    if (state[line * WORDS + DONE] == 0u) {
      return false;
    }
  }
  return LINES > 0u;
}
