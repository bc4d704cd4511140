// Attention on matrix units of 16x16x16: factors are float16, products and sums float32, weights
// 2^(score - top). What matrix units hold cannot be scaled row by row, so the `top` of a query
// stays behind its highest score by up to SLACK, and only then are the sums of values taken out
// and scaled (Shah 2024, arXiv:2407.08608, has exact tops; 2^SLACK is far below float16's 65504).
// `tile` has keys, then values; `rows` has the queries, then the scores, weights and sums, of the
// subgroup that owns them.
// use _neg_inf
enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, subgroup_uniformity);
diagnostic(off, chromium.subgroup_matrix_uniformity);

const SLACK: f32 = 8.0;
const LOWEST: f32 = -1e20;  // below every score, above those that are masked
const LOG2_E: f32 = 1.4426950408889634;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

var<workgroup> behind: u32;  // whether a score is above the top of its query by more than SLACK

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

fn floats(at: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>(rows[at]);
}

fn halves(a: vec4<f32>, b: vec4<f32>) -> vec4<u32> {
  return vec4<u32>(
    pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw)
  );
}

fn weights(scores: vec4<f32>, top: f32) -> vec4<f32> {
  return exp2(fma(scores, vec4<f32>(SCALE * LOG2_E), vec4<f32>(-top)));
}

// Eight numbers of a query (part 0), key (1) or value (2).
fn eight(row: u32, part: u32, head: u32, column: u32) -> vec4<u32> {
  let at = (min(row, ROWS - 1u) * 3u + part) * HEADS + head;
  return qkv[at * W8 + min(column, W8 - 1u)];
}
