// A matrix w of float16. Paste with binding w: array<Word>; w is read by vec4s of its rows.
// use _weights_f16
alias Word = Packed;

fn fetch(at4: u32) -> Packed {
  return w[at4];
}
