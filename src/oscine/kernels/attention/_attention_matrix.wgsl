// Attention on matrix units, in blocks of 16x16x16: factors are float16, products and sums float32,
// weights 2^(score - top). What matrix units hold cannot be scaled row by row, so the `top` of a query
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

// use _subgroup_matrix_16x16x16 for MATRIX: 16x16x16, smaller
var<workgroup> behind: u32;  // whether a score is above the top of its query by more than SLACK

// use _attention_matrix_16x16x16 for MATRIX: 16x16x16, smaller
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
