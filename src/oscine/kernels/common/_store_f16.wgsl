// Four numbers in a row, stored as float16, two to a word; no further than float16 reaches.
alias Stored = vec2<u32>;

fn stored(values: vec4<f32>) -> Stored {
  let safe = clamp(values, vec4<f32>(-65504.0), vec4<f32>(65504.0));
  return vec2<u32>(pack2x16float(safe.xy), pack2x16float(safe.zw));
}

fn restored(values: Stored) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(values.x), unpack2x16float(values.y));
}
