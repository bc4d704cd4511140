// Where an utterance stands, 9 words; the fields of oscine.ops.UTTERANCE, in their order.
const UTTERANCE_WORDS: u32 = 9u;
const DONE: u32 = 0u;
const POSITION: u32 = 1u;
const LENGTH: u32 = 2u;
const COUNT: u32 = 3u;
const LIMIT: u32 = 4u;
const GROUP: u32 = 5u;
const CODE: u32 = 6u;
const SEED: u32 = 7u;
const TEXTS: u32 = 8u;
