// A score that nothing reaches: WGSL may assume that there is no infinity.
const NEVER: f32 = -1e30;
