// A state row of a text decoder, 18 words; the fields of oscine.ops.TEXT_DECODER_STATE, in their order.
// use _header
const WORDS: u32 = 18u;
const LAST_TIMESTAMP: u32 = 8u;
const AFTER_TIMESTAMP: u32 = 9u;
const AFTER_PAIR: u32 = 10u;
const REPEATS: u32 = 11u;
const SOT: u32 = 12u;
const TEMPERATURE: u32 = 13u;
const SUM_LOGPROB: u32 = 14u;
const NO_SPEECH_PROB: u32 = 15u;
const WINDOW: u32 = 16u;
const FRAMES: u32 = 17u;
