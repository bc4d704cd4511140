// The epilogue of a product: y[row, OFFSET + output] = activation(sum + bias[output]) + add[row, output].
// Paste after ROWS, and with bindings bias and add.
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
