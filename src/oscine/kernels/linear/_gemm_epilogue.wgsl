// The epilogue of a product: y[row, OFFSET + output] = activation(sum + bias[output]) + add[row, output].
// Paste after ROWS, OUTPUTS and SPLITS, and with bindings bias, add and y.
// use _activation
// use _batch_row
const OFFSET: u32 = 0u;
const STRIDE: u32 = 1u;
const BIAS: bool = false;
const ADD: bool = false;

fn epilogue(row: u32, output: u32, sum: f32) -> f32 {
  var value = sum;
  if (BIAS) {
    value += bias[OFFSET + output];
  }
  value = activate(value);
  if (ADD) {
    value += add[row_in_item(row) * STRIDE + OFFSET + output];
  }
  return value;
}

// Of SPLITS parts of the depth each part stores its sums, which gemm_reduce.wgsl finishes.
fn store_sum(row: u32, output: u32, sum: f32, part: u32) {
  if (row < ROWS && output < OUTPUTS) {
    if (SPLITS > 1u) {
      y[(part * ROWS + row) * STRIDE + OFFSET + output] = sum;
      return;
    }
    y[row * STRIDE + OFFSET + output] = epilogue(row, output, sum);
  }
}
