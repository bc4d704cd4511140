// A head of q or k, normalised (NORMS) and rotated by its position: four values an invocation.
// Paste after qkv and norms (arrays of vec4, of norms first q's, then k's weights), cosines and sines
// (of position p times frequency i, [.., W / 2]) and W4 = W/4 <= 128. An invocation loads four values
// by staged_four and angles_at, stores them by stage, and after a barrier takes its results by rope:
// all loads are under way together, and each invocation sums the squares of all of the head.
const NORMS: bool = false;
const EPS: f32 = 1e-6;

// Room for a head, of which 128 invocations are a multiple, so that each has one place in it. Never
// small: Mesa guesses from an array's size how often loops over it run, and unrolls them.
const HELD: u32 = select(64u, 128u, W4 > 64u);

struct Four {
  plain: vec4<f32>,
  weighted: vec4<f32>,  // by the norm's weights
}

struct Angles {
  cosines: vec4<f32>,
  sines: vec4<f32>,
}

var<workgroup> staged_plain: array<vec4<f32>, 2u * HELD>;  // q, then k
var<workgroup> staged_weighted: array<vec4<f32>, 2u * HELD>;

// Values 4·i to 4·i + 3 of the head that begins at `head`; norm: 0 of q, 1 of k.
fn four_of_head(head: u32, norm: u32, i: u32) -> Four {
  let value = qkv[head + i];
  if (NORMS) {
    return Four(value, value * norms[norm * W4 + i]);
  }
  return Four(value, value);
}

fn stage(norm: u32, i: u32, four: Four) {
  staged_plain[norm * HELD + i] = four.plain;
  staged_weighted[norm * HELD + i] = four.weighted;
}

fn angle(at: u32, position: u32) -> u32 {
  return position * 2u * W4 + at % (2u * W4);
}

fn angles_at(i: u32, position: u32) -> Angles {
  let a = angle(4u * i, position);
  let b = angle(4u * i + 1u, position);
  let c = angle(4u * i + 2u, position);
  let d = angle(4u * i + 3u, position);
  return Angles(
    vec4<f32>(cosines[a], cosines[b], cosines[c], cosines[d]),
    vec4<f32>(sines[a], sines[b], sines[c], sines[d])
  );
}

fn component(norm: u32, at: u32) -> f32 {
  return staged_weighted[norm * HELD + at / 4u][at % 4u];
}

// The value at `at` of the head, rotated with its pair, which is half a head away.
fn rotated(norm: u32, at: u32, cosine: f32, sine: f32) -> f32 {
  let pair = component(norm, (at + 2u * W4) % (4u * W4));
  return component(norm, at) * cosine + select(pair, -pair, at < 2u * W4) * sine;
}

// The squares of four values of the head, zeros past its end.
fn square(norm: u32, i: u32) -> vec4<f32> {
  let value = staged_plain[norm * HELD + min(i, W4 - 1u)];
  return select(vec4<f32>(), value * value, i < W4);
}

// Values 4·i to 4·i + 3 of the staged head; width4 is W4.
fn rope(norm: u32, i: u32, angles: Angles, width4: u32) -> vec4<f32> {
  var scale = 1.0;
  if (NORMS) {
    var squares = vec4<f32>();
    // Loads that are in flight together are written out: drivers do not unroll checked loops.
    for (var j = 0u; j < width4; j += 8u) {
      squares += square(norm, j) + square(norm, j + 1u) + square(norm, j + 2u)
        + square(norm, j + 3u) + square(norm, j + 4u) + square(norm, j + 5u)
        + square(norm, j + 6u) + square(norm, j + 7u);
    }
    scale = inverseSqrt(dot(squares, vec4<f32>(1.0)) / f32(4u * W4) + EPS);
  }
  let at = 4u * i;
  return scale * vec4<f32>(
    rotated(norm, at, angles.cosines.x, angles.sines.x),
    rotated(norm, at + 1u, angles.cosines.y, angles.sines.y),
    rotated(norm, at + 2u, angles.cosines.z, angles.sines.z),
    rotated(norm, at + 3u, angles.cosines.w, angles.sines.w)
  );
}
