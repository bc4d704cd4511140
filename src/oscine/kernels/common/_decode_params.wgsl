// Parameters of decoding, 11 words a slot; the fields of oscine.ops.DECODE_PARAMS, in their order.
const PARAMS_WORDS: u32 = 11u;
const VOCABULARY: u32 = 0u;
const END: u32 = 1u;
const TIMESTAMP_BEGIN: u32 = 2u;
const NO_TIMESTAMPS: u32 = 3u;
const NO_SPEECH: u32 = 4u;
const TIMESTAMPS: u32 = 5u;
const MAX_INITIAL: u32 = 6u;
const REPEAT_LIMIT: u32 = 7u;
const NO_REPEAT_NGRAM: u32 = 8u;
const REPETITION_PENALTY: u32 = 9u;
const MASK: u32 = 10u;
