// A finished beam; the fields of oscine.ops.FINISHED_BEAM, in their order.
const BEAM_WORDS: u32 = 4u;
const BEAM_FILLED: u32 = 0u;
const BEAM_COUNT: u32 = 1u;
const BEAM_SUM_LOGPROB: u32 = 2u;
