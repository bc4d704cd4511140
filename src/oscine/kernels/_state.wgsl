// One line's decoding state, 16 words; the fields of oscine.ops.STATE, in their order.
const STATE_WORDS: u32 = 16u;
const DONE: u32 = 0u;
const POSITION: u32 = 1u;
const LENGTH: u32 = 2u;
const TOKEN: u32 = 3u;
const COUNT: u32 = 4u;
const LIMIT: u32 = 5u;
const LAST_TIMESTAMP: u32 = 6u;
const AFTER_TIMESTAMP: u32 = 7u;
const AFTER_PAIR: u32 = 8u;
const REPEATS: u32 = 9u;
const SEED: u32 = 10u;
const SOT: u32 = 11u;
const TEMPERATURE: u32 = 12u;
const SUM_LOGPROB: u32 = 13u;
const NO_SPEECH_PROB: u32 = 14u;
