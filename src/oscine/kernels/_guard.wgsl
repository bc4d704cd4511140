// A step after the end costs nothing: true once every line of `state` is done.
// LINES is the number of lines to ask, 0 in plans without a guard.
const LINES: u32 = 0u;

fn all_done() -> bool {
  for (var line = 0u; line < LINES; line++) {
    if (state[line * STATE_WORDS + DONE] == 0u) {
      return false;
    }
  }
  return LINES > 0u;
}
