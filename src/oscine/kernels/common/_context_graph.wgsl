// The context graph of boosted phrases: the fields of oscine.ops.GRAPH_NODE and GRAPH_ARC, in their order. Paste after
// `nodes` and `arcs`. A root falls back to itself.
const NODE_WORDS: u32 = 4u;
const NODE_FIRST: u32 = 0u;
const NODE_COUNT: u32 = 1u;
const NODE_FAIL: u32 = 2u;
const NODE_BACK: u32 = 3u;
const ARC_WORDS: u32 = 3u;
const ARC_TOKEN: u32 = 0u;
const ARC_NODE: u32 = 1u;
const ARC_BONUS: u32 = 2u;
