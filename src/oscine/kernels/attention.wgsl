// y[s] = softmax(q[s] kᵀ / √W) v, unmasked, per head      qkv [LENGTH, 3·D] packed, y [LENGTH, D]
// D = HEADS·W, W = 4·W4. One invocation a query, 64 queries a workgroup; keys and values pass
// through shared memory, TILE at a time, with the softmax kept online (Milakov & Gimelshein 2018).
// Launch (ceil(LENGTH / 64), HEADS).
const LENGTH: u32 = 1u;
const HEADS: u32 = 1u;
const W4: u32 = 16u;
const TILE: u32 = 32u;
const CHUNK: u32 = 8u;  // keys between two rescalings
const SCALE: f32 = 0.125;

@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;

var<workgroup> keys: array<vec4<f32>, TILE * W4>;
var<workgroup> values: array<vec4<f32>, TILE * W4>;

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(local_invocation_index) me: u32,
) {
  let width4 = HEADS * W4;
  let head = workgroup.y * W4;
  let row = workgroup.x * 64u + me;
  var query: array<vec4<f32>, W4>;
  var sum: array<vec4<f32>, W4>;
  for (var i = 0u; i < W4; i++) {
    query[i] = qkv[min(row, LENGTH - 1u) * 3u * width4 + head + i] * SCALE;
  }
  var top = -1e30;
  var total = 0.0;
  for (var start = 0u; start < LENGTH; start += TILE) {
    workgroupBarrier();
    for (var i = me; i < TILE * W4; i += 64u) {
      let at = min(start + i / W4, LENGTH - 1u) * 3u * width4 + head + i % W4;
      keys[i] = qkv[at + width4];
      values[i] = qkv[at + 2u * width4];
    }
    workgroupBarrier();
    for (var chunk = 0u; chunk < TILE; chunk += CHUNK) {
      var scores: array<f32, CHUNK>;
      var highest = top;
      for (var j = 0u; j < CHUNK; j++) {
        var products = vec4<f32>();
        for (var i = 0u; i < W4; i++) {
          products += query[i] * keys[(chunk + j) * W4 + i];
        }
        let score = dot(products, vec4<f32>(1.0));
        scores[j] = select(-1e30, score, start + chunk + j < LENGTH);
        highest = max(highest, scores[j]);
      }
      let fade = exp(top - highest);
      top = highest;
      total *= fade;
      for (var i = 0u; i < W4; i++) {
        sum[i] *= fade;
      }
      for (var j = 0u; j < CHUNK; j++) {
        let weight = exp(scores[j] - top);
        total += weight;
        for (var i = 0u; i < W4; i++) {
          sum[i] += weight * values[(chunk + j) * W4 + i];
        }
      }
    }
  }
  if (row < LENGTH) {
    for (var i = 0u; i < W4; i++) {
      y[row * width4 + head + i] = sum[i] / total;
    }
  }
}
