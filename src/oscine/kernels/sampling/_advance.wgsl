// Write a token down and move its line on. Paste after params, state, tokens and CAPACITY, the tokens that
// a slot has room for.
const STOP_END: u32 = 1u;
const STOP_REPEAT: u32 = 2u;
const STOP_LENGTH: u32 = 3u;
const STOP_NONFINITE: u32 = 4u;

fn advance(line: u32, token: u32) {
  let base = line * WORDS;
  let slot = state[base + SLOT];
  let rule = slot * PARAMS_WORDS;
  let count = state[base + COUNT];
  state[base + POSITION] += state[base + LENGTH];
  state[base + LENGTH] = 1u;
  if (token == params[rule + END]) {
    state[base + DONE] = STOP_END;
    return;
  }
  let same = count > 0u && token == state[base + TOKEN];
  let repeats = select(1u, state[base + REPEATS] + 1u, same);
  state[base + REPEATS] = repeats;
  state[base + AFTER_PAIR] = select(state[base + AFTER_TIMESTAMP], 1u, count == 0u);
  let stamp = token >= params[rule + TIMESTAMP_BEGIN];
  state[base + AFTER_TIMESTAMP] = select(0u, 1u, stamp);
  if (stamp) {
    state[base + LAST_TIMESTAMP] = token;
  }
  tokens[slot * CAPACITY + min(count, CAPACITY - 1u)] = token;
  state[base + TOKEN] = token;
  state[base + COUNT] = count + 1u;
  if (params[rule + REPEAT_LIMIT] != 0u && repeats >= params[rule + REPEAT_LIMIT]) {
    state[base + DONE] = STOP_REPEAT;
  } else if (count + 1u >= state[base + LIMIT]) {
    state[base + DONE] = STOP_LENGTH;
  }
}
