// The epilogue of a convolution: y = activation(sum + bias) + add, four outputs of a row at vec4 `at` of y
// and add, which are the vec4 `column` of bias. Paste after BIAS and ADD, and with
// bindings bias and add.
// use _activation

fn epilogue(at: u32, column: u32, sums: vec4<f32>) -> vec4<f32> {
  var value = sums;
  if (BIAS) {
    value += bias[column];
  }
  value = vec4<f32>(activate(value.x), activate(value.y), activate(value.z), activate(value.w));
  if (ADD) {
    value += add[at];
  }
  return value;
}
