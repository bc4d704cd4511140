// keys[slot of b, p mod P] = k of row l of sequence b, normalised and rotated, at position p; values[..]
// = v. qkv [B·L, (HEADS + 2·KEY_HEADS)·W], keys and values [SLOTS, P, KEY_HEADS·W], W = 4·W4. Rows
// at or past the length of b are not written; with WITHIN_FRAME all rows count.
// Launch (KEY_HEADS, B·L).
// use _talker_state
// use _store_f32 for CACHE: f32, f16
const HEADS: u32 = 1u;
const KEY_HEADS: u32 = 1u;
const W4: u32 = 16u;
const WINDOW: u32 = 0u;
const WITHIN_FRAME: bool = false;

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> cosines: array<f32>;
@group(0) @binding(2) var<storage, read> sines: array<f32>;
@group(0) @binding(3) var<storage, read> norms: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> state: array<u32>;
@group(0) @binding(5) var<storage, read_write> keys: array<Stored>;
@group(0) @binding(6) var<storage, read_write> values: array<Stored>;

// use _position
// use _rope

@compute @workgroup_size(128)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let at = position_of(workgroup.y, workgroups.y);
  let key_at = (workgroup.y * (HEADS + 2u * KEY_HEADS) + HEADS + workgroup.x) * W4;
  let i = min(me, W4 - 1u);
  let four = four_of_head(key_at, 1u, i);
  if (me < W4) {
    stage(1u, me, four);
  }
  if (!at.counts) {
    return;
  }
  let angles = angles_at(i, at.position);
  workgroupBarrier();
  if (me < W4) {
    let to = at.cache + (held_at(at.position, at) * KEY_HEADS + workgroup.x) * W4 + me;
    keys[to] = stored(rope(1u, me, angles, at.width4));
    values[to] = stored(qkv[key_at + KEY_HEADS * W4 + me]);
  }
}
