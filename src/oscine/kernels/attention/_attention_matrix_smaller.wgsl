// Blocks of 16x16 of smaller matrices, DOWN·DEEP on the left, DEEP·ACROSS on the right.
const DOWN: u32 = 16u / M;
const ACROSS: u32 = 16u / N;
const DEEP: u32 = 16u / K;

alias Left = array<LeftMatrix, 256u / (M * K)>;
alias Right = array<RightMatrix, 256u / (K * N)>;
alias Sums = array<SumsMatrix, 256u / (M * N)>;

fn left(at: u32) -> Left {
  var found: Left;
  for (var i = 0u; i < DOWN; i++) {
    for (var k = 0u; k < DEEP; k++) {
      let part = at + i * M * ROW_PITCH + k * K / 8u;
      found[i * DEEP + k] = subgroupMatrixLoad<LeftMatrix, row_major>(&rows, part, ROW_PITCH);
    }
  }
  return found;
}

fn keys(at: u32) -> Right {
  var found: Right;
  for (var k = 0u; k < DEEP; k++) {
    for (var j = 0u; j < ACROSS; j++) {
      let part = at + j * N * PITCH + k * K / 8u;
      found[k * ACROSS + j] = subgroupMatrixLoad<RightMatrix, col_major>(&tile, part, PITCH);
    }
  }
  return found;
}

fn values(at: u32) -> Right {
  var found: Right;
  for (var k = 0u; k < DEEP; k++) {
    for (var j = 0u; j < ACROSS; j++) {
      let part = at + k * K * PITCH + j * N / 8u;
      found[k * ACROSS + j] = subgroupMatrixLoad<RightMatrix, row_major>(&tile, part, PITCH);
    }
  }
  return found;
}

fn product(a: Left, b: Right, sums: Sums) -> Sums {
  var found = sums;
  for (var i = 0u; i < DOWN; i++) {
    for (var j = 0u; j < ACROSS; j++) {
      for (var k = 0u; k < DEEP; k++) {
        found[i * ACROSS + j] = subgroupMatrixMultiplyAccumulate(
          a[i * DEEP + k], b[k * ACROSS + j], found[i * ACROSS + j]
        );
      }
    }
  }
  return found;
}

fn put(at: u32, sums: Sums) {
  for (var i = 0u; i < DOWN; i++) {
    for (var j = 0u; j < ACROSS; j++) {
      let part = at + i * M * ROW_PITCH + j * N / 4u;
      subgroupMatrixStore<row_major>(&rows, part, sums[i * ACROSS + j], ROW_PITCH);
    }
  }
}

fn taken(at: u32) -> Sums {
  var found: Sums;
  for (var i = 0u; i < DOWN; i++) {
    for (var j = 0u; j < ACROSS; j++) {
      let part = at + i * M * ROW_PITCH + j * N / 4u;
      found[i * ACROSS + j] = subgroupMatrixLoad<SumsMatrix, row_major>(&rows, part, ROW_PITCH);
    }
  }
  return found;
}
