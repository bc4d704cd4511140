// Eight weights in a row of a matrix w of float16. Paste with binding w: array<Word>.
alias Word = vec4<u32>;
alias Octet = vec4<u32>;

// Those at octet `at8`; not `inside`: zeros.
fn fetch_octet(at8: u32, inside: bool) -> Octet {
  return select(vec4<u32>(), w[at8], inside);
}

// As float16, two to a word.
fn to_halves(eight: Octet) -> vec4<u32> {
  return eight;
}
