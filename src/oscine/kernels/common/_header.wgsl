// The first words of every state row; the fields of oscine.ops.HEADER, in their order.
const DONE: u32 = 0u;
const POSITION: u32 = 1u;
const LENGTH: u32 = 2u;
const TOKEN: u32 = 3u;
const COUNT: u32 = 4u;
const LIMIT: u32 = 5u;
const SEED: u32 = 6u;
const SLOT: u32 = 7u;
