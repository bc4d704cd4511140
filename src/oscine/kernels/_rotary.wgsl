// A head of q or k, normalised (NORMS) and turned by its position, by one workgroup of 128.
// Paste after qkv and norms (arrays of vec4, of norms first q's, then k's weights), cosines and sines (of
// position p times frequency i, [.., W / 2]) and W4 = W/4.
// use _block_subgroup
const NORMS: bool = false;
const EPSILON: f32 = 1e-6;

var<workgroup> rotary_head: array<vec4<f32>, W4>;

fn component(at: u32) -> f32 {
  return rotary_head[at / 4u][at % 4u];
}

// The value at `at` of the head, turned with its pair, which is half a head away.
fn turned(at: u32, place: u32) -> f32 {
  let angle = place * 2u * W4 + at % (2u * W4);
  let pair = component((at + 2u * W4) % (4u * W4));
  return component(at) * cosines[angle] + select(pair, -pair, at < 2u * W4) * sines[angle];
}

// Four values, to each of the first W4 invocations; zeros to the others.
fn head(me: u32, at: u32, norm: u32, place: u32) -> vec4<f32> {
  var mine = vec4<f32>();
  if (me < W4) {
    mine = qkv[at + me];
  }
  if (NORMS) {
    let square = block_sum(me, dot(mine, mine)) / f32(4u * W4);
    mine *= norms[norm * W4 + min(me, W4 - 1u)] * inverseSqrt(square + EPSILON);
  }
  if (me < W4) {
    rotary_head[me] = mine;
  }
  workgroupBarrier();
  if (me < W4) {
    let i = 4u * me;
    mine = vec4<f32>(
      turned(i, place), turned(i + 1u, place), turned(i + 2u, place), turned(i + 3u, place)
    );
  }
  workgroupBarrier();
  return mine;
}
