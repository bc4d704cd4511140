// y[b, l] = softmax(q kᵀ / √W) v over keys 0 to position + l of line b, per head
// q is qkv [LINES·L, 3·D]; keys and values [.., ROOM, D]; y [LINES·L, D]; D = HEADS·4·W4.
// With ORIGINS, those of position p are in line origins[b, p] of the cache (L = 1); else in line b.
// With APPEND (one row a line) each workgroup first writes its head of k and v to line b.
// origins [LINES, MOST]. Launch (HEADS, LINES·L).
// use _state
const L: u32 = 1u;
const HEADS: u32 = 1u;
const W4: u32 = 16u;
const MOST: u32 = 448u;  // positions of a line
const ROOM: u32 = 448u;
const APPEND: bool = true;
const ORIGINS: bool = false;

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read_write> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> origins: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;

var<private> LINE: u32;

fn place4(key: u32) -> u32 {
  if (ORIGINS) {
    return (origins[LINE * MOST + key] * ROOM + key) * HEADS * W4;
  }
  return key * HEADS * W4;
}

fn key4(at: u32) -> vec4<f32> {
  return k[at];
}

fn value4(at: u32) -> vec4<f32> {
  return v[at];
}

// use _attend

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let head = workgroup.x * W4;
  let row = workgroup.y;
  let line = row / L;
  let l = row % L;
  let base = line * WORDS;
  let place = state[base + POSITION] + l;
  if (state[base + DONE] != 0u || l >= state[base + LENGTH] || place >= MOST) {
    return;
  }
  LINE = line;
  let width4 = HEADS * W4;
  let mine = line * ROOM * width4 + head;
  if (APPEND) {
    if (me < W4) {
      k[mine + place * width4 + me] = q[row * 3u * width4 + width4 + head + me];
      v[mine + place * width4 + me] = q[row * 3u * width4 + 2u * width4 + head + me];
    }
    storageBarrier();
  }
  let start = select(mine, head, ORIGINS);
  let found = attend(me, row * 3u * width4 + head, start, start, place + 1u);
  if (me < W4) {
    y[row * width4 + head + me] = found.sum / found.total;
  }
}
