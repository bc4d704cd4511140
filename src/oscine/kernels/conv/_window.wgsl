// The window of a row, of windows of WINDOW rows one after another; constant for a single window.
const WINDOW: u32 = ROWS;  // rows of one

fn window(row: u32) -> u32 {
  if (WINDOW < ROWS) {
    return row / WINDOW;
  }
  return 0u;
}

fn window_row(row: u32) -> u32 {
  if (WINDOW < ROWS) {
    return row % WINDOW;
  }
  return row;
}
