// y = depthwise(x): 3x3, stride 2      x a tile [.., 2·COUNT + 1, BEFORE, C], C = 4·C4
// weight [9, C] as time, frequency. Rows of x at or past ceil(frames / PER) and edges count as 0.
// Tiles and y as in conv_subsampling_first: row r of this one is row (tile[1] - 1) LEVEL + 1 + r.
// Launch (ceil(WIDTH·C4 / 64), COUNT, state).
// use _store_f32 for STORE: f32, f16
const BATCH: u32 = 1u;
const PER: u32 = 4u;
const BEFORE: u32 = 4u;
const WIDTH: u32 = 2u;
const C4: u32 = 1u;
const COUNT: u32 = 1u;
const LEVEL: u32 = 1u;
const ROWS: u32 = 1u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> frames: array<u32>;
@group(0) @binding(4) var<storage, read> tile: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<Stored>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let b = tile[0] + at.z;
  let c = at.x % C4;
  let f = at.x / C4;
  let row = i32(tile[1] * LEVEL + at.y) - i32(LEVEL - 1u);
  if (f >= WIDTH || b >= BATCH || (LEVEL == 1u && row >= i32(ROWS))) {
    return;
  }
  let length = i32((frames[b] + PER - 1u) / PER);
  let base = at.z * (2u * COUNT + 1u) + 2u * at.y;
  var sum = bias[c];
  for (var i = 0u; i < 3u; i++) {
    let t = 2 * row - 1 + i32(i);
    if (t < 0 || t >= length) {
      continue;
    }
    for (var j = 0u; j < 3u; j++) {
      let g = 2u * f + j;  // one more than the column
      if (g == 0u || g > BEFORE) {
        continue;
      }
      sum += weight[(3u * i + j) * C4 + c] * x[((base + i) * BEFORE + g - 1u) * C4 + c];
    }
  }
  var to = at.z * COUNT + at.y;
  if (LEVEL == 1u) {
    to = b * ROWS + u32(row);
  }
  y[(to * WIDTH + f) * C4 + c] = stored(sum);
}
