// y = depthwise(relu(conv(mel))): two 3x3 convolutions of stride 2 at once, so that what lies
// between them, the largest image of an encoder, is never written.
// mel [BATCH·N, MELS]; first, depthwise [9, C] as time, frequency; C = 4·C4; image of the first
// [.., BETWEEN, C], of the second [.., WIDTH, C]. Rows past a sequence's frames and padding are 0.
// A tile is some state from tile[0] on, and of each the COUNT rows that the encoder's frames
// from tile[1] on depend on: row r of it is row (tile[1] - 1) LEVEL + 1 + r of the whole image.
// y is the tile [.., COUNT, WIDTH, C], or with LEVEL = 1 the whole [BATCH, ROWS, WIDTH, C].
// Launch (ceil(WIDTH·C4 / 64), COUNT, state).
// use _store_f32 for STORE: f32, f16
const BATCH: u32 = 1u;
const N: u32 = 1u;
const MELS: u32 = 8u;
const BETWEEN: u32 = 4u;
const WIDTH: u32 = 2u;
const C4: u32 = 1u;
const COUNT: u32 = 1u;
const LEVEL: u32 = 1u;
const ROWS: u32 = 1u;

@group(0) @binding(0) var<storage, read> mel: array<f32>;
@group(0) @binding(1) var<storage, read> first: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> first_bias: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> depthwise: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> depthwise_bias: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> frames: array<u32>;
@group(0) @binding(6) var<storage, read> tile: array<u32>;
@group(0) @binding(7) var<storage, read_write> y: array<Stored>;

fn sound(b: u32, length: i32, t: i32, f: i32) -> f32 {
  if (t < 0 || t >= length || f < 0 || f >= i32(MELS)) {
    return 0.0;
  }
  return mel[(b * N + u32(t)) * MELS + u32(f)];
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let b = tile[0] + at.z;
  let c = at.x % C4;
  let f = at.x / C4;
  let row = i32(tile[1] * LEVEL + at.y) - i32(LEVEL - 1u);
  if (f >= WIDTH || b >= BATCH || (LEVEL == 1u && row >= i32(ROWS))) {
    return;
  }
  let length = i32(min(frames[b], N));
  let half_length = (length + 1) / 2;
  let bias = first_bias[c];
  let w0 = first[c];
  let w1 = first[C4 + c];
  let w2 = first[2u * C4 + c];
  let w3 = first[3u * C4 + c];
  let w4 = first[4u * C4 + c];
  let w5 = first[5u * C4 + c];
  let w6 = first[6u * C4 + c];
  let w7 = first[7u * C4 + c];
  let w8 = first[8u * C4 + c];
  var sum = depthwise_bias[c];
  for (var i = 0; i < 3; i++) {
    let t1 = 2 * row - 1 + i;
    if (t1 < 0 || t1 >= half_length) {
      continue;
    }
    let t = 2 * t1 - 1;
    for (var j = 0; j < 3; j++) {
      let f1 = 2 * i32(f) - 1 + j;
      if (f1 < 0 || f1 >= i32(BETWEEN)) {
        continue;
      }
      let g = 2 * f1 - 1;
      var hidden = bias;
      hidden += w0 * sound(b, length, t, g);
      hidden += w1 * sound(b, length, t, g + 1);
      hidden += w2 * sound(b, length, t, g + 2);
      hidden += w3 * sound(b, length, t + 1, g);
      hidden += w4 * sound(b, length, t + 1, g + 1);
      hidden += w5 * sound(b, length, t + 1, g + 2);
      hidden += w6 * sound(b, length, t + 2, g);
      hidden += w7 * sound(b, length, t + 2, g + 1);
      hidden += w8 * sound(b, length, t + 2, g + 2);
      sum += depthwise[u32(3 * i + j) * C4 + c] * max(hidden, vec4<f32>());
    }
  }
  var to = at.z * COUNT + at.y;
  if (LEVEL == 1u) {
    to = b * ROWS + u32(row);
  }
  y[(to * WIDTH + f) * C4 + c] = stored(sum);
}
