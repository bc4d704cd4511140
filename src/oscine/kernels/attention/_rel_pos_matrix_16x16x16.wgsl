fn distances(at: u32) -> Right {
  return subgroupMatrixLoad<Right, col_major>(&positions, at, HEADS * W8);
}

fn put_distances(at: u32, sums: Sums) {
  subgroupMatrixStore<row_major>(&band, at, sums, BAND_PITCH);
}
