// Four numbers in a row of a table of words, by their dtype: float32 (0), float16 (1) or bfloat16 (2).
fn first_word(at4: u32, dtype: u32) -> u32 {
  return select(2u, 4u, dtype == 0u) * at4;
}

fn unpack_four(words: vec4<u32>, dtype: u32) -> vec4<f32> {
  if (dtype == 1u) {
    return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
  }
  if (dtype == 2u) {
    let upper = vec2<u32>(0xffff0000u);
    let low = words.xy << vec2<u32>(16u);
    let high = words.xy & upper;
    return bitcast<vec4<f32>>(vec4<u32>(low.x, high.x, low.y, high.y));
  }
  return bitcast<vec4<f32>>(words);
}
