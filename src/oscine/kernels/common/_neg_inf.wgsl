// Below every score; WGSL may assume that infinities do not occur.
const NEG_INF: f32 = -1e30;
