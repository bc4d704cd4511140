// A state row of a transducer, 13 words; the fields of oscine.ops.TRANSDUCER_STATE, in their order.
// use _header
const WORDS: u32 = 13u;
const FIRST: u32 = 8u;
const FRESH: u32 = 9u;
const HALF: u32 = 10u;
const SYMBOLS: u32 = 11u;
const NODE: u32 = 12u;
