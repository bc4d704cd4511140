// The candidates of a chunk of logits: their softmax sum, and the best of them.
// Words of one in memory: top, total, score, token, logit, broken.
const CANDIDATE_WORDS: u32 = 6u;
// use _neg_inf

struct Candidates {
  top: f32,     // highest logit allowed, NEG_INF if none is
  total: f32,   // Σ e^(logit - top)
  score: f32,   // highest logit / temperature + noise
  token: u32,   // whose it is; the lowest among equals
  logit: f32,
  broken: u32,  // 1 if any logit is not finite
}

fn no_candidates() -> Candidates {
  return Candidates(NEG_INF, 0.0, NEG_INF, 0xffffffffu, NEG_INF, 0u);
}

fn merge(a: Candidates, b: Candidates) -> Candidates {
  var best = a;
  if (b.score > a.score || (b.score == a.score && b.token < a.token)) {
    best = b;
  }
  best.top = max(a.top, b.top);
  best.total = a.total * exp(a.top - best.top) + b.total * exp(b.top - best.top);
  best.broken = a.broken | b.broken;
  return best;
}
