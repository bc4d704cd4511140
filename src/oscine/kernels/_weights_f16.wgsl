// Four weights in a row, stored as float16, two to a word: no half-precision feature is needed.
alias Packed = vec2<u32>;

fn unpack(weights: Packed) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(weights.x), unpack2x16float(weights.y));
}
