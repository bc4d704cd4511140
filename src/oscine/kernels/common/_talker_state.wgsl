// A state row of the talker, 10 words; the fields of oscine.ops.TALKER_STATE, in their order.
// use _header
const WORDS: u32 = 10u;
const GROUP: u32 = 8u;
const TEXTS: u32 = 9u;
