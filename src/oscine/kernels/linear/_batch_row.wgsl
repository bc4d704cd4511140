// The item of a batch that a row belongs to, and its row there. Items of ITEM_ROWS rows are
// consecutive; with a single item both are constant.
const ITEM_ROWS: u32 = ROWS;

fn batch_item(row: u32) -> u32 {
  if (ITEM_ROWS < ROWS) {
    return row / ITEM_ROWS;
  }
  return 0u;
}

fn row_in_item(row: u32) -> u32 {
  if (ITEM_ROWS < ROWS) {
    return row % ITEM_ROWS;
  }
  return row;
}
