// A score that nothing reaches: WGSL may assume that there is no infinity.
const NEG_INF: f32 = -1e30;
