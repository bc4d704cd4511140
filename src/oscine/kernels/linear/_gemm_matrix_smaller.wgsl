// The products of gemm_matrix by smaller matrices, and its end.
const DOWN: u32 = 32u / M;  // matrices of a subgroup's sums
const ACROSS: u32 = SIDE / 2u / N;
const FETCHES: u32 = SIDE / STEP;

// M rows of a subgroup's sums, from the tile.
fn finish_rows(offset: u32, lane: u32, row: u32, output: u32, part: u32) {
  for (var i = lane; i < M * FOURS; i += 32u) {
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
  var sums: array<SumsMatrix, DOWN * ACROSS>;
  // Whole tiles of the depth are this part's.
  let tiles = (K8 + DEPTH8 - 1u) / DEPTH8;
  let first = workgroup.z * tiles / SPLITS * DEPTH8;
  let last = (workgroup.z + 1u) * tiles / SPLITS * DEPTH8;
  // The next tile is fetched before this one is used, so that its loads are under way meanwhile.
  let line = me / DEPTH8;
  let column = me % DEPTH8;
  var next_x: array<vec4<u32>, FETCHES>;
  var next_w: array<Octet, FETCHES>;
  for (var i = 0u; i < FETCHES; i++) {
    next_x[i] = x_at(workgroup.y * SIDE + line + i * STEP, first + column);
    next_w[i] = w_at(workgroup.x * SIDE + line + i * STEP, first + column);
  }
  for (var k8 = first; k8 < last; k8 += DEPTH8) {
    workgroupBarrier();
    for (var i = 0u; i < FETCHES; i++) {
      tile[(line + i * STEP) * PITCH + column] = next_x[i];
      tile[W_FIRST + (line + i * STEP) * PITCH + column] = to_halves(next_w[i]);
    }
    workgroupBarrier();
    for (var i = 0u; i < FETCHES; i++) {
      next_x[i] = x_at(workgroup.y * SIDE + line + i * STEP, k8 + DEPTH8 + column);
      next_w[i] = w_at(workgroup.x * SIDE + line + i * STEP, k8 + DEPTH8 + column);
    }
    for (var step = 0u; step < DEPTH8; step += K / 8u) {
      var a: array<LeftMatrix, DOWN>;
      for (var i = 0u; i < DOWN; i++) {
        let at = (row + i * M) * PITCH + step;
        a[i] = subgroupMatrixLoad<LeftMatrix, row_major>(&tile, at, PITCH);
      }
      for (var j = 0u; j < ACROSS; j++) {
        let at = W_FIRST + (output + j * N) * PITCH + step;
        let b = subgroupMatrixLoad<RightMatrix, col_major>(&tile, at, PITCH);
        for (var i = 0u; i < DOWN; i++) {
          let s = i * ACROSS + j;
          sums[s] = subgroupMatrixMultiplyAccumulate(a[i], b, sums[s]);
        }
      }
    }
  }
  let offset = group * M * SUMS_PITCH;
  for (var i = 0u; i < DOWN; i++) {
    workgroupBarrier();
    for (var j = 0u; j < ACROSS; j++) {
      let at = offset + j * N / 4u;
      subgroupMatrixStore<row_major>(&tile, at, sums[i * ACROSS + j], SUMS_PITCH);
    }
    workgroupBarrier();
    let to_row = workgroup.y * SIDE + row + i * M;
    finish_rows(offset, me % 32u, to_row, workgroup.x * SIDE + output, workgroup.z);
  }
}
