// Blocks of positions, from storage, and of the scores of distances.
fn distances(at: u32) -> Right {
  var found: Right;
  for (var k = 0u; k < DEEP; k++) {
    for (var j = 0u; j < ACROSS; j++) {
      let part = at + j * N * HEADS * W8 + k * K / 8u;
      found[k * ACROSS + j] = subgroupMatrixLoad<RightMatrix, col_major>(
        &positions, part, HEADS * W8
      );
    }
  }
  return found;
}

fn put_distances(at: u32, sums: Sums) {
  for (var i = 0u; i < DOWN; i++) {
    for (var j = 0u; j < ACROSS; j++) {
      let part = at + i * M * BAND_PITCH + j * N;
      subgroupMatrixStore<row_major>(&band, part, sums[i * ACROSS + j], BAND_PITCH);
    }
  }
}
