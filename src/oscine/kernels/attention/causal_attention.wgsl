// y[b, l] = softmax(q kᵀ / √W) v over keys 0 to position + l of line b, per head
// q is qkv [LINES·L, 3·D]; keys and values [SLOTS, CAPACITY, D]; y [LINES·L, D]; D = HEADS·4·W4.
// The line has s = state.slot of the cache; with CACHE_INDIRECTION, the key of position p is in cache_indirection[s, p].
// With APPEND (one row a line) each workgroup first writes its head of k and v to slot s.
// cache_indirection [SLOTS, MAX_KEYS]. Launch (HEADS, LINES·L).
// use _text_decoder_state
const L: u32 = 1u;
const HEADS: u32 = 1u;
const W4: u32 = 16u;
const MAX_KEYS: u32 = 448u;  // positions of a slot
const CAPACITY: u32 = 448u;
const APPEND: bool = true;
const CACHE_INDIRECTION: bool = false;

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> state: array<u32>;
@group(0) @binding(2) var<storage, read_write> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> cache_indirection: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;

var<private> slot: u32;

fn kv_offset(key: u32) -> u32 {
  if (CACHE_INDIRECTION) {
    return (cache_indirection[slot * MAX_KEYS + key] * CAPACITY + key) * HEADS * W4;
  }
  return key * HEADS * W4;
}

fn key4(at: u32) -> vec4<f32> {
  return k[at];
}

fn value4(at: u32) -> vec4<f32> {
  return v[at];
}

// use _attention

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let head = workgroup.x * W4;
  let row = workgroup.y;
  let l = row % L;
  let base = row / L * WORDS;
  let position = state[base + POSITION] + l;
  if (state[base + DONE] != 0u || l >= state[base + LENGTH] || position >= MAX_KEYS) {
    return;
  }
  slot = state[base + SLOT];
  let width4 = HEADS * W4;
  let mine = slot * CAPACITY * width4 + head;
  if (APPEND) {
    if (me < W4) {
      k[mine + position * width4 + me] = q[row * 3u * width4 + width4 + head + me];
      v[mine + position * width4 + me] = q[row * 3u * width4 + 2u * width4 + head + me];
    }
    storageBarrier();
  }
  let start = select(mine, head, CACHE_INDIRECTION);
  let found = attend(me, row * 3u * width4 + head, start, start, position + 1u);
  if (me < W4) {
    y[row * width4 + head + me] = found.sum / found.total;
  }
}
