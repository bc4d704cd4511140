// Four weights in a row, stored as float32.
alias Packed = vec4<f32>;

fn unpack(weights: Packed) -> vec4<f32> {
  return weights;
}
