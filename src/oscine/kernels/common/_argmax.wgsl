// The best of a workgroup of 128: the highest score, and the lowest id among equals. Ids are compared
// as f32, which holds them exactly below 2^24. Paste after _block and _never.
struct Best {
  score: f32,  // NEG_INF if none has any
  id: u32,
}

fn block_best(me: u32, score: f32, id: u32) -> Best {
  let top = workgroup_max(me, score);
  let first = workgroup_max(me, select(NEG_INF, -f32(id), score == top && top > NEG_INF));
  return Best(top, u32(-first));
}
