// Four numbers in a row, weights or keys, stored as float16, two to a word: no half-precision feature is needed.
alias Packed = vec2<u32>;

fn unpack(four: Packed) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(four.x), unpack2x16float(four.y));
}
