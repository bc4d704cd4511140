// How a code is chosen; the fields of oscine.ops.SAMPLING, in their order.
const VOCABULARY: u32 = 0u;
const END: u32 = 1u;
const SUPPRESS: u32 = 2u;
const MINIMUM: u32 = 3u;
const TOP_K: u32 = 4u;
const TEMPERATURE: u32 = 5u;
const TOP_P: u32 = 6u;
const REPETITION_PENALTY: u32 = 7u;
