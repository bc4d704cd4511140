// Parameters of sampling a code, 7 words a slot; the fields of oscine.ops.SAMPLING_PARAMS, in their order.
const END: u32 = 0u;
const SUPPRESS: u32 = 1u;
const MINIMUM: u32 = 2u;
const TOP_K: u32 = 3u;
const TEMPERATURE: u32 = 4u;
const TOP_P: u32 = 5u;
const REPETITION_PENALTY: u32 = 6u;
const PARAMS_WORDS: u32 = 7u;
