// Whether an id is left by the mask and by timestamp rules a to d (openai whisper/decoding.py:
// ApplyTimestampRules); rule e needs all probabilities and is in the kernels that follow. Paste after
// masks, params and state; base: the row's state, rule: its params.
const SUPPRESS: u32 = 1u;
const SUPPRESS_FIRST: u32 = 2u;

fn allowed_by_timestamp_rules(id: u32, base: u32, rule: u32) -> bool {
  let first = state[base + COUNT] == 0u;
  let mask = masks[params[rule + MASK] * params[rule + VOCABULARY] + id];
  if ((mask & select(SUPPRESS, SUPPRESS | SUPPRESS_FIRST, first)) != 0u) {
    return false;
  }
  if (params[rule + TIMESTAMPS] == 0u) {
    return true;
  }
  let begin = params[rule + TIMESTAMP_BEGIN];
  let closing = state[base + AFTER_TIMESTAMP] != 0u && state[base + AFTER_PAIR] == 0u;
  if (id == params[rule + NO_TIMESTAMPS]) {
    return false;
  }
  if (state[base + AFTER_TIMESTAMP] != 0u) {
    if ((closing && id < params[rule + END]) || (!closing && id >= begin)) {
      return false;
    }
  }
  let last = state[base + LAST_TIMESTAMP];
  if (last != 0u && id >= begin && id < last + select(1u, 0u, closing)) {
    return false;
  }
  return !(first && (id < begin || id > begin + params[rule + MAX_INITIAL]));
}
