fn left(at: u32) -> Left {
  return subgroupMatrixLoad<Left, row_major>(&rows, at, ROW_PITCH);
}

fn keys(at: u32) -> Right {
  return subgroupMatrixLoad<Right, col_major>(&tile, at, PITCH);
}

fn values(at: u32) -> Right {
  return subgroupMatrixLoad<Right, row_major>(&tile, at, PITCH);
}

fn product(a: Left, b: Right, sums: Sums) -> Sums {
  return subgroupMatrixMultiplyAccumulate(a, b, sums);
}

fn put(at: u32, sums: Sums) {
  subgroupMatrixStore<row_major>(&rows, at, sums, ROW_PITCH);
}

fn taken(at: u32) -> Sums {
  return subgroupMatrixLoad<Sums, row_major>(&rows, at, ROW_PITCH);
}
