// Sixteen rows of a subgroup's sums, from the tile.
fn finish_rows(offset: u32, lane: u32, row: u32, output: u32, part: u32) {
  for (var turn = 0u; turn < FOURS / 2u; turn++) {
    let i = turn * 32u + lane;
    let line = i / FOURS;
    let four = i % FOURS;
    let sums = bitcast<vec4<f32>>(tile[offset + line * SUMS_PITCH + four]);
    store_four(row + line, output + 4u * four, sums, part);
  }
}

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let group = me / 32u;
  let row = group / 2u * 32u;
  let output = group % 2u * (SIDE / 2u);
  // Names, not arrays or structures: only these stay in registers.
  var s00 = Sums();
  var s01 = Sums();
  var s02 = Sums();
  var s03 = Sums();
  var s10 = Sums();
  var s11 = Sums();
  var s12 = Sums();
  var s13 = Sums();
  // Whole tiles of the depth are this part's.
  let tiles = (K8 + DEPTH8 - 1u) / DEPTH8;
  let first = workgroup.z * tiles / SPLITS * DEPTH8;
  let last = (workgroup.z + 1u) * tiles / SPLITS * DEPTH8;
  // The next tile is fetched before this one is used, so that its loads are under way meanwhile.
  let line = me / DEPTH8;
  let column = me % DEPTH8;
  let x_row = workgroup.y * SIDE + line;
  let w_row = workgroup.x * SIDE + line;
  let x_place = line * PITCH + column;
  let w_place = W_FIRST + x_place;
  var x0 = x_at(x_row, first + column);
  var x1 = x_at(x_row + STEP, first + column);
  var x2 = x_at(x_row + 2u * STEP, first + column);
  var x3 = x_at(x_row + 3u * STEP, first + column);
  var w0 = w_at(w_row, first + column);
  var w1 = w_at(w_row + STEP, first + column);
  var w2 = w_at(w_row + 2u * STEP, first + column);
  var w3 = w_at(w_row + 3u * STEP, first + column);
  for (var k8 = first; k8 < last; k8 += DEPTH8) {
    workgroupBarrier();
    tile[x_place] = x0;
    tile[x_place + STEP * PITCH] = x1;
    tile[x_place + 2u * STEP * PITCH] = x2;
    tile[x_place + 3u * STEP * PITCH] = x3;
    tile[w_place] = to_halves(w0);
    tile[w_place + STEP * PITCH] = to_halves(w1);
    tile[w_place + 2u * STEP * PITCH] = to_halves(w2);
    tile[w_place + 3u * STEP * PITCH] = to_halves(w3);
    workgroupBarrier();
    let next = k8 + DEPTH8 + column;
    x0 = x_at(x_row, next);
    x1 = x_at(x_row + STEP, next);
    x2 = x_at(x_row + 2u * STEP, next);
    x3 = x_at(x_row + 3u * STEP, next);
    w0 = w_at(w_row, next);
    w1 = w_at(w_row + STEP, next);
    w2 = w_at(w_row + 2u * STEP, next);
    w3 = w_at(w_row + 3u * STEP, next);
    for (var step = 0u; step < DEPTH8; step += 2u) {
      let left = row * PITCH + step;
      let right = W_FIRST + output * PITCH + step;
      let a0 = subgroupMatrixLoad<Left, row_major>(&tile, left, PITCH);
      let a1 = subgroupMatrixLoad<Left, row_major>(&tile, left + 16u * PITCH, PITCH);
      let b0 = subgroupMatrixLoad<Right, col_major>(&tile, right, PITCH);
      s00 = subgroupMatrixMultiplyAccumulate(a0, b0, s00);
      s10 = subgroupMatrixMultiplyAccumulate(a1, b0, s10);
      let b1 = subgroupMatrixLoad<Right, col_major>(&tile, right + 16u * PITCH, PITCH);
      s01 = subgroupMatrixMultiplyAccumulate(a0, b1, s01);
      s11 = subgroupMatrixMultiplyAccumulate(a1, b1, s11);
      if (WIDE) {
        let b2 = subgroupMatrixLoad<Right, col_major>(&tile, right + 32u * PITCH, PITCH);
        s02 = subgroupMatrixMultiplyAccumulate(a0, b2, s02);
        s12 = subgroupMatrixMultiplyAccumulate(a1, b2, s12);
        let b3 = subgroupMatrixLoad<Right, col_major>(&tile, right + 48u * PITCH, PITCH);
        s03 = subgroupMatrixMultiplyAccumulate(a0, b3, s03);
        s13 = subgroupMatrixMultiplyAccumulate(a1, b3, s13);
      }
    }
  }
  let offset = group * 16u * SUMS_PITCH;
  let lane = me % 32u;
  let to_row = workgroup.y * SIDE + row;
  let to_output = workgroup.x * SIDE + output;
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile, offset, s00, SUMS_PITCH);
  subgroupMatrixStore<row_major>(&tile, offset + 4u, s01, SUMS_PITCH);
  if (WIDE) {
    subgroupMatrixStore<row_major>(&tile, offset + 8u, s02, SUMS_PITCH);
    subgroupMatrixStore<row_major>(&tile, offset + 12u, s03, SUMS_PITCH);
  }
  workgroupBarrier();
  finish_rows(offset, lane, to_row, to_output, workgroup.z);
  workgroupBarrier();
  subgroupMatrixStore<row_major>(&tile, offset, s10, SUMS_PITCH);
  subgroupMatrixStore<row_major>(&tile, offset + 4u, s11, SUMS_PITCH);
  if (WIDE) {
    subgroupMatrixStore<row_major>(&tile, offset + 8u, s12, SUMS_PITCH);
    subgroupMatrixStore<row_major>(&tile, offset + 12u, s13, SUMS_PITCH);
  }
  workgroupBarrier();
  finish_rows(offset, lane, to_row + 16u, to_output, workgroup.z);
}
