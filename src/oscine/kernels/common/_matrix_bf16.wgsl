// A matrix w of bfloat16. Paste with binding w: array<Word>; w is read by vec4s of its rows.
// use _weights_bf16
alias Word = Packed;

fn fetch(at4: u32) -> Packed {
  return w[at4];
}
