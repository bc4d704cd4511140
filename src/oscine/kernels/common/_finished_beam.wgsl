// A finished beam; the fields of oscine.ops.FINISHED_BEAM, in their order.
const POOL_WORDS: u32 = 4u;
const POOL_FILLED: u32 = 0u;
const POOL_COUNT: u32 = 1u;
const POOL_SUM_LOGPROB: u32 = 2u;
