// A matrix w of 8 bits: signed bytes, four to a word, then the float16 scales of blocks of 32 in a
// row, two to a word: 17 words for two blocks (oscine.quantized.Q8). Paste with binding w: array<Word>;
// w is read by vec4s of its rows.
alias Word = u32;

struct Packed {
  bytes: u32,
  scales: u32,
  shift: u32,  // to the scale of these four
}

fn fetch(at4: u32) -> Packed {
  let block = at4 / 8u;
  return Packed(w[at4], w[2u * arrayLength(&w) / 17u * 8u + block / 2u], block % 2u * 16u);
}

// Bytes become float32 as the last bits of 2^23 + byte: two operations at the full rate, where some
// GPUs convert integers at a quarter of it. Signs: byte + 128 is from 0 to 255.
fn unpack(four: Packed) -> vec4<f32> {
  let bytes = vec4<u32>(four.bytes ^ 0x80808080u) >> vec4<u32>(0u, 8u, 16u, 24u);
  let biased = bitcast<vec4<f32>>((bytes & vec4<u32>(0xffu)) | vec4<u32>(0x4b000000u));
  return unpack2x16float(four.scales >> four.shift).x * (biased - 8388736.0);
}
