// A head of q or k, normalised (NORMS) and rotated by its position: four values an invocation.
// Paste after qkv and norms (arrays of vec4, of norms first q's, then k's weights), cosines and sines
// (of position p times frequency i, [.., W / 2]) and W4 = W/4. No barrier: each invocation sums the
// squares of all of the head, which comes to as much time as waiting for others.
const NORMS: bool = false;
const EPS: f32 = 1e-6;

fn component(head: u32, norm: u32, at: u32) -> f32 {
  let value = qkv[head + at / 4u][at % 4u];
  return select(value, value * norms[norm * W4 + at / 4u][at % 4u], NORMS);
}

// The value at `at` of the head, rotated with its pair, which is half a head away.
fn rotated(head: u32, norm: u32, at: u32, position: u32) -> f32 {
  let angle = position * 2u * W4 + at % (2u * W4);
  let pair = component(head, norm, (at + 2u * W4) % (4u * W4));
  return component(head, norm, at) * cosines[angle]
    + select(pair, -pair, at < 2u * W4) * sines[angle];
}

// The squares of four values of the head, zeros past its end.
fn square(head: u32, i: u32) -> vec4<f32> {
  let value = qkv[head + min(i, W4 - 1u)];
  return select(vec4<f32>(), value * value, i < W4);
}

// Values 4·me to 4·me + 3 of the head that begins at `head`; width4 is W4.
fn rope(me: u32, head: u32, norm: u32, position: u32, width4: u32) -> vec4<f32> {
  var scale = 1.0;
  if (NORMS) {
    var squares = vec4<f32>();
    // Loads that are in flight together are written out: drivers do not unroll checked loops.
    for (var i = 0u; i < width4; i += 8u) {
      squares += square(head, i) + square(head, i + 1u) + square(head, i + 2u)
        + square(head, i + 3u) + square(head, i + 4u) + square(head, i + 5u)
        + square(head, i + 6u) + square(head, i + 7u);
    }
    scale = inverseSqrt(dot(squares, vec4<f32>(1.0)) / f32(4u * W4) + EPS);
  }
  let at = 4u * me;
  return scale * vec4<f32>(
    rotated(head, norm, at, position), rotated(head, norm, at + 1u, position),
    rotated(head, norm, at + 2u, position), rotated(head, norm, at + 3u, position)
  );
}
