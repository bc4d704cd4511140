// What a transducer decided at a frame; the fields of oscine.ops.TRANSDUCER_STEP, in their order.
const STEP_WORDS: u32 = 5u;
const STEP_FRAME: u32 = 0u;
const STEP_TOKEN: u32 = 1u;
const STEP_DURATION: u32 = 2u;
const STEP_ADVANCED: u32 = 3u;
const STEP_PROBABILITY: u32 = 4u;
