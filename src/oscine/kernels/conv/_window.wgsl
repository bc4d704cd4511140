// Rows of windows that lie one behind another; for a single one nothing is computed.
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
