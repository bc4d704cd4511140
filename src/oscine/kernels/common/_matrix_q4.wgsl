// A matrix w of 4 bits: blocks of 32 in a row are four words, byte j with weight j in its lower half
// and weight j + 16 in its upper half; then each block's float16 scale and lowest weight, in a word
// (oscine.quantized.Q4). Paste with binding w: array<Word>; w is read by vec4s of its rows.
alias Word = u32;

struct Packed {
  bytes: u32,
  scales: u32,  // scale and lowest weight
  shift: u32,  // to these halves of the bytes
}

fn fetch(at4: u32) -> Packed {
  let block = at4 / 8u;
  return Packed(
    w[4u * block + at4 % 4u], w[arrayLength(&w) / 5u * 4u + block], at4 / 4u % 2u * 4u
  );
}

// Halves of bytes become float32 as the last bits of 2^23 + half, as in _matrix_q8.wgsl.
fn unpack(four: Packed) -> vec4<f32> {
  let halves = vec4<u32>(four.bytes >> four.shift) >> vec4<u32>(0u, 8u, 16u, 24u);
  let biased = bitcast<vec4<f32>>((halves & vec4<u32>(15u)) | vec4<u32>(0x4b000000u));
  let scale_low = unpack2x16float(four.scales);
  return fma(vec4<f32>(scale_low.x), biased - 8388608.0, vec4<f32>(scale_low.y));
}
