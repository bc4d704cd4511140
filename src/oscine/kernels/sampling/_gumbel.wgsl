// Noise from a counter, as oscine.ops.reference.sampling has it: PCG's output permutation, three times over.
fn pcg(value: u32) -> u32 {
  let x = value * 747796405u + 2891336453u;
  let word = ((x >> ((x >> 28u) + 4u)) ^ x) * 277803737u;
  return (word >> 22u) ^ word;
}

// Standard Gumbel noise from (seed, count, id): argmax(logit / T + noise) samples the softmax.
fn gumbel(seed: u32, count: u32, id: u32) -> f32 {
  let bits = pcg(id ^ pcg(pcg(seed) ^ count)) >> 9u;
  return -log(-log((f32(bits) + 0.5) * 1.1920928955078125e-07));
}
