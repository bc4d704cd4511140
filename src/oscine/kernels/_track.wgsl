// Where a line stands, 11 words, and one decision, 5 words; the fields of oscine.ops.TRACK and
// DECISION, in their order.
const TRACK_WORDS: u32 = 11u;
const DONE: u32 = 0u;
const FRAME: u32 = 1u;
const FRAMES: u32 = 2u;
const FIRST: u32 = 3u;
const TOKEN: u32 = 4u;
const FRESH: u32 = 5u;
const HALF: u32 = 6u;
const SYMBOLS: u32 = 7u;
const NODE: u32 = 8u;
const COUNT: u32 = 9u;
const LIMIT: u32 = 10u;
const DECISION_WORDS: u32 = 5u;
