// Four numbers in a row, weights, stored as bfloat16, two to a word: the upper halves of float32.
alias Packed = vec2<u32>;

fn unpack(four: Packed) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4<u32>(four << vec2<u32>(16u), four & vec2<u32>(0xffff0000u)).xzyw);
}
