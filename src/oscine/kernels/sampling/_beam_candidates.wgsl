// What passes between the kernels of beam search.
// A stretch of logits, of text or of timestamps: top, total (Σ e^(logit - top)), broken, then RANKS
// pairs of logit and id, best first, NEG_INF where there are no more. The candidates of a beam: broken, then
// RANKS pairs of total log-probability and token.
const RANKS: u32 = 6u;  // beams of a group and one more
const PART_WORDS: u32 = 3u + 2u * RANKS;
const BEAM_CANDIDATE_WORDS: u32 = 1u + 2u * RANKS;
