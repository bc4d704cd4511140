// Four numbers in a row, weights or keys, stored as float32.
alias Packed = vec4<f32>;

fn unpack(four: Packed) -> vec4<f32> {
  return four;
}
