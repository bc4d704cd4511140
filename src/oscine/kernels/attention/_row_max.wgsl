// The highest of the 32 scores of a row of the block. Paste after weights.
fn row_max(row: u32) -> f32 {
  let at = row * 8u;
  var top = max(weights[at], weights[at + 1u]);
  top = max(top, max(weights[at + 2u], weights[at + 3u]));
  top = max(top, max(weights[at + 4u], weights[at + 5u]));
  top = max(top, max(weights[at + 6u], weights[at + 7u]));
  return max(max(top.x, top.y), max(top.z, top.w));
}
