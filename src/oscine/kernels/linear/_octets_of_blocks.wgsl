// Eight weights in a row of a matrix w in blocks, which become float16. Paste with binding
// w: array<Word>, and with _matrix_q8 or _matrix_q4.
struct Octet {
  first: Packed,
  second: Packed,
}

// Those at octet `at8`; not `inside`: zeros, as a scale of zero makes them.
fn fetch_octet(at8: u32, inside: bool) -> Octet {
  var eight = Octet(fetch(2u * at8), fetch(2u * at8 + 1u));
  eight.first.scales = select(0u, eight.first.scales, inside);
  eight.second.scales = select(0u, eight.second.scales, inside);
  return eight;
}

// As float16, two to a word.
fn to_halves(eight: Octet) -> vec4<u32> {
  let a = unpack(eight.first);
  let b = unpack(eight.second);
  return vec4<u32>(
    pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw)
  );
}
