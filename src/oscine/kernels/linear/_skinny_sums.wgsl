// Sums of a few rows of x by four rows of a weight, and their distribution among lanes.
// Paste after shuffle (_shuffle_*.wgsl).

// Adds four products of the depth: m has a column for each, of the four weights.
fn step(sum: vec4<f32>, v: vec4<f32>, m: mat4x4<f32>) -> vec4<f32> {
  var s = fma(vec4<f32>(v.x), m[0], sum);
  s = fma(vec4<f32>(v.y), m[1], s);
  s = fma(vec4<f32>(v.z), m[2], s);
  return fma(vec4<f32>(v.w), m[3], s);
}

// Two rows' sums of two lanes to one of each: a lane whose `bit` is set keeps the odd row.
fn halve(even: vec4<f32>, odd: vec4<f32>, bit: u32, me: u32) -> vec4<f32> {
  let up = (me & bit) != 0u;
  return select(even, odd, up) + shuffle(select(odd, even, up), bit, me);
}
