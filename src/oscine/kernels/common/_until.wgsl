// A step after the end costs nothing: true once every row of `state` is done. Rows of any family, as
// long as WORDS. LINES is the number of rows to ask, 0 in plans without a guard.
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
