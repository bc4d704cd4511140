// Four numbers in a row, stored as float32.
alias Stored = vec4<f32>;

fn stored(values: vec4<f32>) -> Stored {
  return values;
}

fn restored(values: Stored) -> vec4<f32> {
  return values;
}
